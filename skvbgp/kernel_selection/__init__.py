"""Variational Bayesian kernel selection."""

from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._model import KernelModel
from skvbgp.kernel_selection._vbks import VBKSRegressor

__all__ = ["KernelModel", "VBKSRegressor", "kernel_grammar"]
