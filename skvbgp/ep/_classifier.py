"""The estimator."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from skvbgp.base import Interval, StrOptions, VariationalClassifier, fit_method
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._learner import EPLearner
from skvbgp.ep._schedules import Schedule
from skvbgp.kernels import as_kernel


class EPDTCClassifier(VariationalClassifier):
    """Sparse Gaussian process classification by expectation propagation (EP-DTC)."""

    _all_finite = "allow-nan"

    _parameter_constraints: dict[str, list[Any]] = {
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "kernel": [object],
        "inducing_inputs": ["array-like", None],
        "approximation": [StrOptions({"dtc", "fitc"})],
        "schedule": [StrOptions({"parallel", "sequential"})],
        "max_ep_iter": [Interval(Integral, 1, None, closed="left")],
        "damping": [Interval(Real, 0, 1, closed="left")],
        "learn_hyperparameters": ["boolean"],
        "n_restarts": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "multi_class": [StrOptions({"one_vs_rest"})],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        n_inducing=100,
        *,
        kernel=None,
        inducing_inputs=None,
        approximation="dtc",
        schedule="parallel",
        max_ep_iter=100,
        damping=0.0,
        learn_hyperparameters=True,
        n_restarts=0,
        max_iter=100,
        tol=1e-5,
        multi_class="one_vs_rest",
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.inducing_inputs = inducing_inputs
        self.approximation = approximation
        self.schedule = schedule
        self.max_ep_iter = max_ep_iter
        self.damping = damping
        self.learn_hyperparameters = learn_hyperparameters
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.multi_class = multi_class
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _learner(self):
        inducing_inputs = self.inducing_inputs
        if inducing_inputs is not None:
            inducing_inputs = check_array(
                inducing_inputs, dtype=np.float64, input_name="inducing_inputs"
            )
        return EPLearner(
            n_inducing=self.n_inducing,
            kernel=None if self.kernel is None else as_kernel(self.kernel),
            inducing_inputs=inducing_inputs,
            approximation=self.approximation,
            schedule=Schedule(self.schedule, self.max_ep_iter, self.damping),
            learn_hyperparameters=self.learn_hyperparameters,
            n_restarts=self.n_restarts,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _inputs(self, X, X_var=None):
        return Inputs(X, np.zeros_like(X) if X_var is None else X_var)

    def _problem_attributes(self, problems):
        return {"n_iter_": problems[0].n_iter}
