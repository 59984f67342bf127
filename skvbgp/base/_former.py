"""The templates of the families that have not moved to learners yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skvbgp._callbacks import FitProgress
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import parallel_map, single_blas_thread, spawn_seeds
from skvbgp.base._classifier import (
    ClassifierState,
    Labels,
    class_codes,
    class_probabilities,
    declared_classes,
)
from skvbgp.base._estimator import DocumentedEstimator, fit_method, restored_on_error


class FormerEstimator(DocumentedEstimator):
    """Template of training over an immutable state, for regressors and classifiers.

    A subclass implements

    - ``_validate(X, y, *, reset, **metadata)``: the data as the other hooks take them, a
      pair of inputs and targets;
    - ``_start(X, y)``: the state before training, from validated data;
    - ``_max_fit_passes(y)``: the largest number of passes over rows with these targets;
    - ``_train(state, X, y, progress)``: the state after training;
    - ``_max_update_passes(state, X, y)``: the largest number of passes when rows are added;
    - ``_update(state, X, y, progress)``: the state after new rows;
    - ``_attributes(state)``: public fitted attributes of a state, as a dict.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    def _fit(self, X, y, **metadata):
        with restored_on_error(self), single_blas_thread:
            return self._fit_validated(X, y, *self._validate(X, y, reset=True, **metadata))

    def _partial_fit(self, X, y, **metadata):
        first = not hasattr(self, "_state")
        with restored_on_error(self), single_blas_thread:
            X_in, y_in = X, y
            X, y = self._validate(X, y, reset=first, **metadata)
            if first:
                return self._fit_validated(X_in, y_in, X, y)
            max_passes = self._max_update_passes(self._state, X, y)
            progress = FitProgress(self, X_in, y_in, max_passes)
            return self._publish(self._update(self._state, X, y, progress), progress)

    def _fit_validated(self, X_in, y_in, X, y):
        start = self._start(X, y)
        progress = FitProgress(self, X_in, y_in, self._max_fit_passes(y))
        return self._publish(self._train(start, X, y, progress), progress)

    def _publish(self, state, progress):
        for name, value in self._attributes(state).items():
            setattr(self, name, value)
        self._state = state
        progress.close()
        return self

    def _reconstruction(self, state: Any) -> dict[str, Any]:
        """What makes an estimator that callbacks can use from a state on the way."""
        return self._attributes(state) | {"_state": state}


