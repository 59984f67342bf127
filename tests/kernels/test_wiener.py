"""The kernel of Wiener processes against sums over independent steps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.kernels import Constant, IntegratedOU, Linear, Wiener


@pytest.mark.parametrize("integrated", [False, True])
def test_is_the_covariance_of_sums_of_steps(integrated):
    """f(t) is a sum (or the integral of a sum) of small independent steps, from zero both ways."""
    step = 1e-3
    grid = np.arange(-2.0, 2.0, step) + 0.5 * step  # where steps are
    t = np.array([-1.5, -0.4, 0.3, 0.9, 1.8])
    between = (np.abs(grid) < np.abs(t)[:, None]) & (np.sign(grid) == np.sign(t)[:, None])
    weights = between * (np.abs(t[:, None] - grid) if integrated else 1.0)
    expected = step * weights @ weights.T
    assert_allclose(Wiener(integrated=integrated)(t[:, None]), expected, atol=3e-3)


def test_integrated_ou_is_the_covariance_of_integrals_of_slopes():
    """Slopes have the covariance exp(-|t - t'|)."""
    step = 1e-2
    grid = np.arange(-2.0, 2.0, step) + 0.5 * step
    t = np.array([-1.5, -0.4, 0.3, 0.9, 1.8])
    between = (np.abs(grid) < np.abs(t)[:, None]) & (np.sign(grid) == np.sign(t)[:, None])
    weights = step * between * np.sign(grid)
    expected = weights @ np.exp(-np.abs(grid[:, None] - grid)) @ weights.T
    assert_allclose(IntegratedOU(2.0)(2.0 * t[:, None]), expected, atol=1e-4)


def test_integrated_ou_lies_between_a_line_and_a_wiener_process():
    t = np.linspace(-1.0, 1.0, 5)[:, None]
    assert_allclose(IntegratedOU(1e4)(t) * 1e8, t @ t.T, atol=1e-3)
    assert_allclose(IntegratedOU(1e-5)(t) * 1e-5, 2.0 * Wiener()(t), atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "start"),
    [
        (Wiener(0.3), Constant(1e6)),
        (IntegratedOU(0.3), Constant(1e6)),
        (Wiener(0.3, integrated=True), Linear(1e-3, offset=1e3)),
    ],
    ids=["level", "slopes", "trend"],
)
def test_forecasts_do_not_depend_on_where_zero_is(kernel, start):
    t, new = np.linspace(0.0, 1.0, 9)[:, None], np.array([[1.4]])
    y = np.cos(5.0 * t[:, 0])

    def forecast(origin):
        k = kernel + start
        K = k(t - origin) + 1e-3 * np.eye(len(t))
        cross = k(new - origin, t - origin)
        solved = np.linalg.solve(K, np.column_stack([y, cross.T]))
        return cross @ solved[:, 0], k(new - origin) - cross @ solved[:, 1:]

    for found, expected in zip(forecast(0.55), forecast(0.0), strict=True):
        assert_allclose(found, expected, rtol=1e-3)
