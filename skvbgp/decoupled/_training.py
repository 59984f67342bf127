"""The online procedure: steps of stochastic ascent, with bases that grow on the way.

Algorithm 1 of [Cheng2017]_: every batch brings new points for the bases until they have their
sizes, then everything is updated. One class takes the steps of `fit` and of `partial_fit`.
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp.decoupled._bound import Evaluation, Model
from skvbgp.decoupled._parameters import Parameters

#: Points of the mean basis that stand for all of them in the KL divergence of one step.
_RESIDUAL_SAMPLE = 256
#: Steps of the natural gradient on q(u): the first, and the last.
_NATURAL_RATES = (0.1, 0.01)
#: Step sizes of Adam relative to the learning rate.
_RELATIVE_STEPS = {"alpha_log_c": 0.5, "beta_log_c": 0.5, "noise": 1.5}
#: That of a basis point in length scales of the kernel, and at most in scaled coordinates.
_LOCATION_STEP, _MAX_LOCATION_STEP = 0.5, 2.0
#: What learn_hyperparameters=False keeps.
_HYPERPARAMETERS = ("theta", "noise", "alpha", "alpha_log_c", "beta", "beta_log_c")
#: Diagonal of L0 at a new point.
_START_L0 = 1.0
#: Limits of the log multipliers.
_MAX_LOG_C = 2.0


class Ascent:
    """A run of stochastic steps; it owns its parameters until it is read out.

    Parameters
    ----------
    model : Model
    parameters : Parameters
    q : WhitenedGaussian or None
    adam : AdamState
    sizes : tuple of two ints
        Final sizes of the mean and of the covariance basis.
    growth : int
        Largest number of points a batch adds to each.
    learning_rate : float
    learn_hyperparameters : bool
    rng : RandomState
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        q: WhitenedGaussian | None,
        adam: AdamState,
        *,
        sizes: tuple[int, int],
        growth: int,
        learning_rate: float,
        learn_hyperparameters: bool,
        rng: np.random.RandomState,
    ) -> None:
        self.model, self.parameters, self.q, self.adam = model, parameters, q, adam
        self._sizes, self._growth, self._learning_rate = sizes, growth, learning_rate
        self._frozen = () if learn_hyperparameters else _HYPERPARAMETERS
        self._rng = rng

    @property
    def room(self) -> int:
        """Points that the larger of the two bases still lacks."""
        p = self.parameters
        return max(self._sizes[0] - len(p.alpha), self._sizes[1] - len(p.beta))

    def grow(self, X: Array) -> int:
        """Add the first of some scaled rows to the bases; how many were used."""
        p = self.parameters
        new = [
            X[: max(0, min(self._growth, size - present))]
            for size, present in zip(self._sizes, (len(p.alpha), len(p.beta)), strict=True)
        ]
        if not any(map(len, new)):
            return 0

        def grown(parameters: Parameters, points: list[Array], L0: float) -> Parameters:
            new_L0 = L0 if self.model.is_direct else None
            return parameters.plus_points(
                *points, generalized=self.model.generalized, new_L0=new_L0
            )

        nothing = [np.zeros_like(points) for points in new]
        moments = [
            grown(p.unpack(moment), nothing, 0.0).pack()
            for moment in (self.adam.first, self.adam.second)
        ]
        self.adam = AdamState(moments[0], moments[1], self.adam.n_steps)
        self.parameters = grown(p, new, _START_L0)
        if self.q is not None:
            self.q = _plus_prior(self.q, len(new[1]))
        return max(map(len, new))

    def step(self, X: Array, y: Array, weight: float, annealing: float) -> float:
        """One step on everything, at scaled rows; the estimate of the bound before it."""
        p, m = self.parameters, len(self.parameters.alpha)
        sample = np.arange(m)
        if m > _RESIDUAL_SAMPLE:
            sample = self._rng.choice(m, _RESIDUAL_SAMPLE, replace=False)
        evaluation = Evaluation(self.model, p, self.q)
        value, gradient, cotangents = evaluation.evaluate(X, y, weight, sample)
        if self._q_is_prior and self.model.likelihood.conjugate:
            # Adam would remember the gradients at the prior's q(u), which are huge
            self.q = evaluation.natural_step(cotangents, 1.0)
            evaluation = Evaluation(self.model, p, self.q)
            _, gradient, cotangents = evaluation.evaluate(X, y, weight, sample)
        gradient.theta[:] += self.model.log_prior(p.theta)[1]
        rate = max(_NATURAL_RATES[0] * annealing, _NATURAL_RATES[1])
        if self.model.likelihood.conjugate:  # averages the first batches, then one pass
            rate = max(rate, 1.0 / (self.adam.n_steps + 2.0), 1.0 / weight)
        self.q = evaluation.natural_step(cotangents, rate)
        sizes = p.spread(self._relative_steps())
        x, self.adam = adam_ascent(
            p.pack(), gradient.pack(), self.adam, self._learning_rate * annealing * sizes
        )
        self.parameters = self._within_bounds(p.unpack(x))
        return value

    @property
    def _q_is_prior(self) -> bool:
        return self.q is not None and not self.q.shift.any()

    def _relative_steps(self) -> dict[str, float | Array]:
        """Step sizes of Adam relative to the learning rate, by field."""
        unit = self.model.kernel.with_theta(self.parameters.theta).length_unit
        location = np.minimum(_LOCATION_STEP * unit, _MAX_LOCATION_STEP)
        frozen = dict.fromkeys(self._frozen, 0.0)
        return {**_RELATIVE_STEPS, "alpha": location, "beta": location, **frozen}

    def _within_bounds(self, p: Parameters) -> Parameters:
        kernel, likelihood = self.model.kernel, self.model.likelihood
        np.clip(p.theta, *kernel.bounds.T, out=p.theta)
        if len(p.noise):
            np.clip(p.noise, *np.array(likelihood.bounds).T, out=p.noise)
        for log_c in (p.alpha_log_c, p.beta_log_c):
            np.clip(log_c, -_MAX_LOG_C, _MAX_LOG_C, out=log_c)
        return p


def _plus_prior(q: WhitenedGaussian, k: int) -> WhitenedGaussian:
    """q(u) with k more variables, which are as their prior says."""
    m = len(q.shift)
    precision = np.eye(m + k)
    precision[:m, :m] = q.precision
    return WhitenedGaussian(precision, np.append(q.shift, np.zeros(k)))
