"""Scores of predictive distributions: Gaussians, and mixtures of them.

Each metric takes ``y_true``, and the means and standard deviations that ``predict(X,
return_std=True)`` returns; two-dimensional ones are those of a mixture's components.
"""

from skvbgp.metrics._scorer import PredictiveScorer, get_scorer, get_scorer_names, make_scorer
from skvbgp.metrics._scores import (
    coverage,
    crps,
    interval_score,
    negative_log_predictive_density,
    prediction_interval,
)

__all__ = [
    "PredictiveScorer",
    "coverage",
    "crps",
    "get_scorer",
    "get_scorer_names",
    "interval_score",
    "make_scorer",
    "negative_log_predictive_density",
    "prediction_interval",
]
