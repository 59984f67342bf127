"""Matrices of several sets of rows, against those of one after the other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.gp._neighbours import count_sets, measure_stack
from skvbgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White


class Doubled(RBF):
    """What a user may write."""

    def __call__(self, X, Z=None):
        return 2.0 * super().__call__(X, Z)


KERNELS = [
    2.0 * RBF([1.0, 3.0]) * (Linear() + White(0.1)) * Periodic() * Matern(1.0),
    Doubled(),
    Doubled() * RBF() + Doubled(),
    Matern([1.0, 3.0], nu=0.5),
    2.0 * Matern([1.0, 3.0]) * RationalQuadratic([2.0, 0.5], alpha=0.7),
    0.5 * RBF([1.0, 2.0]) + 1.5 * Matern([3.0, 1.0], nu=2.5),
    RBF(2.0, isotropic=True) + White(0.3) + Constant(2.0),
    Periodic() * (Linear() + Constant(1.0)),
    Constant(2.0) * Constant(3.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("b", [1, 5])
def test_every_set_has_its_matrix(rng, kernel, b):
    kernel, X = kernel.bind(2), rng.standard_normal((b, 7, 2))
    stack = measure_stack(kernel, X)
    assert stack.shape == (b, 7, 7)
    for matrix, rows in zip(stack, X, strict=True):
        assert_allclose(np.tril(matrix), np.tril(kernel(rows)), rtol=1e-13)


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-7])
def test_rows_that_are_nearly_equal(rng, gap):
    """Where the kernel has a kink, small distances matter most."""
    X = 1.0 + rng.standard_normal((3, 6, 2))
    X[:, 4] = X[:, 1] + gap
    kernel = Matern(0.01, nu=0.5).bind(2)
    stack = measure_stack(kernel, X)
    assert_allclose(stack[:, 4, 1], [kernel(rows)[4, 1] for rows in X], rtol=1e-13)


@pytest.mark.parametrize("b", [1, 5])
def test_a_row_that_is_far_away_takes_nothing_from_others(rng, b):
    X = rng.standard_normal((b, 7, 2))
    kernel, near = Matern(nu=1.5).bind(2), X.copy()
    X[0, 6] = 1e12
    assert_allclose(
        measure_stack(kernel, X)[:, :6, :6], measure_stack(kernel, near)[:, :6, :6], rtol=1e-9
    )


def test_large_sets_are_measured_one_by_one():
    assert count_sets(65) > 20
    assert count_sets(401) == 2
    assert count_sets(700) == 1
