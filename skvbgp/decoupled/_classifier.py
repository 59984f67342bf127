"""DecoupledGPClassifier."""

from __future__ import annotations

from skvbgp.base import FormerClassifier
from skvbgp.decoupled._docs import documented
from skvbgp.decoupled._estimator import CONSTRAINTS, DecoupledEstimator, fitted_attributes
from skvbgp.decoupled._learner import Learner


@documented(
    """Gaussian process classification with separate bases for the mean and the covariance.

    A probit model of two classes, and one such model for each class versus the rest if
    there are more. Like :class:`DecoupledGPRegressor`, it learns online and grows with the
    data [Cheng2017]_.
    """,
    regression=False,
)
class DecoupledGPClassifier(DecoupledEstimator, FormerClassifier):
    _parameter_constraints: dict = CONSTRAINTS

    def __init__(
        self,
        n_mean_basis=2000,
        n_cov_basis=200,
        *,
        parametrization="orthogonal",
        kernel=None,
        generalized_length_scales=True,
        basis_growth=128,
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=1024,
        learning_rate=0.05,
        tol=1e-5,
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
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _learner(self) -> Learner:
        return self._make_learner("probit", normalize_y=False)

    def _problem_attributes(self, problems):
        each = [fitted_attributes(state) for state in problems]
        attributes = {name: [one[name] for one in each] for name in each[0]}
        attributes["n_iter_"] = max(attributes["n_iter_"])
        attributes["n_samples_seen_"] = problems[0].replay.n_seen
        return attributes
