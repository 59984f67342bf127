"""Scorers for scikit-learn's model selection, from metrics of predictive distributions."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from sklearn.utils.metadata_routing import UNCHANGED, MetadataRequest

from skvbgp.metrics._response import predict_gaussian
from skvbgp.metrics._scores import coverage, crps, interval_score, negative_log_predictive_density


class PredictiveScorer:
    """Callable ``scorer(estimator, X, y)`` that scores ``predict(X, return_std=True)``.

    Made by :func:`get_scorer` and :func:`make_scorer`; give it to the parameter ``scoring`` of
    scikit-learn's model selection.

    Parameters
    ----------
    score_func : callable
        Called as ``score_func(y_true, mean, std, **kwargs)``.
    sign : {1, -1}
        What its value is multiplied by.
    kwargs : dict
        Further arguments of the function.
    """

    def __init__(self, score_func: Callable[..., Any], sign: int, kwargs: dict[str, Any]) -> None:
        self._score_func, self._sign, self._kwargs = score_func, sign, kwargs
        self._metadata_request = MetadataRequest(owner=self)
        self._metadata_request.score.add_request(param="sample_weight", alias=None)

    def __call__(self, estimator: Any, X: Any, y_true: Any, *, sample_weight: Any = None) -> Any:
        """Score an estimator's predictions.

        Parameters
        ----------
        estimator : object
            Fitted; its `predict` takes ``return_std=True``. Of a fitted search, such as
            `GridSearchCV`, the best estimator is scored.
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.
        y_true : array-like of shape (n_samples,)
            Observed targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the average.

        Returns
        -------
        score : float
            Greater is better.
        """
        kwargs = self._kwargs
        if sample_weight is not None:
            kwargs = {**kwargs, "sample_weight": sample_weight}
        return self._sign * self._score_func(y_true, *predict_gaussian(estimator, X), **kwargs)

    def _accept_sample_weight(self) -> bool:
        """Whether there may be weights, as scikit-learn asks one of several scorers."""
        return "sample_weight" in signature(self._score_func).parameters

    def set_score_request(self, *, sample_weight: bool | str | None = UNCHANGED) -> Any:
        """Say whether scikit-learn's metadata routing should pass ``sample_weight``.

        Parameters
        ----------
        sample_weight : bool, str or None
            True requests it, False ignores it, None raises if it is given, and a string is
            the name that it is given under.

        Returns
        -------
        self : PredictiveScorer
        """
        if sample_weight is not UNCHANGED:
            self._metadata_request.score.add_request(param="sample_weight", alias=sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn's metadata routing should pass.

        Returns
        -------
        routing : MetadataRequest
        """
        return self._metadata_request

    def __repr__(self) -> str:
        function = self._score_func  # a partial one has no name
        arguments = [getattr(function, "__name__", repr(function))]
        if self._sign < 0:
            arguments.append("greater_is_better=False")
        arguments += [f"{name}={value!r}" for name, value in self._kwargs.items()]
        return f"make_scorer({', '.join(arguments)})"


def make_scorer(
    score_func: Callable[..., Any], *, greater_is_better: bool = True, **kwargs: Any
) -> PredictiveScorer:
    """Scorer of a metric of predictive distributions, as scikit-learn's of predictions.

    Parameters
    ----------
    score_func : callable
        Called as ``score_func(y_true, mean, std, **kwargs)``, such as :func:`crps`.
    greater_is_better : bool, default=True
        False for a loss: the scorer's value is its negative.
    **kwargs : dict
        Further arguments of the function.

    Returns
    -------
    scorer : PredictiveScorer

    Examples
    --------
    >>> from skvbgp.metrics import interval_score, make_scorer
    >>> make_scorer(interval_score, greater_is_better=False, level=0.8)
    make_scorer(interval_score, greater_is_better=False, level=0.8)
    """
    return PredictiveScorer(score_func, 1 if greater_is_better else -1, kwargs)


#: The metric of each name, and whether greater is better.
_METRICS: dict[str, tuple[Callable[..., Any], bool]] = {
    "coverage": (coverage, True),
    "log_predictive_density": (negative_log_predictive_density, False),
    "neg_crps": (crps, False),
    "neg_interval_score": (interval_score, False),
}


def get_scorer(name: str) -> PredictiveScorer:
    """Scorer of a name, to be given to ``scoring`` in scikit-learn's model selection.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`: "log_predictive_density", "neg_crps" and
        "neg_interval_score" (of 95 % intervals) are the metrics with greater values for
        better predictions. "coverage" (of 95 % intervals) is for reports, not for
        selection: the best value is 0.95.

    Returns
    -------
    scorer : PredictiveScorer

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import cross_validate
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.metrics import get_scorer
    >>> X, y = load_diabetes(return_X_y=True)
    >>> scoring = {name: get_scorer(name) for name in ["log_predictive_density", "coverage"]}
    >>> model = VBDTCRegressor(10, max_iter=10, random_state=0)
    >>> scores = cross_validate(model, X, y, scoring=scoring, cv=3)
    >>> scores["test_log_predictive_density"].shape
    (3,)
    """
    if name not in _METRICS:
        raise ValueError(f"{name!r} is not a scorer; the names are {get_scorer_names()}.")
    score_func, greater_is_better = _METRICS[name]
    return make_scorer(score_func, greater_is_better=greater_is_better)


def get_scorer_names() -> list[str]:
    """Names that :func:`get_scorer` knows.

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> from skvbgp.metrics import get_scorer_names
    >>> get_scorer_names()
    ['coverage', 'log_predictive_density', 'neg_crps', 'neg_interval_score']
    """
    return sorted(_METRICS)
