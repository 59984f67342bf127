"""Sparse expectation propagation (paper [Andrade2014]_)."""

from skvbgp.ep._classifier import EPDTCClassifier
from skvbgp.ep.expectations import ExpectationGradients, Psi2, psi1, psi1_vjp
from skvbgp.ep.hybrid._classifier import HybridGPLVM

__all__ = ["EPDTCClassifier", "ExpectationGradients", "HybridGPLVM", "Psi2", "psi1", "psi1_vjp"]
