"""The bound: gradients, literal twins, limits."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import jittered_cholesky
from skvbgp.decoupled._basis import Basis, GeneralizedSE
from skvbgp.decoupled._bound import Evaluation
from skvbgp.decoupled._inputwise import InputwiseSE
from skvbgp.decoupled._likelihoods import Gaussian, Probit, StudentT
from skvbgp.decoupled._training import Ascent
from tests.decoupled.problems import (
    LIKELIHOODS,
    M_ALPHA,
    M_BETA,
    PARAMETRIZATIONS,
    D,
    as_rows,
    is_there,
    make_problem,
)
from tests.derivatives import assert_slopes, numerical_gradient
from tests.oracles.decoupled import (
    gaussian_expectation,
    generalized_se,
    kl_dense,
    kl_theorem_1,
    sparse_gp,
)

each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
kinds = pytest.mark.parametrize("kind", ["generalized", "inputwise", "plain"])
EVERY_POINT = np.arange(M_ALPHA)
SOME_POINTS = np.array([4, 1, 3])


def bound_of(model, parameters, q, X, y, *, weight=1.0, sample=EVERY_POINT):
    return Evaluation(model, parameters, q).evaluate(as_rows(X, y), weight, sample)[0]


def assert_gradient(parametrization, kind, likelihood, sample, n_functions=1, whole=False):
    model, parameters, q, X, y = make_problem(
        parametrization, kind, likelihood, n_functions=n_functions
    )

    def value(x):
        return bound_of(model, parameters.unpack(x), q, X, y, weight=1.7, sample=sample)

    _, gradient, _ = Evaluation(model, parameters, q).evaluate(as_rows(X, y), 1.7, sample)
    x, gradient, there = parameters.pack(), gradient.pack(), is_there(parameters)
    assert_slopes(value, x, gradient, atol=5e-6, where=there)
    if whole:
        assert_allclose(gradient, there * numerical_gradient(value, x), rtol=1e-6, atol=1e-6)


@pytest.mark.thorough
@each
@kinds
@pytest.mark.parametrize("sample", [EVERY_POINT, SOME_POINTS], ids=["all", "some"])
@pytest.mark.in_turn("kind", "sample")
def test_gradient(parametrization, kind, sample):
    """Propositions 2 and 3, in every hyperparameter, location, multiplier and coefficient."""
    assert_gradient(parametrization, kind, Gaussian(), sample, whole=True)


@each
@kinds
@pytest.mark.in_turn("kind")
def test_gradient_of_several_functions(parametrization, kind):
    assert_gradient(parametrization, kind, Probit(), SOME_POINTS, n_functions=3)


@each
@kinds
@pytest.mark.every_nth("kind", 2)
def test_several_functions_are_models_of_one_that_share_their_bases(parametrization, kind):
    model, p, q, X, y = make_problem(parametrization, kind, Probit(), n_functions=3)
    whole = Evaluation(model, p, q)
    value, gradient, cotangents = whole.evaluate(as_rows(X, y), 1.7, SOME_POINTS)
    moments, values, thetas = whole.process.moments(X), [], []
    for k in range(3):
        own = replace(p, a0=p.a0[:, [k]], L0=p.L0[[k]])
        one = Evaluation(model, own, q and q[k : k + 1])
        own_value, own_gradient, own_cotangents = one.evaluate(
            as_rows(X, y[:, [k]]), 1.7, SOME_POINTS
        )
        values.append(own_value)
        thetas.append(own_gradient.theta)
        assert_allclose(gradient.a0[:, [k]], own_gradient.a0, rtol=1e-8, atol=1e-10)
        assert_allclose(gradient.L0[[k]], own_gradient.L0, rtol=1e-8, atol=1e-10)
        for found, expected in zip(moments, one.process.moments(X), strict=True):
            assert_allclose(found[:, [k]], expected, rtol=1e-10)
        if q is not None:
            after = whole.natural_step(cotangents, 0.3)[k]
            (expected,) = one.natural_step(own_cotangents, 0.3)
            assert_allclose(after.precision, expected.precision, rtol=1e-8, atol=1e-10)
            assert_allclose(after.shift, expected.shift, rtol=1e-8, atol=1e-10)
    assert_allclose(value, np.sum(values), rtol=1e-10)
    assert_allclose(gradient.theta, np.sum(thetas, axis=0), rtol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS[1:], ids=lambda one: type(one).__name__)
def test_gradient_of_other_likelihoods(likelihood):
    assert_gradient("orthogonal", "generalized", likelihood, SOME_POINTS)


# -- literal twins -----------------------------------------------------------------------------


def dense(model, parameters, X):
    """Gram matrices among the rows, the mean basis and the covariance basis, by name."""
    kernel = model.kernel.with_theta(parameters.theta)
    bases = {"x": Basis(X), "a": parameters.mean_basis, "b": parameters.cov_basis}
    return lambda s, t: kernel(bases[s], bases[t])


@pytest.mark.parametrize("kind", ["generalized", "inputwise"])
def test_generalized_kernel(kind):
    model, p, _, X, _ = make_problem(kind=kind)
    K = dense(model, p, X)
    ones, variance, s = np.ones(len(X)), np.exp(p.theta[0]), np.exp(p.theta[1:])
    c_a, c_b = np.exp(p.alpha_log_c), np.exp(p.beta_log_c)
    for name, Z, c in (("a", p.alpha, c_a), ("b", p.beta, c_b), ("x", X, ones)):
        expected = generalized_se(X, ones, Z, c, variance, s)
        assert_allclose(K("x", name), expected, rtol=1e-10)
    assert_allclose(K("b", "a"), generalized_se(p.beta, c_b, p.alpha, c_a, variance, s), rtol=1e-10)
    assert_allclose(K("b", "x"), K("x", "b").T, rtol=1e-10)


def test_equal_multipliers_of_all_inputs_are_those_of_the_points():
    """Values and gradients of the two generalised kernels, in all pairs of bases."""
    model, p, q, X, y = make_problem()
    inputwise = replace(model, kernel=InputwiseSE(p.theta[0], p.theta[1:]))
    repeated = {
        name: np.repeat(getattr(p, name)[:, None], D, axis=1)
        for name in ("alpha_log_c", "beta_log_c")
    }
    value, gradient, _ = Evaluation(model, p, q).evaluate(as_rows(X, y), 1.0, SOME_POINTS)
    same, by_input, _ = Evaluation(inputwise, replace(p, **repeated), q).evaluate(
        as_rows(X, y), 1.0, SOME_POINTS
    )
    assert_allclose(same, value, rtol=1e-10)
    summed = {name: getattr(by_input, name).sum(axis=1) for name in repeated}
    found = replace(by_input, **summed).pack()
    assert_allclose(found, gradient.pack(), rtol=1e-8, atol=1e-8)


@kinds
def test_decoupled_is_theorem_1(kind):
    model, p, _, X, y = make_problem("decoupled", kind)
    K, kernel = dense(model, p, X), model.kernel.with_theta(p.theta)
    L = p.L0[0] / kernel.diag(p.cov_basis)[:, None]
    a, B = p.a0[:, 0] / kernel.diag(p.mean_basis), L @ L.T + 1e-12 * np.eye(M_BETA)
    nothing = np.zeros((0, 0))

    def gram(s, t):
        return (
            K(s, t) if "A" not in s + t and "B" not in s + t else np.zeros((len_of(s), len_of(t)))
        )

    def len_of(name):
        return {"a": M_ALPHA, "b": M_BETA}.get(name, 0)

    kl = kl_theorem_1(gram, a, B, np.zeros(0), nothing)
    R = np.linalg.inv(np.linalg.inv(B) + K("b", "b"))
    mean = K("x", "a") @ a
    variance = np.diag(K("x", "x") - K("x", "b") @ R @ K("b", "x"))
    process = Evaluation(model, p, None).process
    for found, expected in zip(process.moments(X), (mean, variance), strict=True):
        assert_allclose(found[:, 0], expected, rtol=1e-6, atol=1e-8)
    expected = gaussian_expectation(y[:, 0], mean, variance, np.exp(p.noise[0])) - kl
    assert_allclose(bound_of(model, p, None, X, y), expected, rtol=1e-7)


@kinds
@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
def test_coupled_part_and_residual_basis(parametrization, kind):
    """Eqs. (12)-(14), with the mean as a point of the reproducing kernel space."""
    model, p, q, X, y = make_problem(parametrization, kind)
    K, kernel = dense(model, p, X), model.kernel.with_theta(p.theta)
    a = p.a0[:, 0] / kernel.diag(p.mean_basis)
    L = jittered_cholesky(K("b", "b"))
    m, S = L @ q[0].mean, L @ q[0].covariance @ L.T
    Kbb = L @ L.T
    if parametrization == "orthogonal":
        m = m - K("b", "a") @ a
    mean, covariance, _ = sparse_gp(K("x", "x"), K("x", "b"), Kbb, m, S)
    mean = mean + K("x", "a") @ a
    b = np.linalg.solve(Kbb, m)  # the mean function is k_b b + k_a a
    norm = b @ Kbb @ b + 2.0 * b @ K("b", "a") @ a + a @ K("a", "a") @ a
    kl = kl_dense(np.zeros(M_BETA), S, np.zeros(M_BETA), Kbb) + 0.5 * norm
    found_mean, found_covariance = Evaluation(model, p, q).process.joint(X)
    assert_allclose(found_mean[:, 0], mean, rtol=1e-7)
    assert_allclose(found_covariance[0], covariance, atol=1e-7)
    noise = np.exp(p.noise[0])
    expected = gaussian_expectation(y[:, 0], mean, np.diag(covariance), noise) - kl
    assert_allclose(bound_of(model, p, q, X, y), expected, rtol=1e-6)


@kinds
@pytest.mark.every_nth("kind", 2)
def test_no_residual_basis_is_the_conventional_model(kind):
    """Eq. (14) with a_r = 0, and with no residual points at all."""
    for parametrization in ("orthogonal", "hybrid"):
        model, p, q, X, y = make_problem(parametrization, kind)
        without = replace(p, alpha=p.alpha[:0], alpha_log_c=p.alpha_log_c[:0], a0=p.a0[:0])
        K = dense(model, p, X)
        L = jittered_cholesky(K("b", "b"))
        mean, covariance, kl = sparse_gp(
            K("x", "x"), K("x", "b"), L @ L.T, L @ q[0].mean, L @ q[0].covariance @ L.T
        )
        expected = gaussian_expectation(y[:, 0], mean, np.diag(covariance), np.exp(p.noise[0])) - kl
        for parameters in (without, replace(p, a0=0.0 * p.a0)):
            sample = np.arange(len(parameters.alpha))
            found = bound_of(model, parameters, q, X, y, sample=sample)
            assert_allclose(found, expected, rtol=1e-8)
            assert_allclose(Evaluation(model, parameters, q).process.moments(X)[0][:, 0], mean)


@kinds
def test_equal_bases_are_the_coupled_model(kind):
    """alpha = beta, a = K^-1 m and B with (B^-1 + K)^-1 = K^-1 (K - S) K^-1.

    The coupled model adds jitter to K, the direct one does not: points of the basis are so far
    apart that it is nothing beside K's eigenvalues.
    """
    model, p, q, X, y = make_problem("orthogonal", kind)
    p = replace(p, beta=np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]))
    kernel = model.kernel.with_theta(p.theta)
    (q,) = q
    q = WhitenedGaussian(q.precision + 0.5 * np.eye(M_BETA), q.shift)  # S below the prior
    K = dense(model, p, X)
    Kbb = K("b", "b")
    L = jittered_cholesky(Kbb)
    a = np.linalg.solve(L.T, q.mean)
    R = np.linalg.solve(L.T, np.linalg.solve(L.T, np.eye(M_BETA) - q.covariance).T)
    root = np.linalg.cholesky(np.linalg.inv(np.linalg.inv(R) - Kbb))
    diag = kernel.diag(p.cov_basis)
    direct = replace(
        p,
        alpha=p.beta,
        alpha_log_c=p.beta_log_c,
        a0=(a * diag)[:, None],
        L0=(root * diag[:, None])[None],
    )
    coupled = replace(p, alpha=p.alpha[:0], alpha_log_c=p.alpha_log_c[:0], a0=p.a0[:0])
    decoupled_model = replace(model, parametrization="decoupled")
    some = np.arange(M_BETA)
    found = bound_of(decoupled_model, direct, None, X, y, sample=some)
    expected = bound_of(model, coupled, (q,), X, y, sample=some[:0])
    assert_allclose(found, expected, rtol=1e-8)
    moments = Evaluation(decoupled_model, direct, None).process.moments(X)
    for mine, theirs in zip(
        moments, Evaluation(model, coupled, (q,)).process.moments(X), strict=True
    ):
        assert_allclose(mine, theirs, rtol=1e-8)


@each
def test_nothing_learned_is_the_prior(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    q = None if q is None else (WhitenedGaussian.standard(M_BETA),)
    p = replace(p, a0=0.0 * p.a0, L0=0.0 * p.L0)
    prior = np.full(len(X), np.exp(p.theta[0]))
    mean, variance = Evaluation(model, p, q).process.moments(X)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(variance[:, 0], prior, rtol=1e-8)
    expected = gaussian_expectation(y[:, 0], np.zeros(len(y)), prior, np.exp(p.noise[0]))
    assert_allclose(bound_of(model, p, q, X, y), expected, rtol=1e-8)


# -- estimates and steps -----------------------------------------------------------------------


@each
@pytest.mark.every_nth("parametrization", 2)
def test_batches_and_samples_are_unbiased(parametrization):
    """Over a partition of rows and points, values and gradients average to the exact ones."""
    model, p, q, X, y = make_problem(parametrization)
    exact = Evaluation(model, p, q).evaluate(as_rows(X, y), 1.0, EVERY_POINT)
    parts = [
        Evaluation(model, p, q).evaluate(
            as_rows(X[i : i + 3], y[i : i + 3]), 3.0, EVERY_POINT[j : j + 2]
        )
        for i in (0, 3, 6)
        for j in (0, 2, 4)
    ]
    assert_allclose(np.mean([part[0] for part in parts]), exact[0], rtol=1e-10)
    gradients = np.mean([part[1].pack() for part in parts], axis=0)
    assert_allclose(gradients, exact[1].pack(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", [GeneralizedSE, InputwiseSE])
@pytest.mark.parametrize("distance", [0.0, 1e2, 1e7])
def test_rounding_makes_no_covariance_larger_than_a_variance(kernel, distance):
    """Squares of distances from the origin are rounded, the more the farther it is."""
    X = np.random.default_rng(0).standard_normal((60, 2))
    X[::2] += distance
    log_c = np.zeros(60) if kernel is GeneralizedSE else np.zeros((60, 2))
    rows, points = Basis(X), Basis(X, log_c)
    for pair in ((rows, rows), (rows, points), (points, rows)):
        assert kernel(0.0, np.zeros(2))(*pair).max() <= 1.0 + 1e-10


@pytest.mark.parametrize("m", [0, 5, 128, 129, 1000])
def test_points_of_the_mean_basis_take_turns(m):
    ascent = Ascent((m, 1), 0.1, learn_hyperparameters=True, first_turn=77)
    n_turns = max(1, -(-m // 128))
    turns = [ascent.take_turns(m, step) for step in range(3, 3 + n_turns)]
    assert_array_equal(np.sort(np.concatenate(turns)), np.arange(m))
    sizes = [len(turn) for turn in turns]
    assert max(sizes) <= 128
    assert max(sizes) - min(sizes) <= 1


def test_tiles_change_nothing(monkeypatch):
    model, p, q, X, y = make_problem()
    expected = Evaluation(model, p, q).evaluate(as_rows(X, y), 1.0, EVERY_POINT)
    monkeypatch.setattr("skvbgp.decoupled._bound._TILE_ROWS", 2)
    found = Evaluation(model, p, q).evaluate(as_rows(X, y), 1.0, EVERY_POINT)
    assert_allclose(found[0], expected[0], rtol=1e-12)
    assert_allclose(found[1].pack(), expected[1].pack(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
@pytest.mark.every_nth("parametrization", 2)
def test_a_full_natural_step_is_the_optimum_of_a_gaussian_likelihood(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    evaluation = Evaluation(model, p, q)
    best = evaluation.natural_step(evaluation.evaluate(as_rows(X, y), 1.0, EVERY_POINT)[2], 1.0)
    value = bound_of(model, p, best, X, y)
    (best,) = best
    rng = np.random.default_rng(1)
    for _ in range(20):
        delta = 0.01 * rng.standard_normal((M_BETA, M_BETA))
        other = WhitenedGaussian(
            best.precision + delta @ delta.T, best.shift + 0.01 * rng.standard_normal(M_BETA)
        )
        assert bound_of(model, p, (other,), X, y) < value
    again = Evaluation(model, p, (best,))
    (same,) = again.natural_step(again.evaluate(as_rows(X, y), 1.0, EVERY_POINT)[2], 1.0)
    assert_allclose(same.shift, best.shift, rtol=1e-8, atol=1e-8)


def test_hybrid_and_orthogonal_steps_agree():
    """The same q(f) in both frames stays the same after a step."""
    model, p, q, X, y = make_problem("orthogonal")
    first = Evaluation(model, p, q)
    v = first.covariance.v
    hybrid_q = WhitenedGaussian(q[0].precision, q[0].shift - q[0].precision @ v[:, 0])
    second = Evaluation(replace(model, parametrization="hybrid"), p, (hybrid_q,))
    assert_allclose(second.process.moments(X)[0], first.process.moments(X)[0], rtol=1e-9)
    after = [
        e.natural_step(e.evaluate(as_rows(X, y), 1.0, EVERY_POINT)[2], 0.3) for e in (first, second)
    ]
    assert_allclose(after[1][0].mean + v[:, 0], after[0][0].mean, rtol=1e-8)


def test_precision_stays_positive_for_a_likelihood_that_is_not_log_concave():
    model, p, q, X, y = make_problem(likelihood=StudentT())
    evaluation = Evaluation(model, p, q)
    cotangents = evaluation.evaluate(as_rows(X, 100.0 * y), 50.0, EVERY_POINT)[2]
    assert np.linalg.eigvalsh(cotangents.curvature[0])[0] >= -1e-10
    (after,) = evaluation.natural_step(cotangents, 1.0)
    assert np.linalg.eigvalsh(after.precision)[0] > 0.0
