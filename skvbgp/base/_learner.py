"""What a family of models is to its estimators: a learner, its states and their posteriors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Protocol, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._optim.ascent import EndPass


class Distribution(Protocol):
    """Predictive distributions of n rows.

    Where y may have noise of known variances, there is also ``with_noise(variance)``, given these:
    the distributions of y with independent normal noise besides.
    """

    def quantile(self, p: float) -> Array:
        """The least value (n,) that is not exceeded with probability p."""

    def log_density(self, y: Array) -> Array:
        """Log density (n,), or log probability of counts, at values (n,)."""


class Posterior(Protocol):
    """What a regressor's state says about new rows, in the user's units.

    It owns whatever is worth keeping between two calls, and does not pickle it. Where it knows
    more of a row than two moments, it also has ``distribution(X, include_noise)``, a
    `Distribution` with these moments. Where means take much less time without variances, it may
    have ``predict_mean(X, include_noise)``, those of `moments`. That of an estimator that
    `LeavesOut` has ``leave_out(X, targets)``: mean (n,) and variance (n,) of new observations at
    known rows, each given all the others, without known noise. Known rows are those that training
    works with.
    """

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of each row; a row's do not depend on the others."""

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n) of all rows."""


def predict_distribution(posterior: Posterior, X: Array, include_noise: bool) -> Distribution:
    """What a posterior says of each row: normal, unless it has a ``distribution`` of its own."""
    distribution = getattr(posterior, "distribution", None)
    if distribution is not None:
        return distribution(X, include_noise)
    return NormalMixture.of_moments(*posterior.moments(X, include_noise))


class Learner(ABC):
    """Settings of a model, and what it does with data.

    A learner is a frozen dataclass of the constructor parameters that training needs. It may be
    sent to another process, and keeps nothing: what is learned is the state, an immutable value
    of any class, which is replaced and never modified. Inputs and targets are what the
    estimator's ``_prepare`` makes of the user's: mostly X (n, d) and y (n,).
    """

    @classmethod
    def of(cls, estimator: Any, **others: Any) -> Self:
        """The learner whose fields are an estimator's parameters of the same names.

        Keywords are further fields, and those that are to differ from what the user gave.
        """
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        given = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
        return cls(**given | others)

    @abstractmethod
    def max_passes(self, y: Any) -> int:
        """Largest number of passes of a fit to these targets."""

    @abstractmethod
    def start(self, X: Any, y: Any, rng: np.random.RandomState, before: Any) -> Any:
        """State before training; ``before`` is that of the fit to go on from, or None."""

    @abstractmethod
    def train(self, state: Any, X: Any, y: Any, end_pass: EndPass) -> Any:
        """State after training; `end_pass` is called once for each pass."""

    @abstractmethod
    def update(self, state: Any, X: Any, y: Any, end_pass: EndPass) -> Any:
        """State after new rows, at most ``max_update_passes`` passes."""

    def max_update_passes(self, state: Any, X: Any, y: Any) -> int:
        """Largest number of passes of `update`."""
        return 1

    def rows_to_restart(self, state: Any, X: Any, y: Any) -> tuple[Any, Any] | None:
        """All rows, known and new, if training has to begin again with them, else None.

        The state's own rows were too few, or too uniform, to set anything for good
        (`is_outgrown`); then a stream goes on as a fit to all rows, from a cold start.
        """
        return None

    @abstractmethod
    def attributes(self, state: Any) -> dict[str, Any]:
        """Public fitted attributes."""

    def posterior(self, state: Any) -> Any:
        """What the state says about new rows: what it has kept, if it has a ``posterior``."""
        return state.posterior


class RegressionLearner(Learner):
    """A learner of y (n,) whose states predict distributions, by a `Posterior`."""

    def let_fade(self, state: Any, share: float) -> Any:
        """State whose rows count less by a factor, without new ones; 1, unless it can forget."""
        assert share == 1.0
        return state
