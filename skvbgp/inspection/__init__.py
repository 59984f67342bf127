"""Plots of fitted models and their predictions; Matplotlib is imported when one is drawn."""

from skvbgp.inspection._calibration import CalibrationDisplay
from skvbgp.inspection._kernel_posterior import KernelPosteriorDisplay
from skvbgp.inspection._lower_bound import LowerBoundDisplay
from skvbgp.inspection._prediction_interval import PredictionIntervalDisplay
from skvbgp.inspection._relevance import RelevanceDisplay

__all__ = [
    "CalibrationDisplay",
    "KernelPosteriorDisplay",
    "LowerBoundDisplay",
    "PredictionIntervalDisplay",
    "RelevanceDisplay",
]
