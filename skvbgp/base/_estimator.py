"""From fit and partial_fit to a learner's state: the templates of all estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils import _safe_indexing as _safe_indexing
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._param_validation import RealNotInt as RealNotInt
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils.validation import _num_samples as _num_samples

from skvbgp._callbacks import TEARDOWN_ATTRIBUTES, FitProgress
from skvbgp._core.collections import in_memory, is_collection
from skvbgp._core.journal import Journal, use_journal
from skvbgp._core.parallel import single_blas_thread
from skvbgp._optim.ascent import EndPass
from skvbgp.base._checkpoints import keep_journal, refuse_checkpoint
from skvbgp.base._classes import ScoresClasses
from skvbgp.base._distributions import PredictsDistributions
from skvbgp.base._labels import ReadsLabels
from skvbgp.base._learner import Learner
from skvbgp.base._outputs import OutputsLearner
from skvbgp.base._rows import ReadsRows
from skvbgp.base._start import START_ROWS
from skvbgp.base._validation import as_weights, reading
from skvbgp.kernels._params import change_kernel, group_params, list_params, name_entries

#: Decorator of `fit` and `partial_fit`: checks the constructor parameters, ends the callbacks.
fit_method = _fit_context(prefer_skip_nested_validation=True)


class Interval(_Interval):
    """Numbers of an interval, to which Python counts True and False: they are none here."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)


#: The constraint of the parameter ``categorical_features``.
CATEGORIES = {"categorical_features": ["array-like", StrOptions({"from_dtype"}), None]}
#: That of the parameter ``output_covariance``.
JOINT_OUTPUTS: dict[str, Any] = {"output_covariance": [StrOptions({"learned"}), None]}
#: Those of what most estimators learn by.
LEARNING: dict[str, Any] = {
    "learn_hyperparameters": ["boolean"],
    "max_iter": [Interval(Integral, 1, None, closed="left"), None],
    "tol": [Interval(Real, 0, None, closed="left")],
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
}


def keep(estimator: Any, arguments: dict[str, Any]) -> None:
    """Set the attributes that hold the arguments of a constructor, given its ``locals()``."""
    vars(estimator).update({k: v for k, v in arguments.items() if k != "self"})


class VariationalEstimator(CallbackSupportMixin, BaseEstimator):
    """Template of training over an immutable state, for all estimators.

    A subclass implements

    - ``_learner()``: the `Learner` of its constructor parameters;
    - ``_prepare(X, y, *, reset, **metadata)``: the data as the learner takes them, a pair of
      inputs and targets;
    - ``_check_collections()``, if its learner takes `ShardedColumns` for them: it returns.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    _doc_link_module = "skvbgp"  # of the HTML representation
    _doc_link_template = (
        "https://skvbgp.readthedocs.io/en/stable/api/generated/"
        "{estimator_module}.{estimator_name}.html"
    )

    _learner: Callable[[], Any]
    _prepare: Callable[..., tuple[Any, Any]]
    _state: Any
    random_state: Any  # a constructor parameter of every estimator
    n_samples_seen_: int
    #: Fitted attributes that are computed when they are read, which may take seconds.
    _measured_attributes: frozenset[str] = frozenset()

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Scikit-learn's own, which reads the constructor's signature again in every call."""
        names: list[str] = super()._get_param_names()
        return names

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters for this estimator.

        Parameters
        ----------
        deep : bool, default=True
            Also those of kernels: ``kernel__length_scale``, of a sum or product
            ``kernel__k1__length_scale``, of a list ``kernel__name__length_scale``.

        Returns
        -------
        params : dict
            Parameter names mapped to their values.
        """
        params: dict[str, Any] = super().get_params(deep=False)
        return list_params(params) if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set the parameters of this estimator.

        Those of a kernel give the estimator another kernel, as kernels are never changed (but
        scikit-learn's own are): whoever has the same one keeps it, and so does what was learned.

        Parameters
        ----------
        **params : dict
            Estimator parameters, by the names that :meth:`get_params` has.

        Returns
        -------
        self : estimator instance
            Estimator instance.
        """
        known = self._get_param_names()
        inner = {key for key in params if "__" in key and key.partition("__")[0] in known}
        super().set_params(**{key: value for key, value in params.items() if key not in inner})
        for name, own in group_params({key: params[key] for key in inner}).items():
            setattr(self, name, change_kernel(getattr(self, name), own))
        return self

    def __dir__(self) -> list[str]:
        """Scikit-learn's own reads every attribute, also those that are measured when it does."""
        slow, is_fitted = self._measured_attributes, hasattr(self, "_state")
        names = object.__dir__(self)
        return [name for name in names if (is_fitted if name in slow else hasattr(self, name))]

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Scikit-learn's own, without those."""
        names = {name for name in dir(self) if name.endswith("_") and not name.startswith("_")}
        known = {name: getattr(self, name) for name in names - self._measured_attributes}
        table = BaseEstimator._get_fitted_attr_html(SimpleNamespace(**known), doc_link)
        table.estimator_class = type(self)
        return table

    def _get_params_html(self, deep: bool = True, doc_link: str = "") -> Any:
        """Scikit-learn's own, without the parameters of kernels in lists: there may be hundreds."""
        has_lists = any(map(name_entries, self.get_params(deep=False).values()))
        return super()._get_params_html(deep and not has_lists, doc_link)

    def _full_learner(self) -> Any:
        """The learner of all that there is to learn."""
        return self._learner()

    def _learns_anew(self, inputs: Any, targets: Any) -> bool:
        """Whether these, of `partial_fit`, are all rows, with which training begins again."""
        return False

    def _fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        known = getattr(self, "n_features_in_", None)
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=True, **metadata)
            before, d = self._find_before(targets), self.n_features_in_
            if before is not None and d != known:
                raise ValueError(f"warm_start: X has {d} features, but the fit before had {known}.")
            with keep_journal(self, inputs, targets, before) as journal:
                given = _list_given(X, y, **metadata)
                return self._train_anew(given, inputs, targets, before, journal)

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        refuse_checkpoint(self)
        first = not hasattr(self, "_state")
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=first, streams=True, **metadata)
            given = _list_given(X, y, **metadata)
            if first or self._learns_anew(inputs, targets):
                # of few rows, nothing is kept: not even the units and the inducing inputs
                goes_on = not first and self.n_samples_seen_ >= START_ROWS
                before = self._find_before(targets) if goes_on else None
                return self._train_anew(given, inputs, targets, before)
            learner, state = self._full_learner(), self._state
            everything = learner.rows_to_restart(state, inputs, targets)
            if everything is not None:
                all_inputs, all_targets = everything
                return self._train_anew(given, all_inputs, all_targets, None)
            progress = FitProgress(self, given, learner.max_update_passes(state, inputs, targets))
            end_pass = self._end_pass(learner, progress)
            return self._publish(
                learner, learner.update(state, inputs, targets, end_pass), progress
            )

    def _find_before(self, targets: Any) -> Any:
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
        given: dict[str, Any],
        inputs: Any,
        targets: Any,
        before: Any,
        journal: Journal | None = None,
    ) -> Self:
        """Train on validated data; what the user has given is for the callbacks."""
        learner, rng = self._full_learner(), check_random_state(self.random_state)
        if journal is not None:
            journal.begin_fit(rng)
        with use_journal(journal):
            start = learner.start(inputs, targets, rng, before)
        progress = FitProgress(self, given, learner.max_passes(targets))
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
        self._take(learner, state)
        progress.close()
        return self

    def _take(self, learner: Learner, state: Any) -> None:
        """Know a state, and show what is public of it."""
        attributes = learner.attributes(state)
        earlier: set[str] = getattr(self, "_published", set())
        for name in (earlier - attributes.keys()) & vars(self).keys():
            delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, _copy_arrays(value))  # who writes to them does not change the state
        self._published, self._state = set(attributes), state


