"""Variational Bayesian kernel selection."""

from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._posterior import KernelModel
from skvbgp.kernel_selection._regressor import VBKSRegressor
from skvbgp.kernel_selection._series import series_kernels

__all__ = ["KernelModel", "VBKSRegressor", "kernel_grammar", "series_kernels"]
