"""Variational Bayesian sparse Gaussian processes with the scikit-learn interface."""

from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.ep import EPDTCClassifier, HybridGPLVM
from skvbgp.kernel_selection import VBKSRegressor, kernel_grammar
from skvbgp.sgpr import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp.spectrum import SVBSSGPRegressor

__version__ = "0.1.0"

__all__ = [
    "DecoupledGPClassifier",
    "DecoupledGPRegressor",
    "EPDTCClassifier",
    "HybridGPLVM",
    "SVBSSGPRegressor",
    "VBDTCRegressor",
    "VBFITCRegressor",
    "VBKSRegressor",
    "VBPICRegressor",
    "VBPITCRegressor",
    "__version__",
    "kernel_grammar",
]
