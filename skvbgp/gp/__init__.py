"""Gaussian processes of near rows with a belief about their kernel: the ones to start with."""

from skvbgp.gp._classifier import VBGPClassifier
from skvbgp.gp._regressor import VBGPRegressor

__all__ = ["VBGPClassifier", "VBGPRegressor"]
