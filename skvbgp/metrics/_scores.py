"""Scores of predictive distributions against what was observed (see doc/theory/scores.rst)."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture


def negative_log_predictive_density(
    y_true: Any, mean: Any, std: Any, *, weights: Any = None, sample_weight: Any = None
) -> float:
    """Negative log predictive density (NLPD), averaged over the rows.

    It punishes errors and overconfidence alike, and an observation far out in the tail more
    than any other score does. Lower is better.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed targets.
    mean : array-like of shape (n_samples,) or (n_samples, n_components)
        Predictive means, or those of a mixture's components.
    std : array-like of the same shape
        Predictive standard deviations, positive.
    weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
        Weights of the components, with a sum of one. None is equal weights.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the average. None is equal weights.

    Returns
    -------
    loss : float
        In nats; it falls by log(c) when the unit of y grows by c.

    Examples
    --------
    >>> from skvbgp.metrics import negative_log_predictive_density
    >>> y_true, mean, std = [1.0, 2.0, 4.0], [1.1, 1.8, 3.0], [0.5, 0.5, 0.5]
    >>> round(negative_log_predictive_density(y_true, mean, std), 4)
    0.9258

    A mixture of two Gaussians for one row:

    >>> mixture = dict(mean=[[-1.0, 1.0]], std=[[0.5, 0.5]], weights=[0.2, 0.8])
    >>> round(negative_log_predictive_density([1.0], **mixture), 4)
    0.4489
    """
    y, mixture = _validate(y_true, mean, std, weights)
    return _average(-mixture.log_density(y), sample_weight)


def crps(
    y_true: Any, mean: Any, std: Any, *, weights: Any = None, sample_weight: Any = None
) -> float:
    """Continuous ranked probability score (CRPS), averaged over the rows.

    The squared distance between the predictive distribution function and the step of the
    observation, integrated over y: the absolute error of a prediction that may be a
    distribution. Lower is better [Gneiting2007]_.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed targets.
    mean : array-like of shape (n_samples,) or (n_samples, n_components)
        Predictive means, or those of a mixture's components.
    std : array-like of the same shape
        Predictive standard deviations, positive.
    weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
        Weights of the components, with a sum of one. None is equal weights.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the average. None is equal weights.

    Returns
    -------
    loss : float
        On the scale of y.

    References
    ----------
    .. [Gneiting2007] T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and
       estimation", Journal of the American Statistical Association 102, 2007.

    Examples
    --------
    >>> from skvbgp.metrics import crps
    >>> y_true, mean, std = [1.0, 2.0, 4.0], [1.1, 1.8, 3.0], [0.5, 0.5, 0.5]
    >>> round(crps(y_true, mean, std), 4)
    0.3332
    """
    y, mixture = _validate(y_true, mean, std, weights)
    return _average(mixture.crps(y), sample_weight)


def interval_score(
    y_true: Any,
    mean: Any,
    std: Any,
    *,
    level: float = 0.95,
    weights: Any = None,
    sample_weight: Any = None,
) -> float:
    """Score of the central prediction interval (Winkler score), averaged over the rows.

    The width of the interval, plus 2 / (1 - level) times the distance to it of an
    observation outside. Lower is better [Gneiting2007]_.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed targets.
    mean : array-like of shape (n_samples,) or (n_samples, n_components)
        Predictive means, or those of a mixture's components.
    std : array-like of the same shape
        Predictive standard deviations, positive.
    level : float, default=0.95
        Probability of the central interval: the same share lies below it as above.
    weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
        Weights of the components, with a sum of one. None is equal weights.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the average. None is equal weights.

    Returns
    -------
    loss : float
        On the scale of y.

    References
    ----------
    .. [Gneiting2007] T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and
       estimation", Journal of the American Statistical Association 102, 2007.

    Examples
    --------
    >>> from skvbgp.metrics import interval_score
    >>> y_true, mean, std = [1.0, 2.0, 4.0], [1.1, 1.8, 3.0], [0.5, 0.5, 0.5]
    >>> round(interval_score(y_true, mean, std), 4)
    2.2269
    """
    y, mixture = _validate(y_true, mean, std, weights)
    level = _check_level(level)
    lower, upper = mixture.interval(level)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return _average(upper - lower + 2.0 / (1.0 - level) * outside, sample_weight)


def coverage(
    y_true: Any,
    mean: Any,
    std: Any,
    *,
    level: Any = 0.95,
    weights: Any = None,
    sample_weight: Any = None,
) -> Any:
    """Share of the observations within the central prediction interval.

    It should be near ``level``: lower is overconfident, higher is overcautious. Wide
    intervals everywhere and narrow ones everywhere can have the same coverage as good ones,
    so look at it beside a score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed targets.
    mean : array-like of shape (n_samples,) or (n_samples, n_components)
        Predictive means, or those of a mixture's components.
    std : array-like of the same shape
        Predictive standard deviations, positive.
    level : float or array-like of shape (n_levels,), default=0.95
        Probability of the central interval: the same share lies below it as above.
    weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
        Weights of the components, with a sum of one. None is equal weights.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in the average. None is equal weights.

    Returns
    -------
    share : float or ndarray of shape (n_levels,)
        Between 0 and 1.

    Examples
    --------
    >>> from skvbgp.metrics import coverage
    >>> y_true, mean, std = [1.0, 2.0, 4.0], [1.1, 1.8, 3.0], [0.5, 0.5, 0.5]
    >>> round(coverage(y_true, mean, std), 4)
    0.6667
    >>> coverage(y_true, mean, std, level=[0.1, 0.5, 0.99]).round(4)
    array([0.    , 0.6667, 1.    ])
    """
    y, mixture = _validate(y_true, mean, std, weights)
    centrality = np.abs(2.0 * mixture.cdf(y) - 1.0)  # level of the interval that y is an end of
    if np.ndim(level) == 0:
        return _average(centrality <= _check_level(level), sample_weight)
    return np.array([_average(centrality <= _check_level(p), sample_weight) for p in level])


def prediction_interval(
    mean: Any, std: Any, *, level: float = 0.95, weights: Any = None
) -> tuple[Array, Array]:
    """Ends of the central prediction interval of every row.

    Parameters
    ----------
    mean : array-like of shape (n_samples,) or (n_samples, n_components)
        Predictive means, or those of a mixture's components.
    std : array-like of the same shape
        Predictive standard deviations, positive.
    level : float, default=0.95
        Probability of the central interval: the same share lies below it as above.
    weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
        Weights of the components, with a sum of one. None is equal weights.

    Returns
    -------
    lower, upper : ndarray of shape (n_samples,)
        Quantiles of probability (1 - level) / 2 and (1 + level) / 2.

    Examples
    --------
    >>> from skvbgp.metrics import prediction_interval
    >>> lower, upper = prediction_interval([0.0, 5.0], [1.0, 2.0])
    >>> lower.round(2), upper.round(2)
    (array([-1.96,  1.08]), array([1.96, 8.92]))
    """
    return NormalMixture.of(mean, std, weights).interval(_check_level(level))


def _validate(y_true: Any, mean: Any, std: Any, weights: Any) -> tuple[Array, NormalMixture]:
    y = check_array(y_true, ensure_2d=False, dtype=np.float64, input_name="y_true")
    y, mixture = column_or_1d(y), NormalMixture.of(mean, std, weights)
    check_consistent_length(y, mixture.mean)
    return y, mixture


def _check_level(level: Any) -> float:
    if not isinstance(level, Real) or not 0.0 < float(level) < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    return float(level)


def _average(values: Array | NDArray[np.bool_], sample_weight: Any) -> float:
    if sample_weight is None:
        return float(np.mean(values))
    sample_weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    sample_weight = column_or_1d(sample_weight)
    check_consistent_length(values, sample_weight)
    if np.any(sample_weight < 0.0) or not np.any(sample_weight > 0.0):
        raise ValueError("sample_weight must not be negative, and not be zero for all rows.")
    return float(np.average(values, weights=sample_weight))
