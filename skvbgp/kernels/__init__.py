"""Kernels: values and vector-Jacobian products of the covariance functions."""

from skvbgp.kernels._anova import Anova
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Product, Sum
from skvbgp.kernels._constant import Constant, White
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._periodic import Periodic
from skvbgp.kernels._sklearn import as_kernel
from skvbgp.kernels._stationary import RBF, Matern, RationalQuadratic
from skvbgp.kernels._wiener import IntegratedOU, Wiener

__all__ = [
    "RBF",
    "Anova",
    "Constant",
    "IntegratedOU",
    "Kernel",
    "Linear",
    "Matern",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Sum",
    "White",
    "Wiener",
    "as_kernel",
]
