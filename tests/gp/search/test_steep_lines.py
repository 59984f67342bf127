"""Where straight lines start, and what they gain."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skvbgp._optim.maximum import measure_posterior, train
from skvbgp.gp._process import start_process
from skvbgp.gp.search._steep_lines import (
    find_start_beside,
    find_steep_start,
    measure_gain,
    train_lines,
)
from skvbgp.kernels._candidates import add_lines, make_base_kernels


def test_gain_is_that_of_the_best_slopes(rng):
    X, y, variance = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.uniform(0.1, 1, 30)
    y += X @ [3.0, 0.0, -1.0]

    def log_density(slopes):
        return multivariate_normal.logpdf(y, cov=slopes * X @ X.T + np.diag(variance))

    expected = max(log_density(factor / 3) for factor in (1.0, 100.0, 1e4)) - log_density(0.0)
    assert_allclose(measure_gain(X, y, variance), expected)
    assert expected > 10.0
    assert measure_gain(X, rng.standard_normal(30) * np.sqrt(variance), variance) < 2.0
    constant = np.column_stack([X[:, :2], np.zeros(30)])
    assert np.isfinite(measure_gain(constant, y, variance))


def test_rows_count_as_often_as_they_are_there(rng):
    X, y, variance = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.uniform(0.1, 1, 30)
    count = rng.integers(1, 4, 30)
    twice = (np.repeat(values, count, axis=0) for values in (X, y, variance))
    assert_allclose(measure_gain(X, y, variance, count), measure_gain(*twice))


def test_lines_are_added_to_what_has_been_learned(rng):
    """Steep ones where gentle ones, and any function of one input, are noise."""
    a, difference = rng.standard_normal((2, 80))
    X, y = np.column_stack([a, a + 0.01 * difference]), difference + 0.2 * rng.standard_normal(80)
    _, kernel = make_base_kernels(2)[0]
    groups = [(X, y, None)]
    known = train(start_process(kernel, gaussian=True), groups, max_iter=20, tol=1e-5)
    found = train_lines(known, groups, 2, max_iter=20, tol=1e-5)
    assert found.value > known.value + 20.0
    assert found.process.noise < 0.1
    assert_allclose(found.value, measure_posterior(found.process, groups))


def test_there_is_no_steep_start_where_nothing_is_steep(rng):
    X = rng.standard_normal((60, 2))
    groups = [(X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60), None)]
    name, kernel = make_base_kernels(2)[0]
    known = train(start_process(kernel, gaussian=True), groups, max_iter=20, tol=1e-5)
    with_lines = start_process(add_lines(name, known.process.kernel, 2)[1], gaussian=True)
    assert find_steep_start(with_lines, groups, known.value) is None


def test_lines_start_beside_a_kernel_that_stays(rng):
    """With a part of its noise."""
    a, b, difference = rng.standard_normal((3, 80))
    X = np.column_stack([a, a + 0.01 * difference, b])
    y = np.sin(2.0 * b) + difference + 0.1 * rng.standard_normal(80)
    _, kernel = make_base_kernels(3)[-1]
    leaf = replace(kernel.kernels[1], length_scale=np.array([100.0, 100.0, 0.7]))
    kernel = kernel.kernels[0] * leaf
    known = replace(start_process(kernel, gaussian=True), noise=1.0)
    found = find_start_beside(known, [(X, y, None)], 3)
    assert found.noise == pytest.approx(0.01)
    assert found.kernel.kernels[0] == kernel
    assert_allclose(found.kernel.kernels[1].diag(X), np.sum(X**2, axis=1) * 1e4 / 3)
    assert measure_posterior(found, [(X, y, None)]) > measure_posterior(known, [(X, y, None)]) + 50
