"""Variational Bayesian kernel selection."""

from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._posterior import KernelModel
from skvbgp.kernel_selection._regressor import VBKSRegressor

__all__ = ["KernelModel", "VBKSRegressor", "kernel_grammar"]