class FormerRegressor(RegressorMixin, FormerEstimator):
    """Template of the regressors: fit, partial_fit and predict over an immutable state.

    A subclass implements

    - ``_start(X, y)``: the state before training, from validated data;
    - ``_max_passes(n)``: the largest number of passes over n rows;
    - ``_train(state, X, y, progress)``: the state after training;
    - ``_max_update_passes(state, X, y)``: the largest number of passes when rows are added;
    - ``_update(state, X, y, progress)``: the state after new rows;
    - ``_attributes(state)``: public fitted attributes of a state, as a dict;
    - ``_moments(X, include_noise)``: mean and variance of every row;
    - ``_joint(X, include_noise)``: mean and covariance of all rows.
    """

    # With scikit-learn's metadata routing, a pipeline hands these on to its last step.
    __metadata_request__predict = dict.fromkeys(("return_std", "return_cov", "include_noise"), True)

    @fit_method
    def fit(self, X, y):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs. A memory-mapped array is read in batches.
        y : array-like of shape (n_samples,)
            Training targets.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit(X, y)

    @fit_method
    def partial_fit(self, X, y):
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like of shape (n_samples,)
            New targets.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(X, y)

    def _validate(self, X, y, *, reset: bool):
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def _max_fit_passes(self, y):
        return self._max_passes(len(y))

    def predict(self, X, return_std=False, return_cov=False, *, include_noise=True):
        """Predict the distribution of new observations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        return_cov : bool, default=False
            Whether to return the joint covariance, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predictive mean on the scale of y.
        std : ndarray of shape (n_samples,)
            Standard deviation on the scale of y. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples)
            Covariance on the squared scale of y. Only returned if `return_cov` is True.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, order="C")
        with single_blas_thread:
            if return_cov:
                return self._joint(X, include_noise)
            mean, variance = self._moments(X, include_noise)
        return (mean, np.sqrt(variance)) if return_std else mean

    def sample_y(self, X, n_samples=1, random_state=0, *, include_noise=True):
        """Draw from the joint predictive distribution.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Inputs to draw at.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
            Determines the draws.
        include_noise : bool, default=True
            Whether to draw observations y or the latent function f.

        Returns
        -------
        samples : ndarray of shape (n_samples_X, n_samples)
            On the scale of y.
        """
        mean, cov = self.predict(X, return_cov=True, include_noise=include_noise)
        rng = check_random_state(random_state)
        variances, vectors = np.linalg.eigh(cov)  # rounding may leave it slightly indefinite
        root = vectors * np.sqrt(np.maximum(variances, 0.0))
        return mean[:, None] + root @ rng.standard_normal((len(mean), n_samples))


class FormerClassifier(ClassifierMixin, FormerEstimator):
    """Template of the classifiers: probit models of two classes, one versus the rest for more.

    A subclass has the constructor parameters `random_state`, `warm_start` and `n_jobs`
    and implements

    - ``_learner()``: the `BinaryLearner` of its constructor parameters;
    - ``_problem_attributes(problems)``: public fitted attributes, from the learner's
      states, as a dict.

    It may override

    - ``_all_finite``: "allow-nan" admits missing entries of X;
    - ``_inputs(X, **metadata)``: the learner's inputs, from validated X and whatever its
      own `fit`, `partial_fit` or `predict_proba` hand to ``_fit``, ``_partial_fit`` or
      ``_decisions`` as keywords.

    Two classes train here, and each pass is a subtask for the callbacks. More are trained
    on the active joblib backend, and the whole fit is one subtask.
    """

    _all_finite: bool | str = True

    @fit_method
    def fit(self, X, y):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs.
        y : array-like of shape (n_samples,)
            Class labels, of at least two classes.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit(X, y)

    @fit_method
    def partial_fit(self, X, y, classes=None):
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like of shape (n_samples,)
            Class labels, maybe of a single class.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(X, y, classes=classes)

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class labels.
        """
        return self._labels(self._decisions(X))

    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Those of more than two classes are one-versus-rest
            probabilities, normalised to a sum of one.
        """
        return class_probabilities(self._decisions(X))

    def decision_function(self, X):
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Their normal distribution function is the probability of the second class, or
            of each class versus the rest if there are more than two.
        """
        return self._scores(self._decisions(X))

    # -- what a subclass's own predict, predict_proba and decision_function are made of ----------

    def _decisions(self, X, **metadata) -> Array:
        """Scores of all problems, (n, 1) or (n, k)."""
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, dtype=np.float64, order="C", ensure_all_finite=self._all_finite
        )
        inputs, learner = self._inputs(X, **metadata), self._learner()
        with single_blas_thread:
            scores = [learner.decision(state, inputs) for state in self._state.problems]
        return np.column_stack(scores)

    def _labels(self, decisions: Array) -> Any:
        return self._state.classes[class_codes(decisions)]

    @staticmethod
    def _scores(decisions: Array) -> Array:
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    # -- training --------------------------------------------------------------------------------

    def _inputs(self, X: Array) -> Any:
        return X

    def _validate(self, X, y, *, reset: bool, **metadata):
        """Inputs and labels; the key ``classes``, maybe None, is there for `partial_fit` alone."""
        X, y = validate_data(
            self, X, y, reset=reset, dtype=np.float64, order="C", ensure_all_finite=self._all_finite
        )
        classes = None
        if "classes" in metadata:
            known = self._state.classes if hasattr(self, "_state") else None
            classes = declared_classes(metadata.pop("classes"), known)
        return self._inputs(X, **metadata), Labels.of(y, classes)

    def _start(self, inputs: Any, y: Labels) -> ClassifierState:
        learner, targets = self._learner(), y.problems()
        before = [None] * len(targets)
        if self.warm_start and hasattr(self, "_state"):
            if not np.array_equal(y.classes, self._state.classes):
                raise ValueError(f"warm_start: the classes were {self._state.classes.tolist()}.")
            before = self._state.problems
        seeds = spawn_seeds(self.random_state, len(targets))
        problems = [
            learner.start(inputs, t, int(seed), state)
            for t, seed, state in zip(targets, seeds, before, strict=True)
        ]
        return ClassifierState(y.classes, tuple(problems))

    def _max_fit_passes(self, y: Labels) -> int:
        return self._learner().max_passes(len(y)) if len(y.classes) == 2 else 1

    def _train(self, state: ClassifierState, inputs: Any, y: Labels, progress: Any) -> Any:
        targets = y.problems()
        if len(targets) > 1:
            return self._solve_in_parallel(_train_problem, state, inputs, targets, progress)

        def end_pass(make_state: Callable[[], Any]) -> bool:
            return progress.end_pass(
                lambda: self._reconstruction(ClassifierState(y.classes, (make_state(),)))
            )

        solved = self._learner().train(state.problems[0], inputs, targets[0], end_pass)
        return ClassifierState(y.classes, (solved,))

    def _max_update_passes(self, state: ClassifierState, inputs: Any, y: Labels) -> int:
        return 1

    def _update(self, state: ClassifierState, inputs: Any, y: Labels, progress: Any) -> Any:
        return self._solve_in_parallel(_update_problem, state, inputs, y.problems(), progress)

    def _solve_in_parallel(
        self,
        solve: Callable[..., Any],
        state: ClassifierState,
        inputs: Any,
        targets: list[Array],
        progress: Any,
    ) -> ClassifierState:
        """Solve the problems independently of one another, as one pass."""
        problems = parallel_map(
            solve,
            list(zip(state.problems, targets, strict=True)),
            n_jobs=self.n_jobs,
            shared=(self._learner(), inputs),
        )
        solved = ClassifierState(state.classes, tuple(problems))
        progress.end_pass(lambda: self._reconstruction(solved))
        return solved

    def _attributes(self, state: ClassifierState) -> dict[str, Any]:
        return {"classes_": state.classes, **self._problem_attributes(state.problems)}


def _train_problem(learner: Any, inputs: Any, state: Any, t: Array) -> Any:
    return learner.train(state, inputs, t, lambda make_state: False)


def _update_problem(learner: Any, inputs: Any, state: Any, t: Array) -> Any:
    return learner.update(state, inputs, t)
