"""Variational Bayesian sparse Gaussian processes with the scikit-learn interface."""

try:  # TODO plain import as soon as the four estimators exist
    from .sgpr import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
except ImportError:
    pass

__version__ = "0.1.0"

__all__ = [
    "VBDTCRegressor",
    "VBFITCRegressor",
    "VBPICRegressor",
    "VBPITCRegressor",
    "__version__",
]
