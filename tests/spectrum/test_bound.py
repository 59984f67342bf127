"""Features, evidence, q and the bound against their dense twins and central differences."""

from dataclasses import replace

import numpy as np
import pytest

from skvbgp._core.scaling import Coordinates, Target
from skvbgp.spectrum._block_model import BlockModel, evidence_gradient
from skvbgp.spectrum._bound import expected_squared_error, newton_step, sum_statistics
from skvbgp.spectrum._features import (
    features,
    features_vjp,
    function_jacobian,
)
from skvbgp.spectrum._gaussian import Gaussian, Prior, Structure
from skvbgp.spectrum._rows import BlockedRows, Rows
from skvbgp.spectrum._start import draw_frequencies
from skvbgp.spectrum._state import Hyperparameters
from skvbgp.spectrum._training import _move_hyperparameters, estimate_bound
from tests.derivatives import numerical_gradient
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import HYPER, POSTERIORS, D, M

LENGTH_SCALE = np.array([0.8, 1.7])


def gaussian(posterior, rng):
    """Some q with correlations wherever its structure has them."""
    structure = Structure(M, D, posterior)
    precisions = []
    for group in structure.groups:
        A = rng.standard_normal((group.stop - group.start,) * 2)
        precisions.append(10.0 * (A @ A.T + len(A) * np.eye(len(A))))
    return Gaussian(structure, 0.4 * rng.standard_normal(structure.size), tuple(precisions))


# -- features ------------------------------------------------------------------------------


def test_features_are_cosines_and_sines(rng, R):
    X = 50.0 * rng.standard_normal((40, D))
    np.testing.assert_allclose(features(X, R), oracle.design(X, R).T, atol=1e-12)


def test_features_of_many_frequencies_come_in_tiles(rng):
    X, R = rng.standard_normal((7, D)), rng.standard_normal((20_000, D))
    np.testing.assert_allclose(features(X, R)[:, 0::2], np.cos(2 * np.pi * X @ R.T), atol=1e-12)


def test_features_vjp(rng, rows, R):
    X, _ = rows
    dPhi = rng.standard_normal((len(X), 2 * M))
    expected = numerical_gradient(lambda R: np.sum(dPhi * features(X, R)), R)
    np.testing.assert_allclose(features_vjp(X, features(X, R), dPhi), expected, rtol=1e-7)


def test_function_jacobian(rng, rows, R):
    X, _ = rows
    alpha = np.append(R, rng.standard_normal(2 * M))
    J = function_jacobian(X, features(X, R), alpha[M * D :])

    def third_row(alpha):
        return oracle.phi(X[2], alpha[: M * D].reshape(M, D)) @ alpha[M * D :]

    np.testing.assert_allclose(J[2], numerical_gradient(third_row, alpha), rtol=1e-7, atol=1e-9)


def test_kernel_of_many_features_is_the_squared_exponential(rng):
    """At rate 1 / sqrt(m): the scaled error stays the same."""
    X = rng.standard_normal((30, D))
    difference = (X[:, None] - X) / LENGTH_SCALE
    K = np.exp(-0.5 * np.sum(difference**2, axis=2))
    errors = []
    for m in (200, 2_000, 20_000):
        R = rng.standard_normal((m, D)) / (2.0 * np.pi * LENGTH_SCALE)
        Phi = features(X, R)
        errors.append(np.sqrt(m) * np.sqrt(np.mean((Phi @ Phi.T / m - K) ** 2)))
    assert max(errors) < 1.0
    assert max(errors) < 2.0 * min(errors)


def test_starting_frequencies_are_a_mixture_of_scales():
    """Cauchy: the kernel of many is a product of exponentials, up to the cut-off."""
    R = draw_frequencies(100_000, LENGTH_SCALE, np.random.RandomState(0))
    for k, scale in enumerate(LENGTH_SCALE):
        for distance in (0.2, 1.0, 2.0):
            kernel = np.mean(np.cos(2.0 * np.pi * R[:, k] * distance))
            assert kernel == pytest.approx(np.exp(-distance / scale), abs=0.02)


