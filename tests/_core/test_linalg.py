"""Factorisations against NumPy's, and the jitter policy."""

import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core import linalg
from skvbgp._core.linalg import (
    NotPositiveDefiniteError,
    cholesky,
    cholesky_vjp,
    eigh,
    extend_inverse,
    factorise_bordered,
    find_extremes,
    inverse_from_cholesky,
    jittered_cholesky,
    log_determinant,
    outer_factors,
    pack_lower,
    solve_stack,
    symmetric_product,
    tril_congruence,
    tril_gram,
    tril_inverse,
    tril_times,
    triu_congruence,
    triu_times,
    unpack_lower,
    unpack_symmetric,
    whiten_bordered,
)
from tests.derivatives import symmetric_gradient

LEAF, ROWS = linalg._INVERSE_LEAF, linalg._BLOCK_ROWS


def well_conditioned(m, rng):
    root = rng.normal(size=(m, m))
    return root @ root.T / m + np.eye(m)


def test_first_jitter_is_relative_to_the_mean_diagonal(rng):
    """The factor squares to K (1 + 1e-8) on the diagonal, at every scale, to rounding."""
    K = well_conditioned(6, rng)
    K *= np.outer(np.arange(1, 7), np.arange(1, 7))  # the diagonal varies
    for scale in (1e-6, 1.0, 1e6):
        L = jittered_cholesky(scale * K)
        added = (L @ L.T - scale * K) / scale
        expected = 1e-8 * np.mean(np.diagonal(K)) * np.eye(6)
        assert_allclose(added, expected, rtol=0, atol=100 * 2.2e-16 * K.max())
        assert_array_equal(np.triu(L, 1), 0.0)


@pytest.mark.parametrize("defect", [3e-8, 3e-7, 3e-6, 3e-4, 3e-3])
def test_jitter_grows_only_as_far_as_needed(rng, defect):
    """One eigenvalue is -defect: the jitter is between it and ten times it (of the mean, 1)."""
    m = 5
    basis, _ = np.linalg.qr(rng.normal(size=(m, m)))
    eigenvalues = np.array([-defect, 1.0, 1.0, 1.0, 2.0 + defect])  # mean 1
    K = basis @ np.diag(eigenvalues) @ basis.T
    L = jittered_cholesky(K)
    added = np.diagonal(L @ L.T - K)
    assert_allclose(added, added[0], atol=1e-14)
    assert defect < added[0] <= 10.0 * defect * (1.0 + 1e-6)


def test_jitter_of_a_singular_matrix_is_the_first():
    K = np.ones((4, 4))
    L = jittered_cholesky(K)
    assert_allclose(L @ L.T - K, 1e-8 * np.eye(4), atol=1e-15)


def test_the_argument_is_not_modified(rng):
    K = well_conditioned(4, rng)
    K.flags.writeable = False
    jittered_cholesky(K)
    cholesky(K)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
def test_entries_that_are_not_finite(rng, entry):
    K = well_conditioned(3, rng)
    K[2, 1] = entry
    with pytest.raises(NotPositiveDefiniteError, match="The thing has entries that are not finite"):
        jittered_cholesky(K, "thing")


def test_indefinite_matrix():
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    for function in (jittered_cholesky, cholesky):
        with pytest.raises(NotPositiveDefiniteError, match="The thing is not positive definite"):
            function(K, "thing")


def test_error_is_arithmetic():
    """Callers tell a numerical failure from a bad argument by its type."""
    assert issubclass(NotPositiveDefiniteError, ArithmeticError)
    assert not issubclass(NotPositiveDefiniteError, ValueError)


def test_cholesky_adds_nothing_unless_it_has_to(rng):
    K = well_conditioned(5, rng)
    assert_array_equal(cholesky(K), np.linalg.cholesky(K))
    singular = np.ones((3, 3)) - 1e-12 * np.eye(3)
    assert_array_equal(cholesky(singular), jittered_cholesky(singular))


@pytest.mark.parametrize("m", [0, 1, 2, 17, 33, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF + 1, 3 * LEAF])
def test_tril_inverse(rng, m):
    """Condition number of L below 10: the product is the identity to m eps."""
    L = np.linalg.cholesky(well_conditioned(m, rng))
    inverse = tril_inverse(L)
    assert_allclose(inverse @ L, np.eye(m), rtol=0, atol=m * 2.2e-15)
    assert_array_equal(np.triu(inverse, 1), 0.0)


@pytest.mark.parametrize("m", [1, 5])
def test_extend_inverse(rng, m):
    C = well_conditioned(17, rng)
    expected, first = tril_inverse(np.linalg.cholesky(C)), slice(17 - m)
    L_inv, rest = tril_inverse(np.linalg.cholesky(C[first, first])), slice(17 - m, 17)
    assert_allclose(extend_inverse(L_inv, C[first, rest], C[rest, rest]), expected, atol=1e-13)
    with pytest.raises(NotPositiveDefiniteError):
        extend_inverse(10.0 * L_inv, C[first, rest], C[rest, rest])


