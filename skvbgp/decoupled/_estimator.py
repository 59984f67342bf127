"""What the regressor and the classifier share: constructor parameters and fitted attributes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from skvbgp.base import Interval, StrOptions
from skvbgp.decoupled._learner import Learner
from skvbgp.decoupled._state import State

CONSTRAINTS: dict[str, list[Any]] = {
    "n_mean_basis": [Interval(Integral, 0, None, closed="left")],
    "n_cov_basis": [Interval(Integral, 1, None, closed="left")],
    "parametrization": [StrOptions({"orthogonal", "hybrid", "decoupled"})],
    "kernel": "no_validation",  # as_kernel says what it takes
    "generalized_length_scales": ["boolean"],
    "basis_growth": [Interval(Integral, 1, None, closed="left")],
    "learn_hyperparameters": ["boolean"],
    "max_iter": [Interval(Integral, 1, None, closed="left"), None],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
}


class DecoupledEstimator:
    """Mixin that turns constructor parameters into a `Learner`, and states into attributes."""

    def _make_learner(self, likelihood: str, normalize_y: bool) -> Learner:
        return Learner(
            likelihood=likelihood,
            n_mean_basis=self.n_mean_basis,
            n_cov_basis=self.n_cov_basis,
            parametrization=self.parametrization,
            kernel=self.kernel,
            generalized_length_scales=self.generalized_length_scales,
            basis_growth=self.basis_growth,
            learn_hyperparameters=self.learn_hyperparameters,
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tol=self.tol,
            normalize_y=normalize_y,
        )


def fitted_attributes(state: State) -> dict[str, Any]:
    """Public attributes of a model of one function."""
    p, coordinates = state.parameters, state.coordinates
    kernel = state.model.kernel.with_theta(p.theta)
    return {
        "kernel_": kernel.original(coordinates, state.target.unit),
        "mean_basis_": coordinates.original(p.alpha),
        "cov_basis_": coordinates.original(p.beta),
        "lower_bound_": state.lower_bounds[-1],
        "lower_bounds_": list(state.lower_bounds),
        "n_iter_": state.n_iter,
        "n_samples_seen_": state.replay.n_seen,
    }
