"""Gaussian processes with decoupled bases for mean and covariance (paper [Cheng2017]_)."""

from skvbgp.decoupled._classifier import DecoupledGPClassifier
from skvbgp.decoupled._regressor import DecoupledGPRegressor

__all__ = ["DecoupledGPClassifier", "DecoupledGPRegressor"]
