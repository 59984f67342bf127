"""The kernels that searches choose from, and what grows out of the best two."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.kernels import Matern
from skvbgp.kernels._candidates import (
    add_fading_lines,
    add_lines,
    combine,
    divide_at_random,
    make_base_kernels,
    make_isotropic_kernel,
    multiply,
    steepen,
)

BEST = [pair for pair in make_base_kernels(2) if pair[0] in ("RQ", "SE")]
SIGNS = np.array([1.0, -1.0])


@pytest.mark.parametrize(
    "few, names",
    [
        (True, ["RQ * RQ", "RQ * SE"]),
        (False, ["RQ * RQ", "RQ * SE", "SE * SE", "RQ + RQ", "RQ + SE"]),
    ],
)
def test_combinations_start_from_their_parts(few, names):
    combined = list(combine(BEST, lambda *_: [SIGNS, -SIGNS], few=few))
    assert [name for name, _, _ in combined] == names
    X = np.zeros((1, 2))
    for name, i, kernels in combined:
        assert name.startswith(BEST[i][0])
        assert len(kernels) == (2 if "*" in name else 1)
        for kernel in kernels:
            assert_allclose(kernel.diag(X), 1.0)
            assert np.all(kernel.bounds[:, 0] <= kernel.theta)
            assert np.all(kernel.theta <= kernel.bounds[:, 1])


def test_factors_are_moved_apart():
    (_, first), (_, second) = BEST
    _, *factors = multiply(first, second, 0.3 * SIGNS).kernels
    ratio = np.array(factors[0].length_scale) / factors[1].length_scale
    assert_allclose(np.log(ratio), 0.6 * SIGNS, atol=1e-12)


def test_lines_are_added_to_what_a_kernel_has_learned(rng):
    X, (name, kernel) = rng.standard_normal((5, 2)), BEST[0]
    sum_name, total = add_lines(name, kernel, 2)
    assert sum_name == "RQ + LIN"
    assert_allclose(total(X), kernel(X) + 0.5 * X @ X.T)
    assert total.n_free == kernel.n_free + 1


def test_steep_lines_have_next_to_nothing_besides(rng):
    X = rng.standard_normal((5, 2))
    for _, _, (product,) in combine(BEST, lambda *_: [SIGNS], few=True):
        total = add_lines("", product, 2)[1]
        steep = steepen(total, 100.0)
        assert_allclose(steep(X), 1e-4 * product(X) + 50.0 * X @ X.T)
        assert steep.n_free == total.n_free


def test_one_length_scale_for_all_inputs(rng):
    X, (_, base) = rng.standard_normal((5, 3)), make_base_kernels(3)[0]
    name, kernel = make_isotropic_kernel(base)
    assert name == "Matern-5/2 isotropic"
    assert_allclose(kernel(X), Matern(np.sqrt(3.0), nu=2.5)(X))
    assert kernel.n_free == 2


def test_lines_that_fade_are_straight_among_the_rows_only(rng):
    X, (name, kernel) = rng.standard_normal((5, 2)), BEST[0]
    sum_name, total = add_fading_lines(name, kernel, 2)
    assert sum_name == "RQ + LIN"
    r2 = np.sum((X[:, None] - X) ** 2, axis=2)
    assert_allclose(total(X), kernel(X) + 0.5 * X @ X.T * np.exp(-0.5 * r2 / 200.0))
    assert total.n_free == kernel.n_free + 1
    assert_allclose(total(X, X + 150.0), kernel(X, X + 150.0), atol=1e-12)


def test_equal_parts_of_a_product_or_a_sum_can_be_told_apart():
    divide = divide_at_random(np.random.RandomState(0))
    for _, _, (kernel,) in combine(BEST[1:] * 2, divide, few=False):
        first, second = [part for part in kernel.kernels if part.n_free > 1][-2:]
        assert not np.any(np.isclose(first.theta[-2:], second.theta[-2:]))


def test_kernels_of_the_first_round_in_units_of_the_inputs(rng):
    X, unit = rng.standard_normal((5, 2)), np.array([1e-3, 70.0])
    for (name, kernel), (same, scaled) in zip(
        make_base_kernels(2), make_base_kernels(2, unit), strict=True
    ):
        assert name == same
        assert_allclose(scaled(X * unit), kernel(X), rtol=1e-12)
        margin = kernel.bounds - kernel.theta[:, None]
        assert_allclose(scaled.bounds - scaled.theta[:, None], margin, rtol=1e-12)
