"""DecoupledGPRegressor."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skvbgp._core.parallel import spawn_seeds
from skvbgp.base import FormerRegressor, StrOptions, in_tiles
from skvbgp.decoupled._docs import documented
from skvbgp.decoupled._estimator import CONSTRAINTS, DecoupledEstimator, fitted_attributes
from skvbgp.decoupled._learner import Learner


@documented(
    """Gaussian process regression with separate bases for the mean and the covariance.

    The posterior mean has a basis of its own, at a cost linear in its size, so that it may
    be many times larger than that of the covariance, whose cost is cubic. Everything is
    learned online, from mini-batches: the model starts from the first batch and grows with
    the data, in `fit` as in `partial_fit` [Cheng2017]_.
    """,
    regression=True,
)
class DecoupledGPRegressor(DecoupledEstimator, FormerRegressor):
    _parameter_constraints: dict = {
        **CONSTRAINTS,
        "likelihood": [StrOptions({"gaussian", "student_t", "poisson"})],
        "normalize_y": ["boolean"],
    }

    def __init__(
        self,
        n_mean_basis=2000,
        n_cov_basis=200,
        *,
        parametrization="orthogonal",
        kernel=None,
        generalized_length_scales=True,
        basis_growth=128,
        likelihood="gaussian",
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=1024,
        learning_rate=0.05,
        tol=1e-5,
        normalize_y=True,
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        self.n_mean_basis = n_mean_basis
        self.n_cov_basis = n_cov_basis
        self.parametrization = parametrization
        self.kernel = kernel
        self.generalized_length_scales = generalized_length_scales
        self.basis_growth = basis_growth
        self.likelihood = likelihood
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood == "poisson"
        return tags

    def _learner(self) -> Learner:
        normalize_y = self.normalize_y and self.likelihood != "poisson"
        return self._make_learner(self.likelihood, normalize_y)

    # -- training --------------------------------------------------------------------------------

    def _validate(self, X, y, *, reset):
        X, y = super()._validate(X, y, reset=reset)
        if self.likelihood == "poisson" and (np.any(y < 0.0) or np.any(y != np.round(y))):
            raise ValueError('likelihood="poisson" needs y of non-negative whole numbers.')
        return X, y

    def _start(self, X, y):
        before = getattr(self, "_state", None) if self.warm_start else None
        (seed,) = spawn_seeds(self.random_state, 1)
        return self._learner().start(X, y, int(seed), before)

    def _max_passes(self, n):
        return self._learner().max_passes(n)

    def _train(self, state, X, y, progress):
        def end_pass(make_state):
            return progress.end_pass(lambda: self._reconstruction(make_state()))

        return self._learner().train(state, X, y, end_pass)

    def _max_update_passes(self, state, X, y):
        return 1

    def _update(self, state, X, y, progress):
        state = self._learner().update(state, X, y)
        progress.end_pass(lambda: self._reconstruction(state))
        return state

    def _attributes(self, state):
        attributes = fitted_attributes(state)
        noise = state.parameters.noise
        if len(noise):
            variance = state.model.likelihood.noise_variance(noise)
            attributes["noise_variance_"] = variance * state.target.unit**2
        return attributes

    # -- prediction ------------------------------------------------------------------------------

    def _moments(self, X, include_noise):
        state, posterior = self._state, self._state.posterior
        likelihood, noise = state.model.likelihood, state.parameters.noise

        def moments(X):
            mean, variance = posterior.moments(state.coordinates.scaled(X))
            if include_noise:
                mean, variance = likelihood.moments(noise, mean, variance)
            return state.target.original(mean), variance * state.target.unit**2

        return in_tiles(moments, X)

    def _joint(self, X, include_noise):
        state = self._state
        mean, covariance = state.posterior.joint(state.coordinates.scaled(X))
        if include_noise:
            likelihood = state.model.likelihood
            mean, covariance = likelihood.joint(state.parameters.noise, mean, covariance)
        return state.target.original(mean), covariance * state.target.unit**2

    def sample_y(self, X, n_samples=1, random_state=0, *, include_noise=True):
        rng = check_random_state(random_state)
        f = super().sample_y(X, n_samples, rng, include_noise=False)
        if not include_noise:
            return f
        state = self._state
        y = state.model.likelihood.sample(state.parameters.noise, state.target.scaled(f), rng)
        return state.target.original(y)