def _list_given(X: Any, y: Any, sample_weight: Any = None, **metadata: Any) -> dict[str, Any]:
    """What callbacks get, to score with: weights by row, as scorers take them."""
    if sample_weight is None:
        return {"X": X, "y": y, "metadata": None}
    weight = as_weights(sample_weight, _num_samples(X))
    return {"X": X, "y": y, "metadata": {"sample_weight": weight}}


def _copy_arrays(value: Any) -> Any:
    """A value with arrays of its own."""
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [one.copy() for one in value]
    return value.copy() if isinstance(value, np.ndarray) else value


class VariationalRegressor(RegressorMixin, PredictsDistributions, ReadsRows, VariationalEstimator):
    """Template of the regressors.

    ``_learner()`` is a `RegressionLearner` of one output, which takes `Targets`. How X and y are
    read is in `ReadsRows`, of which a subclass may override some; `partial_fit` has ``_prepare``
    know that it ``streams`` rows.
    """

    _outputs_learner: Any = OutputsLearner  # of several outputs, given that of one
    score = in_memory(RegressorMixin.score)
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
            Training inputs. A memory-mapped array of float64 in C order is read in batches, but for
            estimators that keep all rows, which copy it to memory. An estimator that takes Dask
            arrays and DataFrames, as the user guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            Training targets. Each of several outputs has a model of its own, unless parameters say
            that they have something in common; where it is NaN, it was not observed. A Dask
            collection has one output.
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
            If a weight or variance is negative or not finite, if all weights are zero, if a
            positive one is beyond 1e9 or below 1e-9, if a variance is more than 1e20 times that of
            y, if variances are given for what has no Gaussian noise, or if an output was never
            observed.
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
        return self._partial_fit(X, y, sample_weight=sample_weight, y_var=y_var)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _full_learner(self) -> Any:
        single = self._learner()
        return single if self.n_outputs_ == 1 else self._outputs_learner(single)


class VariationalClassifier(ScoresClasses, ClassifierMixin, ReadsLabels, VariationalEstimator):
    """Template of the classifiers.

    ``_learner()`` is a learner of `Labels`, whose states have `classes`. Its ``posterior(state)``
    has ``decisions(inputs)``: scores (n, 1) of two classes or (n, k), whose normal distribution
    function is the probability of the second class, or of each versus the rest. How X and y are
    read is in `ReadsLabels`.
    """

    score = in_memory(ClassifierMixin.score)

    def _find_before(self, targets: Any) -> Any:
        before = super()._find_before(targets)
        if before is not None and not np.array_equal(targets.classes, before.classes):
            raise ValueError(f"warm_start: the classes were {before.classes.tolist()}.")
        return before

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. An estimator that takes Dask arrays and DataFrames, as the user
            guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, of at least two classes.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out, though its
            label is still one of the classes. None is 1. Weights of a survey, which are not
            counts, are to be divided by their mean.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        TypeError
            If weights are given with a Dask collection.
        ValueError
            If a weight is negative or not finite, if all are zero, or if a positive one is beyond
            1e9 or below 1e-9.
        """
        return self._fit(X, y, sample_weight=sample_weight)

    @fit_method
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, maybe of a single class.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`.
        """
        return self._partial_fit(X, y, classes=classes, sample_weight=sample_weight)


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
