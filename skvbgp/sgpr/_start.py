"""Constructor parameters of the regressors, and the state they start from."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale, check_unit
from skvbgp.base import (
    FormerRegressor,
    Interval,
    StrOptions,
    as_vector,
    choose_inducing_inputs,
    subsample,
)
from skvbgp.kernels import Kernel
from skvbgp.sgpr._bound import HyperPrior, Model, Prior
from skvbgp.sgpr._data import Coordinates, Target
from skvbgp.sgpr._draws import ClosedForm
from skvbgp.sgpr._memory import Memory
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._state import State


class StartingRegressor(FormerRegressor):
    """Turns constructor parameters and data into a state before training."""

    _parameter_constraints: dict[str, list[Any]] = {
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "inducing_inputs": ["array-like", None],
        "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "signal_std": [Interval(Real, 0, None, closed="neither"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "hyperparameter_variance": [Interval(Real, 0, None, closed="neither"), None],
        "prior_mean": [Interval(Real, None, None, closed="neither"), "array-like"],
        "prior_variance": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "solver": [StrOptions({"auto", "exact", "collapsed", "stochastic"})],
        "psi": [StrOptions({"auto", "closed_form", "sampled"})],
        "learn_hyperparameters": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    #: Whether rows of one group have correlated noise.
    _correlated = False

    def __init__(
        self,
        n_inducing=500,
        *,
        inducing_inputs=None,
        length_scale=None,
        signal_std=None,
        noise_variance=None,
        hyperparameter_variance=None,
        prior_mean=0.0,
        prior_variance=4.0,
        solver="auto",
        psi="auto",
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=2048,
        learning_rate=0.03,
        tol=1e-5,
        normalize_y=True,
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        self.n_inducing = n_inducing
        self.inducing_inputs = inducing_inputs
        self.length_scale = length_scale
        self.signal_std = signal_std
        self.noise_variance = noise_variance
        self.hyperparameter_variance = hyperparameter_variance
        self.prior_mean = prior_mean
        self.prior_variance = prior_variance
        self.solver = solver
        self.psi = psi
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _start_noise_kernel(
        self, scale: Array, noise_variance: float
    ) -> tuple[Kernel | None, bool]:
        """Noise kernel for inputs of spread ``scale``, or None.

        Also whether it is the user's own, whose amplitude is on y's scale like
        ``noise_variance`` (if that is given) rather than on the scaled target's.
        """
        return None, False

    def _start(self, X: Array, y: Array, *, cold: bool = False) -> State:
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        sample = subsample(X, rng)
        summary = RunningScale.of(y[:, None])
        target = self._target(summary)
        is_warm = self.warm_start and not cold and hasattr(self, "_state")
        if is_warm:
            model, parameters = self._warm_start(self._state, X.shape[1], target)
        else:
            model, parameters = self._cold_start(sample, target, rng)
        return State(
            model=model,
            parameters=parameters,
            memory=Memory.empty(Prior(parameters)),
            reference=target,
            target=target,
            summary=summary,
            draw_rule=ClosedForm(),
            seed=seed,
            is_warm=is_warm,
        )

    def _cold_start(
        self, sample: Array, target: Target, rng: np.random.RandomState
    ) -> tuple[Model, Parameters]:
        """Model and parameters from the data, or as the user gives them."""
        coordinates, U = self._start_inputs(sample, rng)
        d = sample.shape[1]
        nu = np.full(d, 2.0 / np.sqrt(d))
        if self.length_scale is not None:
            length_scale = as_vector(self.length_scale, d, "length_scale", positive=True)
            nu = coordinates.scale / length_scale
        alpha, noise_variance = 1.0, 0.1
        if self.signal_std is not None:
            alpha = self.signal_std / target.unit
        if self.noise_variance is not None:
            noise_variance = self.noise_variance / target.unit**2
        xi, beta = 1e-2 * nu**2, 1e-2 * alpha**2
        if self.hyperparameter_variance is not None:
            xi = self.hyperparameter_variance * coordinates.scale**2
            beta = self.hyperparameter_variance / target.unit**2
        kernel, given = self._start_noise_kernel(coordinates.scale, noise_variance)
        on_own_scale = given and self.noise_variance is not None
        noise_scale = 1.0 / target.unit**2 if on_own_scale else 1.0
        theta = np.empty(0) if kernel is None else kernel.theta
        hyperprior = HyperPrior(
            as_vector(self.prior_mean, d + 1, "prior_mean", positive=False),
            as_vector(self.prior_variance, d + 1, "prior_variance", positive=True),
        )
        parameters = Parameters(nu, xi, alpha, beta, noise_variance, theta, U)
        _check_range(parameters)
        return Model(coordinates, hyperprior, kernel, self._correlated, noise_scale), parameters

    def _warm_start(self, before: State, d: int, target: Target) -> tuple[Model, Parameters]:
        """Model and parameters of the fit before, which mean the same on y's own scale."""
        p, model = before.parameters, before.model
        if p.U.shape[1] != d:
            raise ValueError(
                f"warm_start: X has {d} features, but the fit before had {p.U.shape[1]}."
            )
        ratio = before.target.unit / target.unit
        p = replace(
            p,
            alpha=p.alpha * ratio,
            beta=p.beta * ratio**2,
            noise_variance=p.noise_variance * ratio**2,
        )
        return replace(model, noise_scale=model.noise_scale * ratio**2), p

    def _start_inputs(self, sample: Array, rng: np.random.RandomState) -> tuple[Coordinates, Array]:
        """Coordinates, and inducing inputs in them.

        The frame is that of the given inducing inputs, if there are any: it does not
        depend on which rows come first in a stream.
        """
        if self.inducing_inputs is None:
            coordinates = Coordinates.of(sample)
            check_unit(coordinates.scale, "X")
            return coordinates, choose_inducing_inputs(
                coordinates.scaled(sample), self.n_inducing, rng
            )
        given = check_array(self.inducing_inputs, dtype=np.float64, input_name="inducing_inputs")
        if given.shape[1] != sample.shape[1]:
            raise ValueError(
                f"inducing_inputs has {given.shape[1]} columns, but X has {sample.shape[1]}."
            )
        coordinates = Coordinates.of(given)
        check_unit(coordinates.scale, "inducing_inputs")
        return coordinates, coordinates.scaled(given)

    def _target(self, summary: RunningScale) -> Target:
        """The frame of y: its unit is the spread, its origin the mean or zero."""
        unit = float(summary.unit[0])
        mean = float(summary.mean[0]) if self.normalize_y else 0.0
        check_unit(unit, "y")
        return Target(mean, unit)


def _check_range(parameters: Parameters) -> None:
    """Refuse starting values that double precision cannot tell apart from a limit."""
    values = [*parameters.nu, *parameters.xi, parameters.alpha, parameters.beta]
    values.append(parameters.noise_variance)
    with np.errstate(over="ignore"):
        ratio = parameters.second_moment / parameters.noise_variance
    if not (np.isfinite(values).all() and np.all(np.array(values) > 0.0) and ratio < 1e18):
        raise ValueError(
            "The starting length_scale, signal_std, noise_variance or hyperparameter_variance "
            "is out of range for these data: it is too far from their spread, or the noise "
            "is too small for the signal. Rescale X or y, or leave it to the data."
        )
