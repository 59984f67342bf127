"""One process: its evidence, its gradient and what it says given rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.factor import InverseFactor
from skvbgp._core.linalg import JITTER, NotPositiveDefiniteError, factorise_bordered
from skvbgp.base import pick
from skvbgp.gp import _process
from skvbgp.gp._conditional import bound_variance
from skvbgp.gp._neighbours import predict_places
from skvbgp.gp._process import Process, start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.kernels import RBF, Matern, Periodic
from skvbgp.kernels._candidates import add, make_base_kernels, multiply
from tests.derivatives import numerical_gradient
from tests.gp.cases import predict_from_neighbours
from tests.oracles import gp as oracle


def make_processes():
    apart = np.array([0.7, -0.7])
    bases = [kernel for _, kernel in make_base_kernels(2)]
    kernels = [*bases, multiply(bases[0], bases[3], apart), add(bases[1], bases[4])]
    yield from (start_process(kernel, gaussian=False) for kernel in kernels)
    yield start_process(make_base_kernels(2)[2][1], gaussian=True)
    yield start_process(make_base_kernels(2)[2][1], gaussian=True, one_scale=True)
    yield Process((0.7 * Periodic(1.5) * RBF([0.5, 2.0])).bind(2), 0.02, 3.0)


PROCESSES = list(make_processes())


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((12, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(12)


def loaded(process, X, jitter=JITTER):
    """The kernel's matrix with the jitter of a factorisation."""
    K = process.kernel(X)
    return K + jitter * (np.mean(np.diag(K)) + process.noise) * np.eye(len(X))


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_evidence_is_that_of_the_dense_density(process, rows):
    X, y = rows
    C = loaded(process, X) + process.noise * np.eye(len(X))
    for value in (process.evidence(X, y)[0], process.log_evidence(X, y)):
        assert_allclose(value, oracle.log_student(y, C, process.dof), rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_scales_are_mean_squares_of_whitened_targets(rows, weighted):
    X, y = rows
    process, known = PROCESSES[0], RowNoise.plain(12)
    weight = np.arange(1.0, 13.0) if weighted else np.ones(12)
    known = replace(known, weight=weight) if weighted else None
    C = loaded(process, X) + process.noise * np.diag(1.0 / weight)

    def scale(n):
        return y[:n] @ np.linalg.solve(C[:n, :n], y[:n]) / weight[:n].sum()

    given = process.factorise(X, y, known)
    assert_allclose(given.compare_scales(5), scale(12) / scale(5), rtol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
@pytest.mark.every_nth("process", 3)
def test_gradient_of_the_evidence(process, rows):
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(*rows)[0], process.vector
    )
    assert_allclose(process.evidence(*rows)[1], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_gradient_of_the_prior(process):
    numeric = numerical_gradient(lambda x: process.with_vector(x).log_prior()[0], process.vector)
    assert_allclose(process.log_prior()[1], numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_gaps", [0, 1])  # slopes follow the noise
@pytest.mark.parametrize("noise", [1e-9, 3e-4, 0.003, 0.1, 2.0])
def test_prior_of_few_rows_knows_functions_without_noise(noise, n_gaps):
    kernel = make_base_kernels(2)[2][1]
    few, many = (
        replace(start_process(kernel, gaussian=True, one_scale=one, n_gaps=n_gaps), noise=noise)
        for one in (True, False)
    )
    expected = oracle.log_noise_prior(noise) - oracle.log_noise_prior(noise, noiseless=0.0)
    assert_allclose(few.log_prior()[0] - many.log_prior()[0], expected)
    numeric = numerical_gradient(lambda x: few.with_vector(x).log_prior()[0], few.vector)
    assert_allclose(few.log_prior()[1], numeric, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_neighbours_predict_as_the_dense_innovations_say(process, rows, rng):
    X, y = rows
    C = loaded(process, X) + process.noise * np.eye(len(X))
    for x in rng.standard_normal((3, 2)):
        k, k_own = process.kernel(X, x[None])[:, 0], process.kernel.diag(x[None])[0]
        expected = oracle.predict_from_neighbours(
            C, k, k_own, y, process.noise, process.dof, _process._WINDOW
        )
        assert_allclose(predict_from_neighbours([process], X, y, x)[0], expected, rtol=1e-7)


def test_the_scale_follows_the_nearest_rows():
    """Rows of one place and of a rougher one: there the last, the nearest, decide."""
    rng = np.random.RandomState(0)
    X = np.linspace(0.0, 1.0, 100)[:, None]
    y = rng.standard_normal(100) * np.repeat([1.0, 10.0], 50)
    process = Process(Matern(0.01, nu=0.5).bind(1), 0.1, 5.0)
    calm, rough = (
        predict_from_neighbours([process], X[order], y[order], x)[0]
        for order, x in ((np.arange(100)[::-1], X[0] - 1.0), (np.arange(100), X[-1] + 1.0))
    )
    assert 10.0 < rough[1] / calm[1] < 300.0


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


def test_noise_of_a_known_scale_may_be_smaller():
    kernel = make_base_kernels(2)[0][1]
    exact, local = (start_process(kernel, gaussian=known) for known in (True, False))
    assert exact.bounds[-1, 0] < local.bounds[-2, 0] - np.log(100.0)


@pytest.mark.parametrize("n_outputs", [0, 2])
@pytest.mark.parametrize("with_noise", [False, True])
def test_rows_are_added_to_what_others_say(rng, n_outputs, with_noise):
    process = start_process(Matern([1.0, 2.0], nu=2.5).bind(2), gaussian=False, n_outputs=n_outputs)
    X, y = rng.standard_normal((15, 2)), rng.standard_normal(15)
    if n_outputs:
        X = np.hstack([X, np.eye(n_outputs)[rng.integers(n_outputs, size=15)]])
    known = RowNoise(rng.uniform(0.5, 3.0, 15), rng.uniform(0.0, 1.0, 15)) if with_noise else None
    first = process.factorise(X[:11], y[:11], pick(known, slice(11)))
    found, expected = process.extend(first, X, y, known), process.factorise(X, y, known)
    assert_allclose(found.L_inv, expected.L_inv, rtol=1e-6, atol=1e-8)
    assert_allclose(found.scale.evidence, expected.scale.evidence, rtol=1e-8)
    again = process.extend(found, X, 2.0 * y, known)  # by none
    assert_allclose(again.weights, 2.0 * found.weights)


def test_rows_that_rounding_does_not_let_add_are_factorised_with_all(rows):
    X, y = rows
    process = Process(RBF([1.0, 2.0]).bind(2), 0.1, np.inf)
    wrong = process.factorise(X[:5], y[:5])
    wrong = replace(wrong, factor=InverseFactor(10.0 * wrong.L_inv))  # says too much
    found, expected = process.extend(wrong, X, y, None), process.factorise(X, y)
    assert_array_equal(found.L_inv, expected.L_inv)


def test_no_variance_is_below_the_one_that_all_rows_at_the_place_would_leave(rng):
    process = Process((0.8 * RBF([0.5, 2.0])).bind(2), 0.02, np.inf)
    noise = rng.uniform(0.1, 1.0, 12)
    for X in (rng.standard_normal((12, 2)), np.zeros((12, 2))):
        K = process.kernel(X)
        k, C = K[0], K + np.diag(noise)
        variance = K[0, 0] - k @ np.linalg.solve(C, k)
        least = bound_variance(K[0, 0], k, noise)
        assert 0.0 < least <= variance * (1.0 + 1e-12)
    assert_allclose(variance, least, rtol=1e-12)  # of rows that are all at the place


def test_rounding_leaves_some_variance_where_rows_crowd():
    X = np.random.default_rng(2).standard_normal((60, 2))
    process = Process((1e8 * RBF([50.0, 50.0])).bind(2), 1e-7, np.inf)
    assert np.all(process.factorise(X, np.zeros(60)).moments(X).variance > 1e-10)
    K = np.full((1, 61, 61), 1e8)
    K[:, -1, -1] -= 1e-4  # as rounding does
    variance = predict_places(process, K, np.zeros((1, 60)), None)[0][0, 1]
    assert_allclose(variance, 1e-7 / 60.0, rtol=1e-6)


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
    process = Process((10.0 * RBF(5.0)).bind(2), 1e-4, 10.0)
    C = loaded(process, X, 10.0 * JITTER) + process.noise * np.eye(len(X))
    k, k_own = process.kernel(X, X[:1])[:, 0], process.kernel.diag(X[:1])[0]
    expected = oracle.predict_from_neighbours(
        C, k, k_own, y, process.noise, process.dof, _process._WINDOW
    )
    real, sizes = np.linalg.cholesky, []

    def fails_twice(C):  # with others, of which there are none here, and alone
        sizes.append(C.ndim)
        if len(sizes) == 2:
            monkeypatch.setattr(np.linalg, "cholesky", real)
        raise np.linalg.LinAlgError

    monkeypatch.setattr(_process.np.linalg, "cholesky", fails_twice)
    found = predict_from_neighbours([process], X, y, X[0])[0]
    assert_allclose(found, expected, rtol=1e-5, atol=1e-7)  # the variance is a small difference
    assert sizes == [3, 2]
    monkeypatch.setattr(_process.np.linalg, "cholesky", real)
    with pytest.raises(NotPositiveDefiniteError, match="not a valid covariance"):
        factorise_bordered(-np.eye(3), np.zeros((1, 2)), np.full(2, 0.1))


# -- weights and known noise ---------------------------------------------------------------------


@pytest.fixture
def known(rng):
    """Whole weights, so that rows can be repeated, and variances of which some are zero."""
    weight = rng.integers(1, 4, 12).astype(float)
    return RowNoise(weight, rng.choice([0.0, 0.2, 3.0], 12))


def repeat(process, rows, known):
    """The rows one by one: their covariance without the learned noise, and y."""
    index = np.repeat(np.arange(12), known.weight.astype(int))
    X, y = rows[0][index], rows[1][index]
    return process.kernel(X) + np.diag(known.variance[index]), X, y


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_evidence_of_weighted_rows_is_that_of_repeated_ones(process, rows, known):
    K, _, y = repeat(process, rows, known)
    C = K + process.noise * np.eye(len(y))
    for found in (process.evidence(*rows, known)[0], process.log_evidence(*rows, known)):
        assert_allclose(found, oracle.log_student(y, C, process.dof), rtol=1e-5)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
@pytest.mark.every_nth("process", 4)
def test_gradient_of_the_evidence_of_weighted_rows(process, rows, known):
    known = RowNoise(0.7 * known.weight, known.variance)
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(*rows, known)[0], process.vector
    )
    assert_allclose(process.evidence(*rows, known)[1], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
@pytest.mark.parametrize("has_noise", [False, True])
def test_what_is_kept_of_a_group_gives_the_same_evidence(process, rows, known, has_noise):
    group = (*rows, known if has_noise else None)
    (prepared,) = process.prepare([group])
    (value, gradient), (expected, slope) = process.evidence(*prepared), process.evidence(*group)
    assert_allclose([value, process.log_evidence(*prepared)], expected, rtol=1e-9)
    assert_allclose(gradient, slope, rtol=1e-6, atol=1e-9)


def test_gradient_of_the_evidence_of_several_targets(rows, known, rng):
    """Of weighted rows with gaps."""
    known = replace(known, inputs=rng.exponential(size=(12, 1)))
    process, Y = replace(PROCESSES[-1], slopes=(0.5,)), rng.standard_normal((12, 3))
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(rows[0], Y, known)[0], process.vector
    )
    assert_allclose(process.evidence(rows[0], Y, known)[1], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_predictions_from_weighted_rows_are_those_from_repeated_ones(process, rows, known, rng):
    K, X, y = repeat(process, rows, known)
    x = rng.standard_normal((1, 2))
    expected = oracle.predict_student(
        K, process.kernel(X, x)[:, 0], process.kernel.diag(x)[0], y, process.noise, process.dof
    )
    moments = process.factorise(*rows, known).moments(x)
    found = [moments.mean[0], moments.variance[0], moments.noise]
    assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_a_weighted_neighbour_counts_as_often_for_the_scale(process, rows, known, rng):
    """All equals of a row have its rank; a share of the evidence is that power of a density."""
    X, y = rows
    x = rng.standard_normal(2)
    C = loaded(process, X) + np.diag(known.spread(process.noise) * (1.0 + JITTER))
    k, k_own = process.kernel(X, x[None])[:, 0], process.kernel.diag(x[None])[0]
    expected = oracle.predict_from_neighbours(
        C, k, k_own, y, process.noise, process.dof, _process._WINDOW, known.weight, known.variance
    )
    (found,) = predict_from_neighbours([process], X, y, x, known)
    assert_allclose(found, expected, rtol=1e-6)


def test_a_weighted_row_is_left_out_with_all_its_equals(rows, known):
    X, y = rows
    process = PROCESSES[-2]
    left_out = process.factorise(X, y, known).leave_out(np.array([4]))
    others = np.arange(12) != 4
    expected = process.factorise(X[others], y[others], known[others]).moments(X[4:5])
    assert_allclose(left_out.mean, expected.mean, rtol=1e-5)
    assert_allclose(left_out.variance, expected.variance, rtol=1e-5)


def test_a_row_of_much_noise_says_nothing(rows):
    """Nor does it take precision from the others."""
    X, y = rows
    known = RowNoise(np.ones(12), np.append(np.full(11, 0.0), 1e12))
    gaussian = Process(PROCESSES[0].kernel, PROCESSES[0].noise, np.inf)
    given = gaussian.factorise(X, y, known)
    in_blocks = gaussian.factorise_in_blocks(X, y, known)
    assert_allclose(in_blocks.weights, given.weights, rtol=1e-6)
    found = given.moments(X + 0.1)
    expected = gaussian.factorise(X[:-1], y[:-1]).moments(X + 0.1)
    assert_allclose(found.mean, expected.mean, rtol=1e-6)
    assert_allclose(found.variance, expected.variance, rtol=1e-6)
    (alone,) = predict_from_neighbours([gaussian], X, y, X[0] + 0.1, known)
    assert_allclose(alone[:2], [expected.mean[0], expected.variance[0]], rtol=1e-6)


def test_a_huge_kernel_keeps_a_small_noise(rng):
    """A plane is smooth and large: what is added for rounding must not pass for its noise."""
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, -2.0] + 1e-3 * rng.standard_normal(60)
    process = Process((1e4 * RBF([60.0, 40.0])).bind(2), 1e-6, np.inf)
    left = process.factorise(X, y).leave_out(np.array([7]))
    others = np.arange(60) != 7
    direct = process.factorise(X[others], y[others]).moments(X[7:8])
    assert_allclose(left.mean, direct.mean, atol=1e-5)
    assert_allclose(left.variance + 1e-6, direct.variance + 1e-6, rtol=0.02)
    near = predict_from_neighbours([process], X[others], y[others], X[7])[0]
    assert_allclose(near[0], direct.mean[0], atol=1e-5)
    assert_allclose(near[1] + 1e-6, direct.variance[0] + 1e-6, rtol=0.02)


def test_what_a_process_keeps_is_not_pickled():
    process = start_process(RBF().bind(3), gaussian=True)
    trained = process.with_vector(process.vector)
    assert len(pickle.dumps(trained)) == len(pickle.dumps(process))
    assert pickle.loads(pickle.dumps(trained)) == trained
