"""From fit to a learner's state, of all estimators; and fit and predict of the regressors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval as Interval
from sklearn.utils._param_validation import RealNotInt as RealNotInt
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils.validation import _num_samples as _num_samples
from sklearn.utils.validation import check_is_fitted

from skvbgp._callbacks import TEARDOWN_ATTRIBUTES, FitProgress
from skvbgp._core.collections import is_collection, refuse_collection
from skvbgp._core.draws import draw_normal
from skvbgp._core.journal import Journal, use_journal
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._optim.ascent import EndPass
from skvbgp.base._checkpoints import keep_journal, refuse_checkpoint
from skvbgp.base._distributions import PredictsDistributions
from skvbgp.base._lazy import lazily
from skvbgp.base._learner import Learner
from skvbgp.base._outputs import OutputsLearner
from skvbgp.base._rows import ReadsRows
from skvbgp.base._validation import reading

#: The constraint of the parameter ``categorical_features``.
CATEGORIES = {"categorical_features": ["array-like", StrOptions({"from_dtype"}), None]}
#: Decorator of `fit` and `partial_fit`: checks the constructor parameters, ends the callbacks.
fit_method = _fit_context(prefer_skip_nested_validation=True)


def keep(estimator: Any, arguments: dict[str, Any]) -> None:
    """Set the attributes that hold the arguments of a constructor, given its ``locals()``."""
    vars(estimator).update({k: v for k, v in arguments.items() if k != "self"})


class DocumentedEstimator(CallbackSupportMixin, BaseEstimator):
    """Callback support, and a link from the HTML representation to the documentation."""

    _doc_link_module = "skvbgp"
    _doc_link_template = (
        "https://skvbgp.readthedocs.io/en/stable/api/generated/"
        "{estimator_module}.{estimator_name}.html"
    )


class VariationalEstimator(DocumentedEstimator):
    """Template of training over an immutable state, for all estimators.

    A subclass implements

    - ``_learner()``: the `Learner` of its constructor parameters;
    - ``_prepare(X, y, *, reset, **metadata)``: the data as the learner takes them, a pair of
      inputs and targets;
    - ``_check_collections()``, if its learner takes `ShardedColumns` for them: it returns.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    _learner: Callable[[], Any]
    _prepare: Callable[..., tuple[Any, Any]]
    _state: Any
    random_state: Any  # a constructor parameter of every estimator

    def _full_learner(self) -> Any:
        """The learner of all that there is to learn."""
        return self._learner()

    def _learns_anew(self, inputs: Any, targets: Any) -> bool:
        """Whether these, of `partial_fit`, are all rows, with which training begins again."""
        return False

    def _fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=True, **metadata)
            before = self._find_before()
            with keep_journal(self, inputs, targets, before) as journal:
                return self._train_anew(X, y, inputs, targets, before, journal)

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        refuse_checkpoint(self)
        first = not hasattr(self, "_state")
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=first, **metadata)
            if first or self._learns_anew(inputs, targets):
                return self._train_anew(X, y, inputs, targets, self._find_before())
            learner, state = self._full_learner(), self._state
            everything = learner.rows_to_restart(state, inputs, targets)
            if everything is not None:
                all_inputs, all_targets = everything
                return self._train_anew(X, y, all_inputs, all_targets, None)
            progress = FitProgress(self, X, y, learner.max_update_passes(state, inputs, targets))
            end_pass = self._end_pass(learner, progress)
            return self._publish(
                learner, learner.update(state, inputs, targets, end_pass), progress
            )

    def _find_before(self) -> Any:
        """The state that training goes on from, if there is one and it is asked for."""
        return getattr(self, "_state", None) if getattr(self, "warm_start", False) else None

    def _look_for_collections(self, *data: Any) -> None:
        if any(is_collection(values) for values in data):
            self._check_collections()

    def _check_collections(self) -> None:
        """Refuse to learn from Dask collections, where it cannot be done."""
        raise TypeError(
            f"{type(self).__name__} cannot be trained on Dask collections: give it rows in "
            "memory, or chunk after chunk to partial_fit."
        )

    def _train_anew(
        self,
        X: Any,
        y: Any,
        inputs: Any,
        targets: Any,
        before: Any,
        journal: Journal | None = None,
    ) -> Self:
        """Train on validated data; X and y are the user's own, for the callbacks."""
        learner, rng = self._full_learner(), check_random_state(self.random_state)
        if journal is not None:
            journal.begin_fit(rng)
        with use_journal(journal):
            start = learner.start(inputs, targets, rng, before)
        progress = FitProgress(self, X, y, learner.max_passes(targets))
        end_pass = self._end_pass(learner, progress, journal)
        with use_journal(journal):
            state = learner.train(start, inputs, targets, end_pass)
        return self._publish(learner, state, progress)

    def _end_pass(
        self, learner: Learner, progress: FitProgress, journal: Journal | None = None
    ) -> EndPass:
        def end_pass(make_state: Callable[[], Any]) -> bool:
            def reconstruction() -> dict[str, Any]:
                state = make_state()
                return learner.attributes(state) | {"_state": state}

            if journal is None:
                return progress.end_pass(reconstruction)
            with use_journal(None):
                if journal.repeats:
                    return progress.repeat_pass(journal.repeat_pass())
                stop = progress.end_pass(reconstruction)
            journal.end_pass(stop)
            return stop

        return end_pass

    def _publish(self, learner: Learner, state: Any, progress: FitProgress) -> Self:
        attributes = learner.attributes(state)
        earlier: set[str] = getattr(self, "_published", set())
        for name in (earlier - attributes.keys()) & vars(self).keys():
            delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)
        self._published, self._state = set(attributes), state
        progress.close()
        return self


