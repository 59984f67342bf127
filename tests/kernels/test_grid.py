"""Kernels of the same pairs at several hyperparameters, against the kernels themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.kernels import RBF, _pairs
from skvbgp.kernels._pairs import Grid
from tests.kernels.cases import CASES, inputs


def at_several(kernel):
    return [kernel.with_theta(kernel.theta + shift) for shift in (0.0, 0.3, -0.2)]


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_values_are_those_of_the_kernels(kernel):
    X, Z = inputs(5), inputs(4, seed=1)
    Z = np.vstack([X[:1], Z[1:]])
    for others in (Z, None):
        grid, kernels = Grid(X, others), at_several(kernel)
        for _ in range(2):  # nothing that is kept has been written to
            K = grid.evaluate(kernels)
            assert K.shape == (3, 5, 4 if others is Z else 5)
            for values, k in zip(K, kernels, strict=True):
                assert_allclose(values, k(X, others), rtol=1e-12, atol=1e-14)


def test_many_pairs_are_evaluated_by_the_kernel_itself(monkeypatch):
    X, kernels = inputs(6), at_several(2.0 * RBF((0.7, 1.3, 2.1)))
    monkeypatch.setattr(_pairs, "_MOST_IN_GRID", 6 * 6 * 3 - 1)
    for values, k in zip(Grid(X).evaluate(kernels), kernels, strict=True):
        assert_array_equal(values, k(X))


class Doubled(RBF):
    """What a user may write."""

    def __call__(self, X, Z=None):
        return 2.0 * super().__call__(X, Z)


@pytest.mark.parametrize("kernel", [Doubled(), 3.0 * Doubled(), Doubled() + RBF()], ids=repr)
def test_a_kernel_that_inherits_has_its_own_covariance(kernel):
    X = inputs(5)
    for values, k in zip(Grid(X).evaluate(at_several(kernel)), at_several(kernel), strict=True):
        assert_allclose(values, k(X))
