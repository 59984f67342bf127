"""Factors in blocks against those that are inverted."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core import factor
from skvbgp._core.factor import BlockFactor, InverseFactor
from skvbgp._core.linalg import NotPositiveDefiniteError
from skvbgp.kernels import RBF

ROWS = factor._BLOCK_ROWS


def factorise(C, noise=0.0, jitter=1e-30):
    """C + diag(noise) + jitter, from C's lower triangle."""
    unit = np.ones(len(C))
    return BlockFactor.of(np.tril(C), noise * unit, jitter, unit)


def make_matrix(n, rng):
    """That of n rows, and its noise."""
    return 1.5 * RBF([1.0, 2.0])(rng.standard_normal((n, 2))), rng.uniform(0.01, 0.5, n)


@pytest.mark.parametrize("n", [1, 5, ROWS, ROWS + 1, 3 * ROWS - 7, 5 * ROWS + 3])
@pytest.mark.every_nth("n", 3)
def test_what_blocks_say_is_what_the_inverse_does(n, rng):
    K, noise = make_matrix(n, rng)
    blocks = factorise(K, noise)
    whole = InverseFactor(np.linalg.inv(np.linalg.cholesky(K + np.diag(noise))))
    y, values = rng.standard_normal(n), rng.standard_normal((n, 3))
    assert_allclose(blocks.inverse, whole.inverse, rtol=1e-8, atol=1e-10)
    assert_allclose(blocks.log_diagonal, whole.log_diagonal, rtol=1e-8, atol=1e-10)
    assert_allclose(blocks.whiten(y), whole.whiten(y), rtol=1e-8, atol=1e-10)
    assert_allclose(blocks.whiten(values), whole.inverse @ values, rtol=1e-8, atol=1e-10)
    assert_allclose(blocks.unwhiten(y), whole.unwhiten(y), rtol=1e-8, atol=1e-10)
    assert_allclose(blocks.solve(values), whole.solve(values), rtol=1e-8, atol=1e-9)
    assert_allclose(blocks.precision, whole.precision, rtol=1e-4)
    precision = np.linalg.inv(K + np.diag(noise))
    for index in (np.array([n - 1]), rng.permutation(n)[: n // 2 + 1]):
        columns = rng.integers(0, n, (len(index), 3))
        expected = precision[index[:, None], columns]
        for one in (blocks, whole):
            assert_allclose(one.take_precision(index, columns), expected, rtol=1e-8, atol=1e-9)


def test_precisions_are_double_where_single_ones_are_wrong():
    """Of a smooth kernel and hardly any noise: those are off by more than what is tolerated."""
    n = 2 * ROWS + 3
    K = 100.0 * RBF(0.3)(np.linspace(0.0, 1.0, n)[:, None])
    for noise, tolerance in ((0.1, 1e-4), (1e-8, 1e-8)):
        blocks = factorise(K, noise)
        assert_allclose(blocks.precision, np.sum(blocks.inverse**2, axis=0), rtol=tolerance)


def test_jitter_grows_until_it_is_enough_or_too_much():
    """A matrix of ones, which rounding makes indefinite, and one that is not positive."""
    ones = np.ones((2 * ROWS, 2 * ROWS))
    blocks = factorise(ones, jitter=1e-18)
    L = np.tril(blocks.L)
    assert_allclose(L @ L.T, ones, rtol=1e-10)
    assert np.all(np.diagonal(L) > 0.0)
    with pytest.raises(NotPositiveDefiniteError, match="not positive definite"):
        factorise(-ones, jitter=1e-8)
    with pytest.raises(NotPositiveDefiniteError, match="not finite"):
        factorise(np.nan * ones, jitter=1e-8)
