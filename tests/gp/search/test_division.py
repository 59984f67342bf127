"""Which inputs the parts of a product are to divide among them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp._optim.maximum import measure_posterior, train
from skvbgp.gp._process import start_process
from skvbgp.gp.search._division import divide_inputs
from skvbgp.kernels._candidates import follow, make_base_kernels, multiply


def learn(rng, d):
    """A trained process, and rows of a product of functions of two inputs each."""
    X, kernel = rng.standard_normal((100, d)), dict(make_base_kernels(d))["RQ"]
    y = np.sin(2.0 * X[:, 0] + X[:, 1]) * np.exp(0.5 * X[:, 2] - 0.3 * X[:, 3])
    groups = [(X, y + 0.01 * rng.standard_normal(len(X)), None)]
    start = start_process(kernel, gaussian=True)
    return train(start, groups, max_iter=30, tol=1e-5).process, groups


def curve_densely(process, kernels, groups, d):
    """Hessian (d, d) in what parts the length scales, by differences of values."""

    def value(apart):
        kernel = multiply(*kernels, apart)
        return measure_posterior(replace(process, kernel=kernel), groups)

    h, units = 0.02, np.eye(d)
    corners = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    return np.array(
        [
            [
                sum(a * b * value(h * (a * u + b * v)) for a, b in corners) / (4 * h**2)
                for u in units
            ]
            for v in units
        ]
    )


@pytest.mark.parametrize(
    ("second", "seed", "expected"),
    [
        ("RQ", 2, [1.0, 1.0, -1.0, -1.0]),  # a factor has two inputs
        ("Matern-3/2", 5, [1.0, 1.0, 1.0, 1.0]),
    ],
)
@pytest.mark.every_nth("second", 2)
def test_it_is_the_direction_of_the_largest_curvature(second, seed, expected):
    """Whatever the slope is, which is zero if the kernels are equal."""
    process, groups = learn(np.random.default_rng(seed), 4)
    kernels = [process.kernel] * 2
    if second != "RQ":
        start = dict(make_base_kernels(4))[second]
        kernels[1] = follow(second, start, "RQ", process.kernel)
    values, V = np.linalg.eigh(curve_densely(process, kernels, groups, 4))
    assert values[-1] > 1.5 * np.abs(values[:-1]).max()
    assert np.abs(V[:, -1]).min() > 0.05
    assert_array_equal(np.sign(V[:, -1]) * np.sign(V[0, -1]), expected)
    signs = divide_inputs(process, kernels, groups)
    assert_array_equal(signs * signs[0], expected)


def test_one_input_is_in_both_parts(rng):
    X = rng.standard_normal((20, 1))
    (_, kernel), *_ = make_base_kernels(1)
    process = start_process(kernel, gaussian=True)
    signs = divide_inputs(process, [kernel, kernel], [(X, np.sin(X[:, 0]), None)])
    assert_array_equal(np.abs(signs), 1.0)