# -- local conditional -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 12])  # fewer and more rows than features
def test_evidence_and_its_gradients(rows, R, n):
    X, y = rows[0][:n], rows[1][:n]
    result = evidence_gradient(Rows(X, y), R, 1.3, 0.2)
    assert result.value == pytest.approx(oracle.log_evidence(X, y, R, 1.3, 0.2), rel=1e-10)
    expected = numerical_gradient(lambda R: oracle.log_evidence(X, y, R, 1.3, 0.2), R)
    np.testing.assert_allclose(result.R, expected, rtol=1e-6, atol=1e-8)

    def of_variances(logs):
        return oracle.log_evidence(X, y, R, *np.exp(logs))

    expected = numerical_gradient(of_variances, np.log([1.3, 0.2]))
    np.testing.assert_allclose(result[2:], expected, rtol=1e-6)


@pytest.mark.parametrize("n", [4, 12])
def test_local_conditional_is_proposition_1_at_gamma_0(rng, rows, R, n):
    X, y = rows[0][:n], rows[1][:n]
    X_new = rng.standard_normal((3, D))
    local, Phi = BlockModel(features(X, R), y, 1.3, 0.2), features(X_new, R)
    expected = [oracle.test_conditional(x, X, y, R, np.zeros(2 * M), 0.0, 1.3, 0.2) for x in X_new]
    mean, variance = np.transpose(expected)
    np.testing.assert_allclose(local.mean(Phi), mean, rtol=1e-9)
    np.testing.assert_allclose(local.covariance(Phi, full=False), variance, rtol=1e-8)
    np.testing.assert_allclose(np.diag(local.covariance(Phi, full=True)), variance, rtol=1e-8)


# -- q(alpha) --------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_factor_is_lower_triangular_and_gives_the_covariance(rng, posterior):
    q = gaussian(posterior, rng)
    M_dense = q.cholesky(np.ones(len(q.mean)))
    assert np.array_equal(M_dense, np.tril(M_dense))
    covariance = M_dense @ M_dense.T
    for k in q.structure.random_groups:
        group = q.structure.groups[k]
        inverse = np.linalg.inv(q.precisions[k])
        np.testing.assert_allclose(covariance[group, group], inverse, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(q.second_moment(), q.mean**2 + np.diag(covariance))
    Z = rng.standard_normal((2, q.structure.size))
    np.testing.assert_allclose(q.sample(Z), q.mean + Z @ M_dense.T)


@pytest.mark.parametrize("posterior", ["joint", "factorised"])
def test_divergence(rng, posterior):
    q = gaussian(posterior, rng)
    prior = Prior.of(q.structure, LENGTH_SCALE, 1.3)
    M_dense = q.cholesky(np.ones(len(q.mean)))
    covariance = M_dense @ M_dense.T
    dense = oracle.prior_covariance(M, LENGTH_SCALE, 1.3)
    expected = oracle.kl(q.mean, covariance, np.zeros(q.structure.size), dense)
    assert q.kl_to(prior) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["signal_variance", "length_scale"])
def test_hyperparameters_in_closed_form_are_nearest_to_q(rng, name):
    q = gaussian("factorised", rng)
    best = _move_hyperparameters(HYPER, q, 1.0, 10.0, 1.0, moves_frequencies=True)
    for factor in (0.95, 1.05):
        other = replace(best, **{name: factor * getattr(best, name)})
        assert q.kl_to(best.prior(q.structure)) < q.kl_to(other.prior(q.structure))


def test_gradient_of_the_divergence_of_the_mean(rng):
    """The prior's part of the gradient of log q / p in b (App. D)."""
    q = gaussian("joint", rng)
    prior = Prior.of(q.structure, LENGTH_SCALE, 1.3)

    def of_mean(b):
        return Gaussian(q.structure, b, q.precisions).kl_to(prior)

    expected = numerical_gradient(of_mean, q.mean)
    np.testing.assert_allclose(prior.times_precision(q.mean), expected, rtol=1e-8)