def test_a_triangle_without_an_inverse_is_an_error():
    with pytest.raises(np.linalg.LinAlgError, match="zero on its diagonal"):
        tril_inverse(np.diag([1.0, 0.0]))


@pytest.mark.parametrize("m", [1, 7])
def test_whitening_by_a_border(rng, m):
    C, y = well_conditioned(m, rng), rng.normal(size=m)
    L = np.linalg.cholesky(C)
    above = np.triu(rng.normal(size=(m, m)), 1)  # does not matter
    log_det, white = whiten_bordered(np.tril(C) + above, y, float(np.linalg.eigvalsh(C).min()))
    assert_allclose(log_det, log_determinant(L), rtol=1e-12, atol=1e-14)
    assert_allclose(L @ white, y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("m", [3, LEAF + 5])
def test_inverse_and_determinant(rng, m):
    K = well_conditioned(m, rng)
    L = np.linalg.cholesky(K)
    assert_allclose(inverse_from_cholesky(L), np.linalg.inv(K), rtol=0, atol=1e-12)
    assert_allclose(log_determinant(L), np.linalg.slogdet(K)[1], rtol=1e-12)


def test_cholesky_vjp(rng):
    m = 5
    K, dL = well_conditioned(m, rng), np.tril(rng.normal(size=(m, m)))
    L = np.linalg.cholesky(K)
    expected = symmetric_gradient(lambda K: np.sum(dL * np.linalg.cholesky(K)), K)
    dK = cholesky_vjp(L.T @ dL, tril_inverse(L))
    assert_allclose(dK, expected, rtol=1e-8, atol=1e-9)
    # the upper triangle of L' dL does not matter
    above = np.triu(rng.normal(size=(m, m)), 1)
    assert_array_equal(cholesky_vjp(np.tril(L.T @ dL) + above, tril_inverse(L)), dK)


@pytest.mark.parametrize("m", [1, 5, 2 * ROWS, 9 * ROWS + 7])
def test_congruences(rng, m):
    """Products of m numbers below 5, summed m times: to m^2 eps."""
    L, S = np.tril(rng.uniform(-1.0, 1.0, (m, m))), rng.uniform(-1.0, 1.0, (m, m))
    S += S.T
    for result, expected in (
        (tril_congruence(L, S), L @ S @ L.T),
        (triu_congruence(L, S), L.T @ S @ L),
    ):
        assert_allclose(result, expected, rtol=0, atol=m * m * 2e-16)


@pytest.mark.parametrize("m", [1, 5, 2 * ROWS, 9 * ROWS + 7])
def test_products_of_triangles(rng, m):
    """In both memory orders, and of a matrix with few columns."""
    L, A = np.tril(rng.uniform(-1.0, 1.0, (m, m))), rng.uniform(-1.0, 1.0, (m, 3))
    for B in (A, np.asfortranarray(A)):
        assert_allclose(tril_times(L, B), L @ B, rtol=0, atol=m * 4e-16)
        assert_allclose(triu_times(L, B), L.T @ B, rtol=0, atol=m * 4e-16)
        assert tril_times(L, B).flags.f_contiguous == B.flags.f_contiguous
    assert_allclose(tril_gram(L), L.T @ L, rtol=0, atol=m * m * 2e-16)
    S = well_conditioned(3, rng)
    assert_allclose(symmetric_product(A, A @ S), A @ S @ A.T, rtol=0, atol=2e-14)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_products_of_few_columns(rng, k):
    u, v = rng.normal(size=(4, k)), rng.normal(size=(5, k))
    left, right = outer_factors(u, v)
    assert left.shape[1] > 1  # NumPy would not ask BLAS
    assert_allclose(left @ right, u @ v.T, rtol=0, atol=1e-15)


def test_triangle_of_a_symmetric_matrix(rng):
    for m in (1, 2, 7):
        S = well_conditioned(m, rng)
        triangle = pack_lower(S)
        assert triangle.shape == (m * (m + 1) // 2,)
        assert_array_equal(unpack_symmetric(triangle), S)
        assert_array_equal(unpack_lower(triangle, m), np.tril(S))


def test_a_stack_is_solved_matrix_by_matrix(rng):
    K = np.stack([well_conditioned(5, rng) for _ in range(3)])
    B = rng.normal(size=(3, 5, 2))
    for matrix, b, x in zip(K, B, solve_stack(K, B), strict=True):
        assert_allclose(matrix @ x, b, atol=1e-12)


def test_a_singular_matrix_of_a_stack_has_jitter(rng):
    K, B = np.stack([well_conditioned(4, rng), np.ones((4, 4))]), np.ones((2, 4, 1))
    assert_allclose(K @ solve_stack(K, B), B, rtol=1e-6)


def test_a_stack_that_is_not_finite_has_a_clear_error():
    with pytest.raises(NotPositiveDefiniteError, match="of neighbours"):
        solve_stack(
            np.stack([np.zeros((2, 2)), np.full((2, 2), np.nan)]),
            np.ones((2, 2, 1)),
            "of neighbours",
        )


def test_matrices_with_borders_are_factorised_one_by_one(rng):
    """One that needs more jitter than the others leaves them as they are."""
    K = np.stack([well_conditioned(6, rng) for _ in range(4)])
    Y, noise = rng.normal(size=(4, 2, 5)), rng.uniform(0.1, 1.0, (4, 5))
    K[2], noise[2] = 1.0, 1e-9
    K[2, [0, 1], [1, 0]] = 1.0 + 1e-4  # more than the first attempt's jitter
    found = factorise_bordered(K, Y, noise)
    for i in range(4):
        for part, expected in zip(found, factorise_bordered(K[i], Y[i], noise[i]), strict=True):
            assert_array_equal(part[i], expected)
    assert found.factor[2, 0, 0] ** 2 > 1.0 + 1e-6
    C = K[0, :5, :5] + np.diag(noise[0])
    assert_allclose(found.factor[0] @ found.factor[0].T, C, rtol=1e-6)
    assert_allclose(found.factor[0] @ found.place[0], K[0, 5, :5], rtol=1e-6)
    assert_allclose(found.factor[0] @ found.targets[0].T, Y[0].T, rtol=1e-6)
    assert_allclose(C @ found.solve_place(0), K[0, 5, :5], rtol=1e-6)


@pytest.mark.thorough
def test_other_threads_run_during_a_factorisation():
    K, shares = np.eye(1_501), []

    def watch(done):
        times = [time.perf_counter()]
        while not done.wait(1e-4):
            times.append(time.perf_counter())
        times.append(time.perf_counter())
        shares.append(np.diff(times).max() / (times[-1] - times[0]))

    for _ in range(5):  # of which one has the machine for itself
        done = threading.Event()
        watcher = threading.Thread(target=watch, args=(done,))
        watcher.start()
        factorise_bordered(K, np.zeros((1, 1_500)), np.ones(1_500))
        done.set()
        watcher.join()
    assert min(shares) < 0.35


@pytest.fixture
def fails(monkeypatch):
    """NumPy's decomposition does not converge."""

    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", fail)


@pytest.mark.parametrize("upper", [False, True])
def test_eigenvalues_are_found_in_another_way(upper, fails):
    rng = np.random.default_rng(0)
    K = rng.standard_normal((6, 6))
    A = np.triu(K) + np.triu(K, 1).T if upper else np.tril(K) + np.tril(K, -1).T
    before = K.copy()
    values, V = eigh(K, upper=upper)
    assert_array_equal(K, before)
    assert np.all(np.diff(values) > 0.0)
    assert_allclose(V.T @ V, np.eye(6), atol=1e-14)
    assert_allclose((V * values) @ V.T, A, atol=1e-14)


def test_there_are_no_eigenvalues_of_what_is_not_finite(fails):
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        eigh(np.full((2, 2), np.nan))


def test_extreme_eigenvalues():
    """Those far from a cluster are found by few products; the vectors are orthonormal."""
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.standard_normal((80, 80)))[0]
    exact = np.concatenate([[-3.0], rng.uniform(0.9, 1.1, 77), [9.0, 50.0]])
    A = V @ np.diag(exact) @ V.T
    values, vectors = find_extremes(lambda v: A @ v, rng.standard_normal(80), 15)
    assert vectors.shape == (80, 15)
    assert_allclose(vectors.T @ vectors, np.eye(15), atol=1e-12)
    assert_allclose(values[[0, -2, -1]], [-3.0, 9.0, 50.0], atol=1e-6)
    assert_allclose(np.abs(vectors[:, -1] @ V[:, -1]), 1.0, atol=1e-6)
    assert_allclose(vectors.T @ A @ vectors, np.diag(values), atol=1e-10)


@pytest.mark.parametrize("n_steps", [3, 10])
def test_extremes_end_where_nothing_is_left(n_steps):
    """As two eigenvalues have two directions."""
    values, vectors = find_extremes(lambda v: v * [1.0, 1.0, 1.0, 4.0], np.ones(4), n_steps)
    assert_allclose(values, [1.0, 4.0])
    assert vectors.shape == (4, 2)
    values, _ = find_extremes(lambda v: 2.0 * v, np.ones(1), n_steps)
    assert_allclose(values, [2.0])
