"""One model of lengthened rows: several outputs, of which some have models of their own.

The model of all outputs takes rows (n, d + t), whose last columns are the indicator of the output;
that of a single one takes the inputs (n, d) alone. Different models know nothing of one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base._distributions import predict_mean
from skvbgp.base._function import Draws, Relevance
from skvbgp.base._learner import Distribution, predict_distribution
from skvbgp.base._weights import Targets


def find_output(X: Array, t: int) -> NDArray[np.intp]:
    """Which of t outputs each of lengthened rows (n, d + t) is of, (n,)."""
    return np.argmax(X[:, -t:], axis=1)


def find_joining(apart: Sequence[Any]) -> NDArray[np.bool_]:
    """Which outputs the model of all predicts, (t,): those that have none of their own."""
    return np.array([one is None for one in apart])


@dataclass(frozen=True)
class Parted:
    """What t outputs have of lengthened rows: a value by whoever predicts its output."""

    common: Any
    apart: tuple[Any, ...]  # by output: its own, which takes rows without indicators, or None

    @property
    def joins(self) -> NDArray[np.bool_]:
        """Which outputs the model of all predicts, (t,)."""
        return find_joining(self.apart)

    def visit(self, X: Array) -> Iterator[tuple[Any, NDArray[np.bool_], Array]]:
        """What predicts some of rows X, which these are, and as it takes them."""
        t, joins = len(self.apart), self.joins
        output = find_output(X, t)
        for j in np.flatnonzero(~joins).tolist():
            mine = output == j
            if mine.any():
                yield self.apart[j], mine, X[mine, :-t]
        rest = joins[output]
        if rest.any():
            yield self.common, rest, X[rest]


@dataclass(frozen=True)
class PartedDraws(Parted):
    """Functions of all outputs; those that stay apart have functions of their own."""

    n: int

    def __call__(self, X: Array) -> Array:
        """Values (n_samples, n)."""
        values = np.empty((len(X), self.n))
        for draws, index, rows in self.visit(X):
            values[index] = draws(rows)
        return values

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, d + t, n), zero in the indicators."""
        slopes = np.zeros((*X.shape, self.n))
        for draws, index, rows in self.visit(X):
            slopes[index, : rows.shape[1]] = draws.gradient(rows)
        return slopes


@dataclass(frozen=True)
class PartedModel(Parted):
    """The model of all outputs, and those that stay apart.

    Each is a `Posterior` and a `KnownFunction`, and so is this, of lengthened rows. The model of
    all also has ``measure_relevance(among)``, shares (d,) of the inputs at rows of some outputs
    (t,).
    """

    counts: Array  # (t,) how often values of each output count

    # -- new rows ----------------------------------------------------------------------------------

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        mean, variance = np.empty((2, len(X)))
        for one, index, rows in self.visit(X):
            mean[index], variance[index] = one.moments(rows, include_noise)
        return mean, variance

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        mean = np.empty(len(X))
        for one, index, rows in self.visit(X):
            mean[index] = predict_mean(one, rows, include_noise)
        return mean

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        mean, covariance = np.empty(len(X)), np.zeros((len(X), len(X)))
        for one, index, rows in self.visit(X):
            places = np.flatnonzero(index)
            mean[index], covariance[np.ix_(places, places)] = one.joint(rows, include_noise)
        return mean, covariance

    def distribution(self, X: Array, include_noise: bool) -> Distribution:
        """That of rows of one output."""
        ((one, _, rows),) = self.visit(X)
        return predict_distribution(one, rows, include_noise)

    # -- known rows --------------------------------------------------------------------------------

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """Mean and variance (n,) of observations at known rows, see `Posterior`."""
        mean, variance = np.empty((2, len(X)))
        for one, index, rows in self.visit(X):
            mean[index], variance[index] = one.leave_out(rows, targets[index])
        return mean, variance

    # -- the function ------------------------------------------------------------------------------

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d + t) of the derivatives, zero in the indicators."""
        mean, variance = np.zeros((2, *X.shape))
        for one, index, rows in self.visit(X):
            part = one.measure_gradient(rows)
            mean[index, : rows.shape[1]], variance[index, : rows.shape[1]] = part
        return mean, variance

    def draw_functions(self, n: int, rng: np.random.RandomState) -> Draws:
        """Functions from the posterior."""
        common = self.common.draw_functions(n, rng)
        apart = (None if one is None else one.draw_functions(n, rng) for one in self.apart)
        return PartedDraws(common, tuple(apart), n)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs, averaged over the values of all outputs."""
        joins = self.joins
        parts = [one.relevance for one in self.apart if one is not None]
        counts = list(self.counts[~joins])
        if joins.any():
            parts.append(self.common.measure_relevance(joins))
            counts.append(self.counts[joins].sum())
        return Relevance.average(parts, np.array(counts))
