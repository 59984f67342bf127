"""Variational Bayesian sparse spectrum Gaussian process regression (paper [Hoang2017]_)."""

from skvbgp.spectrum._regressor import SVBSSGPRegressor

__all__ = ["SVBSSGPRegressor"]