class VariationalRegressor(RegressorMixin, PredictsDistributions, ReadsRows, VariationalEstimator):
    """Template of the regressors.

    ``_learner()`` is a `RegressionLearner` of one output, which takes `Targets`. How X and y are
    read is in `ReadsRows`, of which a subclass may override some; `partial_fit` has ``_prepare``
    know that it ``streams`` rows.
    """

    # With scikit-learn's metadata routing, a pipeline hands these on to its last step.
    __metadata_request__predict = dict.fromkeys(
        ("return_std", "return_cov", "include_noise", "y_var"), True
    )

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. A memory-mapped array is read in batches. An estimator that takes Dask
            arrays and DataFrames, as the user guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            Training targets. Each of several outputs has a model of its own; where it is NaN, it
            was not observed. A Dask collection has one output.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out (and has the
            other rows copied). None is 1.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, on the squared scale of y. It adds to the variance
            that is learned. None is 0.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        TypeError
            If weights or variances are given with a Dask collection.
        ValueError
            If a weight or variance is negative or not finite, if all weights are zero, if
            variances are given for what has no Gaussian noise, or if an output was never observed.
        """
        return self._fit(X, y, sample_weight=sample_weight, y_var=y_var)

    @fit_method
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            New inputs; a single row is enough. Rows on Dask's workers join rows there only.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            New targets, of as many outputs as before.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`, or if a stream has forgotten all values of an output.
        """
        return self._partial_fit(X, y, sample_weight=sample_weight, y_var=y_var, streams=True)

    @lazily(lambda estimator, options: ["mean", "std"])
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        include_noise: bool = True,
        y_var: Any = None,
    ) -> Any:
        """Predict the distribution of new observations.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at, NaN where an entry is missing, if `fit` takes that as well. A
            row's prediction does not depend on the other rows. Those of a Dask array or DataFrame
            are lazy arrays or series.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        return_cov : bool, default=False
            Whether to return the joint covariance, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise besides the learned one, on the squared scale of y.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean on the scale of y.
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Standard deviation on the scale of y. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Covariance on the squared scale of y. Only returned if `return_cov` is True.

        Raises
        ------
        TypeError
            If `y_var` is given for a Dask collection.
        ValueError
            If `y_var` is negative, or given where `include_noise` is False.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        X = self._check_inputs(X)
        known = self._read_noise(y_var, len(X), include_noise=include_noise)
        posterior = self._posterior()
        with single_blas_thread:
            if return_cov:
                mean, cov = posterior.joint(X, include_noise)
                if known is not None:
                    every = np.arange(len(X))
                    cov[every, every] += known
                return mean, cov
            mean, variance = posterior.moments(X, include_noise)
        if known is not None:
            variance = variance + known
        return (mean, np.sqrt(variance)) if return_std else mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        refuse_collection(X, "score")
        return super().score(X, y, sample_weight)

    def _check_inputs(self, X: Any) -> Array:
        """X as the posterior takes it."""
        check_is_fitted(self)
        refuse_collection(X, "This method")
        with reading(X):
            return self._read(X, reset=False)

    def _posterior(self) -> Any:
        """The posterior of all that was learned, by parameters that may have changed since."""
        self._validate_params()
        with single_blas_thread:  # several would wait for each other
            return self._full_learner().posterior(self._state)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True
    ) -> Array:
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
        if mean.ndim == 1:
            return draw_normal(mean, cov, n_samples, rng)
        draws = [draw_normal(m, C.T, n_samples, rng) for m, C in zip(mean.T, cov.T, strict=True)]
        return np.stack(draws, axis=1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _full_learner(self) -> Any:
        single = self._learner()
        return single if self.n_outputs_ == 1 else OutputsLearner(single)


@contextmanager
def restored_on_error(estimator: Any) -> Iterator[None]:
    """Undo every change of the estimator's attributes if the block fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        now = vars(estimator)
        in_use = {name: now[name] for name in TEARDOWN_ATTRIBUTES if name in now}
        now.clear()
        now.update(before | in_use)
        raise
