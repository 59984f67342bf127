"""BFGS of many problems at once: optima, failing regions, limits, rows on their own."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._optim.bfgs import ascend_each
from tests._optim.test_lbfgs import rosenbrock

CENTRES = np.array([[0.0, 0.0], [3.0, -2.0], [40.0, 1.0]])
CURVATURE = np.array([[1.0, 1.0], [100.0, 0.1], [1e-2, 5.0]])


def quadratics(x, problems):
    """Maximum 0 at a centre each."""
    away = x - CENTRES[problems]
    scaled = CURVATURE[problems] * away
    return -0.5 * np.sum(scaled * away, axis=1), -scaled


def ascend(objective, x, *, max_iter=300, tol=1e-8, max_step=1.0):
    return ascend_each(objective, np.array(x), max_iter=max_iter, tol=tol, max_step=max_step)


def test_each_problem_has_its_own_optimum():
    starts = np.ones((3, 2))
    together = ascend(quadratics, starts)
    assert_allclose(together, CENTRES, atol=1e-6)
    for i in range(3):
        alone = ascend(lambda x, _, i=i: quadratics(x, np.full(len(x), i)), starts[:1])
        assert_allclose(alone[0], together[i], rtol=1e-12, atol=1e-12)


def test_rosenbrock():
    def objective(x, problems):
        values, gradients = zip(*map(rosenbrock, x), strict=True)
        return np.array(values), np.array(gradients)

    starts = [[-1.2, 1.0], [1.0, 1.0], [2.0, -1.0]]
    assert_allclose(ascend(objective, starts), 1.0, atol=1e-6)


def test_values_that_are_not_finite_are_too_low():
    """A wall in front of a maximum on the other side."""

    def log_barrier(x, problems):
        inside = x[:, 0] < 2.0
        room = np.where(inside, 2.0 - x[:, 0], np.nan)
        value = 10.0 * x[:, 0] + np.log(room)
        return value, (10.0 - 1.0 / room)[:, None]

    assert_allclose(ascend(log_barrier, [[0.0], [1.5]]), 1.9, rtol=1e-6)


def test_a_step_at_its_limit_that_goes_too_far_is_taken_back_at_once():
    calls = []

    def steep(x, problems):
        calls.append(x)
        return -5e5 * x[:, 0] ** 2, -1e6 * x

    assert_allclose(ascend(steep, [[0.1]]), 0.0, atol=1e-12)
    assert len(calls) < 10


def test_a_start_at_the_optimum_stays():
    assert_array_equal(ascend(quadratics, CENTRES), CENTRES)


def test_limits():
    calls = []

    def objective(x, problems):
        calls.append(x)
        return quadratics(x, problems)

    start = np.zeros((3, 2))
    end = ascend(objective, start, max_iter=4, max_step=0.25)
    assert len(calls) == 5
    assert np.all(np.linalg.norm(end - start, axis=1) <= 4 * 0.25 + 1e-12)
    values = quadratics(end, np.arange(3))[0]
    assert np.all(values[1:] > quadratics(start, np.arange(3))[0][1:])
