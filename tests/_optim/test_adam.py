"""Adam against its definition, entry by entry."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._optim.adam import AdamState, adam_ascent


def literal_adam(x, gradients, step):
    """Algorithm 1 of Kingma and Ba for one number, uphill, with the second decay .99."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        x += step * (m / (1.0 - 0.9**t)) / ((v / (1.0 - 0.99**t)) ** 0.5 + 1e-8)
    return x


def run(x, gradients, step):
    state = AdamState.zeros(len(x))
    for g in gradients:
        x, state = adam_ascent(x, g, state, step)
    return x, state


def test_against_the_definition(rng):
    """A step size for every entry; equal up to rounding."""
    start, gradients = rng.normal(size=3), 1e-6 * rng.normal(size=(12, 3))
    steps = np.array([0.1, 0.02, 0.5])
    x, state = run(start, gradients, steps)
    expected = [literal_adam(start[k], gradients[:, k], steps[k]) for k in range(3)]
    assert_allclose(x, expected, rtol=1e-12)
    assert state.n_steps == 12


def test_first_step_is_uphill_by_the_step_size():
    """The first ratio is sign(g), whatever the gradient's size."""
    x, _ = run(np.zeros(3), [np.array([1e-4, -1.0, 1e6])], 0.1)
    assert_allclose(x, [0.1, -0.1, 0.1], rtol=1e-3)


def test_zero_step_size_or_gradient_moves_nothing(rng):
    x, _ = run(np.array([1.0, 2.0]), rng.normal(size=(5, 2)), np.array([0.0, 0.1]))
    assert x[0] == 1.0
    assert x[1] != 2.0
    x, _ = run(np.array([1.0, 2.0]), np.zeros((5, 2)), 0.1)
    assert_array_equal(x, [1.0, 2.0])


def test_arguments_are_not_modified(rng):
    x, gradient, state = rng.normal(size=2), rng.normal(size=2), AdamState.zeros(2)
    for array in (x, gradient, state.first, state.second):
        array.flags.writeable = False
    _, after = adam_ascent(x, gradient, state, 0.1)
    assert (state.n_steps, after.n_steps) == (0, 1)


def test_quadratic(rng):
    """Maximum of a badly scaled quadratic; the step size falls to nothing, so the error does."""
    optimum, curvature = rng.normal(size=4), np.array([1e-2, 1.0, 1e2, 1e4])
    x, state = np.zeros(4), AdamState.zeros(4)
    for step in range(500):
        size = 0.05 * (1.0 + np.cos(np.pi * step / 500))
        x, state = adam_ascent(x, -curvature * (x - optimum), state, size)
    assert_allclose(x, optimum, atol=1e-3)
