"""The data terms of one group against the literal formulas; every cotangent numerically."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.copies import Copies
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._likelihood import (
    ClosedFormGroup,
    DensePrecision,
    SampledGroup,
    covariance_vjp,
)
from tests.derivatives import numerical_gradient, symmetric_gradient
from tests.oracles import sgpr as oracles

N, M, D = 6, 4, 2
NU, XI = np.array([1.1, 0.6]), np.array([0.1, 0.2])
ALPHA, SECOND = 0.9, 0.96
#: Expectations, with the forms of C for which they are made.
CASES = [
    ("closed", "diagonal"),
    ("closed", "dense"),
    ("common", "diagonal"),
    ("common", "dense"),
    ("by row", "diagonal"),
]


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(N, N))
    V = rng.normal(size=(M, M))
    return {
        "X": rng.normal(size=(N, D)),
        "y": rng.normal(size=N),
        "Z": rng.normal(size=(M, D)),
        "v": rng.normal(size=M),
        "V": V + V.T,
        "diagonal": rng.uniform(0.3, 1.0, size=N),
        "dense": 0.1 * root @ root.T + 0.3 * np.eye(N),
        "common": rng.normal(size=(5, 1, D)),
        "by row": rng.normal(size=(3, N, D)),
    }


def make(problem, expectation, C, *, Z=None, nu=NU, xi=XI):
    Z = problem["Z"] if Z is None else Z
    if expectation == "closed":
        return ClosedFormGroup(problem["X"], problem["y"], C, Z, nu, xi)
    return SampledGroup(problem["X"], problem["y"], C, Z, nu, xi, problem[expectation])


def literal_moments(problem, expectation):
    """Dense functions of C^-1 (n, n): E[K' C^-1 K], and E[K], E[K~], all at unit signal."""
    X, Z = problem["X"], problem["Z"]
    if expectation == "closed":
        return (
            lambda C_inv: oracles.psi(X, Z, NU, XI, 1.0, 0.0, C_inv),
            oracles.omega(X, Z, NU, XI, 1.0),
            oracles.upsilon(X, NU, XI, 1.0, 0.0),
        )
    rotated = [X * (NU + np.sqrt(XI) * e) for e in problem[expectation]]
    K = [oracles.se(x, Z) for x in rotated]
    return (
        lambda C_inv: np.mean([k.T @ C_inv @ k for k in K], axis=0),
        np.mean(K, axis=0),
        np.mean([oracles.se(x, x) for x in rotated], axis=0),
    )


@pytest.mark.parametrize(("expectation", "form"), CASES)
def test_statistics(problem, expectation, form):
    C = problem[form]
    C_inv = np.linalg.inv(np.diag(C) if form == "diagonal" else C)
    psi_of, K, prior = literal_moments(problem, expectation)
    group = make(problem, expectation, C)
    assert_allclose(group.psi, psi_of(C_inv), rtol=1e-11, atol=1e-12)
    assert_allclose(group.prior_trace, np.trace(C_inv @ prior), rtol=1e-11)
    targets = np.column_stack([problem["y"], np.ones(N)])
    assert_allclose(group.information(targets), K.T @ C_inv @ targets, rtol=1e-10, atol=1e-12)
    one = group.information(targets[:, 0])
    assert_allclose(one, K.T @ C_inv @ targets[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("expectation", "form"), CASES)
def test_value(problem, expectation, form):
    """F = E[log N(y | f, C)] with every constant, from the three expectations."""
    y, v, V, C = (problem[name] for name in ("y", "v", "V", form))
    C = np.diag(C) if form == "diagonal" else C
    C_inv = np.linalg.inv(C)
    psi_of, K, prior = literal_moments(problem, expectation)
    expected = -0.5 * (N * math.log(2.0 * math.pi) + np.linalg.slogdet(C)[1] + y @ C_inv @ y)
    expected += ALPHA * y @ C_inv @ K @ v
    expected -= 0.5 * SECOND * (np.trace(V @ psi_of(C_inv)) + np.trace(C_inv @ prior))
    group = make(problem, expectation, problem[form])
    assert_allclose(group.backward(v, V, ALPHA, SECOND).value, expected, rtol=1e-11)


def test_value_against_the_twin(problem):
    """The same with v and V those of a q(s), against App. B."""
    rng = np.random.default_rng(4)
    root, m = rng.normal(size=(M, M)), rng.normal(size=M)
    S, Z = 0.2 * root @ root.T + 0.1 * np.eye(M), problem["Z"]
    Sigma = oracles.sigma_zz(Z)
    Sigma_inv = np.linalg.inv(Sigma)
    V = Sigma_inv @ (S + np.outer(m, m) - Sigma) @ Sigma_inv
    group = make(problem, "closed", problem["dense"])
    expected = oracles.expected_log_likelihood(
        problem["X"], problem["y"], Z, m, S, NU, XI, 0.9, 0.15, problem["dense"]
    )
    actual = group.backward(Sigma_inv @ m, V, 0.9, 0.9**2 + 0.15).value
    assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize(("expectation", "form"), CASES)
@pytest.mark.every_nth("expectation", 3)
def test_gradients(problem, expectation, form):
    """Values of order 100 at most: the stencil's error is below 1e-8 of the largest entry."""
    v, V, C = (problem[name] for name in ("v", "V", form))
    g = make(problem, expectation, C).backward(v, V, ALPHA, SECOND)

    def value(alpha=ALPHA, second=SECOND, C=C, **changed):
        return make(problem, expectation, C, **changed).backward(v, V, alpha, second).value

    def check(actual, expected):
        assert np.shape(actual) == np.shape(expected)
        assert_allclose(actual, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())

    check(g.nu, numerical_gradient(lambda x: value(nu=x), NU))
    check(g.xi, numerical_gradient(lambda x: value(xi=x), XI))
    check(g.Z, numerical_gradient(lambda x: value(Z=x), problem["Z"]))
    check(g.signal[0], numerical_gradient(lambda x: value(alpha=float(x)), ALPHA))
    check(g.signal[1], numerical_gradient(lambda x: value(second=float(x)), SECOND))
    derivative = symmetric_gradient if form == "dense" else numerical_gradient
    check(g.covariance(), derivative(lambda x: value(C=x), C))


@pytest.mark.parametrize(
    ("by_row", "form"), [(False, "diagonal"), (False, "dense"), (True, "diagonal")]
)
@pytest.mark.every_nth("by_row", 3)
def test_sampled_is_unbiased(problem, by_row, form):
    """Single draws average to the closed form: within 5 standard errors of 300."""
    rng = np.random.default_rng(5)
    v, V, C = (problem[name] for name in ("v", "V", form))
    results = []
    for _ in range(300):
        draws = rng.normal(size=(1, N if by_row else 1, D))
        group = SampledGroup(problem["X"], problem["y"], C, problem["Z"], NU, XI, draws)
        g = group.backward(v, V, ALPHA, SECOND)
        results.append(np.concatenate([[g.value, *g.signal], g.nu, g.xi, g.Z.ravel()]))
    exact = make(problem, "closed", C).backward(v, V, ALPHA, SECOND)
    exact = np.concatenate([[exact.value, *exact.signal], exact.nu, exact.xi, exact.Z.ravel()])
    standard_error = np.std(results, axis=0) / math.sqrt(len(results))
    assert np.all(np.abs(np.mean(results, axis=0) - exact) < 5.0 * standard_error)


@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_unit_se(problem, origin):
    """Far from the origin the differences keep their digits: 1e6 eps = 2e-10."""
    X, Z = problem["X"] + origin, problem["Z"] + origin
    assert_allclose(unit_se(X, Z), oracles.se(X, Z), rtol=1e-12 if origin == 0.0 else 1e-8)
    same = unit_se(X, X)
    assert np.all(same <= 1.0)
    assert_allclose(np.diagonal(same), 1.0, rtol=1e-12)
    assert np.all(np.diagonal(unit_se(1e9 * X)) == 1.0)


def test_gradient_in_a_covariance_is_symmetric_to_the_last_digit(rng):
    """What rounding made of it kept training from U's optimum."""
    root = rng.standard_normal((60, 60))
    precision = DensePrecision(root @ root.T + 0.01 * np.eye(60), Copies())
    gradient = covariance_vjp(precision, root + root.T)
    assert_array_equal(gradient, gradient.T)