# -- bound -----------------------------------------------------------------------------------


def test_shift_is_the_gradient_of_the_log_likelihood(rng, rows):
    """App. F, for one draw."""
    alpha = 0.5 * rng.standard_normal(M * (D + 2))
    result = sum_statistics(Structure(M, D, "joint"), alpha[None], Rows(*rows))
    expected = numerical_gradient(lambda alpha: oracle.log_likelihood(alpha, *rows, M, 0.2), alpha)
    np.testing.assert_allclose(result.shift / 0.2, expected, rtol=1e-7)


def unit_frame(d):
    """Scaled coordinates and targets that are those of the user."""
    return Coordinates(np.zeros(d), np.ones(d)), Target(0.0, 1.0)


def unscaled_blocks(X, y, n_blocks):
    return BlockedRows.of(Rows(X, y), *unit_frame(X.shape[1]), n_blocks)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_average_over_blocks_is_the_full_sum(rng, posterior):
    """Unbiasedness, exactly: every mini-batch with its weight, averaged over a pass."""
    X, y = rng.standard_normal((48, D)), rng.standard_normal(48)
    blocks, structure = unscaled_blocks(X, y, 8), Structure(M, D, posterior)
    alphas = 0.5 * rng.standard_normal((3, structure.size))
    full = sum_statistics(structure, alphas, Rows(X, y))
    parts = [
        sum_statistics(structure, alphas, Rows.joined(batch)).times(weight)
        for batch, weight in blocks.minibatches(12, np.random.RandomState(0))
    ]
    assert len(parts) == 4
    for k in range(2):
        average = np.mean([np.asarray(part[k]) for part in parts], axis=0)
        np.testing.assert_allclose(average, full[k], rtol=1e-10)
    for k, curvature in enumerate(full.curvatures):
        average = np.mean([part.curvatures[k] for part in parts], axis=0)
        np.testing.assert_allclose(average, curvature, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_bound_converges_to_its_closed_form(rng, rows):
    """The sampled L(q) against the integral over alpha, which a small problem affords."""
    q = gaussian("joint", rng)
    M_dense = q.cholesky(np.ones(len(q.mean)))
    covariance = M_dense @ M_dense.T
    exact = oracle.expected_squared_error(q.mean, covariance, *rows, M)
    alphas = q.sample(rng.standard_normal((20_000, q.structure.size)))
    estimate = expected_squared_error(q.structure, alphas, Rows(*rows))
    assert estimate == pytest.approx(exact, rel=0.01)
    hyper = Hyperparameters(LENGTH_SCALE, 1.3, 0.5, 0.2)
    bounds = [
        estimate_bound(q, hyper, unscaled_blocks(*rows, 2), np.random.RandomState(seed), 100)
        for seed in range(200)
    ]
    expected = oracle.lower_bound(q.mean, covariance, *rows, M, LENGTH_SCALE, 1.3, 0.5)
    error = np.std(bounds) / np.sqrt(len(bounds))
    assert np.mean(bounds) == pytest.approx(expected, abs=4.0 * error)


def test_newton_step_with_certain_frequencies_is_the_linear_model(rng, rows, R):
    structure = Structure(M, D, "point")
    prior = Prior.of(structure, LENGTH_SCALE, 1.3)
    q = Gaussian(structure, np.append(R, np.zeros(2 * M)), prior.precisions)
    information = sum_statistics(structure, q.mean[None], Rows(*rows))
    q = newton_step(q, prior, information, 0.2, 1.0, moves_frequencies=False)
    Phi = oracle.design(rows[0], R)
    Gamma = Phi @ Phi.T + 0.2 * M / 1.3 * np.eye(2 * M)
    np.testing.assert_allclose(q.mean[structure.weights], np.linalg.solve(Gamma, Phi @ rows[1]))
    np.testing.assert_allclose(q.precisions[-1], Gamma / 0.2)
    np.testing.assert_array_equal(structure.frequencies(q.mean), R)
