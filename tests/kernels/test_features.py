"""Random features against the kernels that they stand for."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.kernels import (
    RBF,
    Anova,
    Constant,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    White,
    _features,
)
from skvbgp.kernels._features import Features, _draw_tails, draw_features, make_waves
from tests.derivatives import numerical_gradient
from tests.kernels.cases import CASES, PERIODS, SCALES, inputs


def has_white(kernel):
    return "White" in repr(kernel)


def has_wiener(kernel):
    return "Wiener" in repr(kernel) or "IntegratedOU" in repr(kernel)


def is_isotropic_periodic(kernel):
    return isinstance(kernel, Periodic) and kernel.isotropic


def test_waves_are_cosines_and_sines():
    a = np.concatenate([np.linspace(-60.0, 60.0, 1001), np.pi * np.arange(-6, 7) / 2.0])[:, None]
    assert_allclose(make_waves(a.copy()), np.hstack([np.cos(a), np.sin(a)]), atol=1e-14)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_features_average_to_the_kernel(kernel):
    X, Z = inputs(4), inputs(3, seed=1)
    if has_white(kernel) or has_wiener(kernel) or is_isotropic_periodic(kernel):
        with pytest.raises(
            ValueError, match="Functions cannot be drawn from (White|Wiener|IntegratedOU|Periodic)"
        ):
            draw_features(kernel, 3, 5, np.random.RandomState(0))
        return
    features = draw_features(kernel, 3, 20_000, np.random.RandomState(0))
    scale = np.sqrt(np.outer(kernel.diag(X), kernel.diag(Z)))
    assert_allclose(features(X) @ features(Z).T / scale, kernel(X, Z) / scale, atol=0.03)


@pytest.mark.parametrize("kernel", [2.0 * RBF(SCALES) * Matern(1.4), Periodic(SCALES, PERIODS)])
def test_variances_are_exact(kernel):
    X = inputs(5)
    features = draw_features(kernel, 3, 7, np.random.RandomState(0))
    assert_allclose(np.sum(features(X) ** 2, axis=1), kernel.diag(X))


@pytest.mark.parametrize("tile", [1, 60, 2**15])
@pytest.mark.parametrize("kernel", [2.0 * RBF(SCALES), RBF(SCALES) * Linear(SCALES) + RBF(1.0)])
def test_functions_are_features_times_weights(kernel, tile, monkeypatch):
    monkeypatch.setattr(_features, "_TILE", tile)
    X, features = inputs(5), draw_features(kernel, 3, 7, np.random.RandomState(0))
    phi = np.hstack([term(X) for term in features.terms])
    weights = np.random.RandomState(1).standard_normal((phi.shape[1], 2))
    assert_allclose(features.times(X, weights), phi @ weights, rtol=1e-12, atol=1e-13)
    assert features(X[:0]).shape == (0, len(weights))  # where no function goes by a process


@pytest.mark.parametrize("m", [1, pytest.param(2, marks=pytest.mark.thorough), 257])
@pytest.mark.every_nth("m", 2)
def test_weighted_tails_are_uniform_on_average(m):
    """Also where they are rare, which few draws would meet."""
    n, rng = 40_000 if m > 1 else 10_000, np.random.RandomState(0)
    u, weights = np.array([_draw_tails(m, rng) for _ in range(n // m)]).swapaxes(0, 1)
    assert_allclose(np.mean(weights), 1.0, atol=0.02)
    assert weights.max() <= 2.0
    if m > 1:
        for limit in (0.5, 0.1, 1e-3, 1e-6):
            share = weights * (u < limit)
            assert_allclose(np.mean(share) / limit, 1.0, atol=0.2)
            assert np.mean(u < limit) > 0.1


ROUGH = [Matern(1.2, nu=1.5), Matern(1.2, nu=2.5), RationalQuadratic(1.2, alpha=0.3), RBF(1.2)]


@pytest.mark.parametrize("kernel", [*ROUGH, Matern(1.2, nu=2.5) * RBF(2.0)], ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_what_rows_leave_open_has_its_variance(kernel):
    """Waves that known rows do not determine are few and decide; slopes have heavy tails."""
    X, x = np.linspace(-2.0, 2.0, 17)[:, None], np.array([0.13])
    weights = np.linalg.solve(kernel(X) + 1e-5 * np.eye(17), kernel(X, x[None]))[:, 0]
    variance = kernel(x[None])[0, 0] - 2.0 * weights @ kernel(X, x[None])[:, 0]
    variance += weights @ kernel(X) @ weights
    rng, errors, slopes = np.random.RandomState(0), [], []
    for _ in range(20):
        features = draw_features(kernel, 1, 512, rng)
        errors.append(np.sum((features(x[None])[0] - weights @ features(X)) ** 2) / variance)
        slopes.append(np.sum(features.gradient(x) ** 2) / kernel.curvature(x[None])[0, 0])
    assert_allclose(errors, 1.0, atol=0.6)
    assert_allclose(np.mean(errors), 1.0, atol=0.15)
    assert_allclose(np.mean(slopes), 1.0, atol=0.08)


def test_straight_lines_are_exact():
    X, Z = inputs(5), inputs(4, seed=1)
    kernel = Constant(1.5) * Linear(SCALES, offset=0.4) * Linear(2.0) + Constant(0.3)
    features = draw_features(kernel, 3, 7, np.random.RandomState(0))
    assert_allclose(features(X) @ features(Z).T, kernel(X, Z))


def test_an_isotropic_period_of_one_input():
    X = inputs(6)[:, :1]
    kernel = Periodic(1.2, 2.3, isotropic=True)
    features = draw_features(kernel, 1, 20_000, np.random.RandomState(0))
    assert_allclose(features(X) @ features(X).T, kernel(X), atol=0.03)
    with pytest.raises(ValueError, match="white noise is no function"):
        draw_features(White(), 1, 5, np.random.RandomState(0))


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_gradient_of_features(kernel):
    if has_white(kernel) or has_wiener(kernel) or is_isotropic_periodic(kernel):
        pytest.skip("no features")
    drawn = draw_features(kernel, 3, 5, np.random.RandomState(0))
    limit = 20.0  # of frequencies that finite differences can follow
    features = Features(
        tuple(
            replace(term, frequencies=np.clip(term.frequencies, -limit, limit))
            for term in drawn.terms
        )
    )
    x = inputs(1)[0]
    numerical = [
        numerical_gradient(lambda x, i=i: features(x[None])[0, i], x)
        for i in range(features(x[None]).shape[1])
    ]
    assert_allclose(features.gradient(x), numerical, rtol=1e-6, atol=1e-6)


def test_inputs_take_part_in_waves_of_an_anova_kernel_as_often_as_in_its_terms():
    """Each subset of them as often as the product of its v / d is large; the empty one never."""
    e = np.array([6.0, 1.5, 0.3])
    frequencies = Anova(SCALES, 3.0 * e).draw_frequencies((40_000, 3), np.random.RandomState(0))
    masks = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)][1:])
    found = [np.mean(np.all((frequencies != 0.0) == mask, axis=1)) for mask in masks]
    weights = np.prod(e**masks, axis=1)
    assert_allclose(found, weights / weights.sum(), atol=0.01)
    assert_allclose([x[x != 0.0].std() for x in frequencies.T], 1.0 / np.array(SCALES), rtol=0.05)
