"""Variational Bayesian sparse Gaussian process regression (paper [Yu2019]_)."""

from skvbgp.sgpr._regressor import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp.sgpr.expectations import (
    ExpectationGradients,
    omega,
    omega_vjp,
    psi,
    psi_vjp,
    upsilon,
    upsilon_vjp,
)

__all__ = [
    "ExpectationGradients",
    "VBDTCRegressor",
    "VBFITCRegressor",
    "VBPICRegressor",
    "VBPITCRegressor",
    "omega",
    "omega_vjp",
    "psi",
    "psi_vjp",
    "upsilon",
    "upsilon_vjp",
]
