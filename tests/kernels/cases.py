"""The kernels every test of the contract goes through: one list, with each public class in it."""

import numpy as np

from skvbgp.kernels import (
    RBF,
    Anova,
    Constant,
    IntegratedOU,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    White,
    Wiener,
)

N_FEATURES = 3
SCALES = (0.7, 1.3, 2.1)
PERIODS = (1.9, 3.1, 2.3)

LEAVES = [
    RBF(SCALES),
    RBF(1.2),
    RBF(1.2, isotropic=True),
    Matern(SCALES, nu=0.5),
    Matern(SCALES, nu=1.5),
    Matern(SCALES, nu=2.5),
    Matern(0.8, nu=2.5, isotropic=True),
    RationalQuadratic(SCALES, alpha=0.6),
    RationalQuadratic(1.1, alpha=2.0, alpha_bounds="fixed"),
    RationalQuadratic(SCALES, length_scale_bounds="fixed"),
    Periodic(SCALES, PERIODS),
    Periodic(1.2, PERIODS),
    Periodic(1.2, 2.3),
    Periodic(1.2, 2.3, isotropic=True),
    Linear(SCALES, offset=0.4),
    Linear(1.5, offset=0.0, offset_bounds="fixed", isotropic=True),
    Constant(1.7),
    Constant(1.7, value_bounds="fixed"),
    White(0.3),
    Wiener(SCALES),
    Wiener(1.2, isotropic=True),
    Wiener(SCALES, integrated=True),
    IntegratedOU(SCALES),
    Anova(SCALES, (0.5, 2.0, 0.1)),
    Anova(1.4, isotropic=True),
]
COMPOSITES = [
    Sum(RBF(SCALES), White(0.3)),
    Sum(Linear(SCALES), Periodic(SCALES, PERIODS), Constant(0.2, value_bounds="fixed")),
    Product(Constant(2.0), RationalQuadratic(SCALES)),
    Product(Constant(2.0), Constant(0.7)),
    Product(RBF(SCALES), Linear(offset=0.3), Constant(0.5), Matern(SCALES, nu=0.5)),
    Product(
        Matern(SCALES), RationalQuadratic(SCALES, alpha=0.6), Constant(0.5), RationalQuadratic(1.3)
    ),
    2.0 * RBF(SCALES) * (Matern(1.4) + 0.3 * Periodic(SCALES, PERIODS)) + White(0.1),
    (RBF(SCALES) + White(0.2)) * (Linear(SCALES) + 1.5),
    RBF(SCALES) * Wiener(SCALES, integrated=True) + Wiener(1.4),
]
CASES = LEAVES + COMPOSITES


def inputs(n, seed=0):
    """Standard normal inputs, read-only as a memory-mapped array may be."""
    X = np.random.default_rng(seed).normal(size=(n, N_FEATURES))
    X.flags.writeable = False
    return X
