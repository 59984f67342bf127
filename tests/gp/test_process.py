"""One process: its evidence, its gradient and what it says given rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.linalg import JITTER
from skvbgp.gp import _process
from skvbgp.gp._candidates import add, make_base_kernels, multiply, start_process
from skvbgp.gp._process import Process, predict_from_neighbours
from skvbgp.kernels import RBF, Matern, Periodic
from tests.derivatives import numerical_gradient
from tests.oracles import gp as oracle


def make_processes():
    rng = np.random.RandomState(0)
    bases = [start_process(kernel, gaussian=False) for _, kernel in make_base_kernels(2)]
    yield from bases
    yield multiply(bases[0], bases[3], rng)
    yield add(bases[1], bases[4], rng)
    yield start_process(make_base_kernels(2)[2][1], gaussian=True)
    yield Process((0.7 * Periodic(1.5) * RBF([0.5, 2.0])).bind(2), 0.02, 3.0)


PROCESSES = list(make_processes())


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((12, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(12)


def loaded(process, X):
    """The kernel's matrix with the jitter of a factorisation."""
    K = process.kernel(X)
    return K + JITTER * (np.mean(np.diag(K)) + process.noise) * np.eye(len(X))


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_evidence_is_that_of_the_dense_density(process, rows):
    X, y = rows
    C = loaded(process, X) + process.noise * np.eye(len(X))
    assert_allclose(process.evidence(X, y)[0], oracle.log_student(y, C, process.dof), rtol=1e-9)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_gradient_of_the_evidence(process, rows):
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(*rows)[0], process.vector
    )
    assert_allclose(process.evidence(*rows)[1], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_gradient_of_the_prior(process):
    numeric = numerical_gradient(lambda x: process.with_vector(x).log_prior()[0], process.vector)
    assert_allclose(process.log_prior()[1], numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_predictions_are_those_of_the_partitioned_density(process, rows, rng):
    X, y = rows
    places = rng.standard_normal((3, 2))
    moments = process.factorise(X, y).moments(places)
    for i, x in enumerate(places):
        expected = oracle.predict_student(
            loaded(process, X),
            process.kernel(X, x[None])[:, 0],
            process.kernel.diag(x[None])[0],
            y,
            process.noise,
            process.dof,
        )
        assert_allclose([moments.mean[i], moments.variance[i], moments.noise], expected, rtol=1e-7)
        alone = predict_from_neighbours([process], X, y, x)[0]
        assert_allclose(alone, [*expected, moments.evidence], rtol=1e-7)


def test_a_row_that_is_left_out_is_predicted_by_the_others(rows):
    """The mean exactly, the variance up to the scale, which is that of all rows."""
    X, y = rows
    process = PROCESSES[1]
    left_out = process.factorise(X, y).leave_out(np.array([4]))
    others = np.delete(X, 4, axis=0), np.delete(y, 4)
    expected = process.factorise(*others).moments(X[4:5])
    assert_allclose(left_out.mean, expected.mean, rtol=1e-5)
    ratio = left_out.noise / expected.noise
    assert_allclose(left_out.variance / ratio, expected.variance, rtol=1e-5)


def test_many_degrees_of_freedom_are_the_gaussian_process(rows):
    X, y = rows
    gaussian = PROCESSES[-2]
    student = Process(gaussian.kernel, gaussian.noise, 1e9)
    assert_allclose(student.evidence(X, y)[0], gaussian.evidence(X, y)[0], rtol=1e-6)
    for a, b in zip(
        student.factorise(X, y).moments(X), gaussian.factorise(X, y).moments(X), strict=True
    ):
        assert_allclose(a, b, rtol=1e-6)


def test_the_scale_follows_the_rows(rows):
    """With few degrees of freedom a function ten times as large is ten times as uncertain."""
    X, y = rows
    process = Process(Matern(nu=0.5).bind(2), 0.1, 0.01)
    small, large = (process.factorise(X, size * y).moments(X + 1.0) for size in (1.0, 10.0))
    assert_allclose(large.variance, 100.0 * small.variance, rtol=0.02)


def test_processes_of_one_kernel_share_its_matrix(rows, monkeypatch):
    X, y = rows
    first, last = (
        Process(kernel.bind(2), 0.1, 5.0) for kernel in (Matern(nu=0.5), RBF(length_scale=2.0))
    )
    processes = [first, replace(first, noise=1.0), last]
    expected = [predict_from_neighbours([process], X, y, X[0])[0] for process in processes]
    n_calls, call = [], Matern.__call__
    monkeypatch.setattr(Matern, "__call__", lambda *args: n_calls.append(1) or call(*args))
    assert_allclose(predict_from_neighbours(processes, X, y, X[0]), expected, rtol=1e-12)
    assert len(n_calls) == 1


def test_a_factorisation_that_fails_gets_more_jitter(rows, monkeypatch):
    X, y = rows
    process = Process((1e4 * RBF(50.0)).bind(2), 1e-7, 10.0)
    expected = process.factorise(X, y).moments(X[:1])
    real = np.linalg.cholesky

    def fails_once(C):
        monkeypatch.setattr(np.linalg, "cholesky", real)
        raise np.linalg.LinAlgError

    monkeypatch.setattr(_process.np.linalg, "cholesky", fails_once)
    result = predict_from_neighbours([process], X, y, X[0])[0]
    assert_allclose(result, [expected[0][0], expected[1][0], *expected[2:]], rtol=1e-12)
