"""Transforms of y against SciPy's log-normal distribution and finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import trapezoid

from skvbgp.base import Targets
from skvbgp.kernel_selection._targets import (
    LogTarget,
    PlainTarget,
    TransformedMixture,
    make_targets,
)
from skvbgp.kernels import RBF, Constant
from tests.kernel_selection.cases import make_series, small
from tests.oracles import kernel_selection as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

LOG = LogTarget(0.4, 0.7, shift=-1.5, margin=0.1)
N_TARGETS = 4


@pytest.mark.parametrize("i", range(N_TARGETS))
@pytest.mark.parametrize("normalize", [True, False])
def test_jacobian_is_the_slope_of_the_scaled_target(i, normalize, rng):
    y, step = rng.uniform(-1.5, 3.0, 6), 1e-6
    target = make_targets(["identity", "log"], Targets(y), normalize=normalize)[i]
    slopes = (target.scaled(y + step) - target.scaled(y - step)) / (2.0 * step)
    assert_allclose(target.log_jacobian(Targets(y)), np.log(slopes).sum(), rtol=1e-6, atol=1e-8)
    if normalize:
        assert_allclose([target.scaled(y).mean(), target.scaled(y).std()], [0.0, 1.0], atol=1e-12)


def test_moments_are_those_of_a_log_normal_variable():
    mean, variance = np.array([-0.5, 0.3]), np.array([0.2, 1.1])
    found = LOG.moments(mean, variance)
    expected = stats.lognorm(s=0.7 * np.sqrt(variance), scale=np.exp(0.4 + 0.7 * mean), loc=1.5)
    assert_allclose(found, [expected.mean(), expected.var()])
    joint = LOG.joint(mean, np.diag(variance))
    assert_allclose(joint[0], found[0])
    assert_allclose(joint[1], np.diag(found[1]), atol=1e-12)


def test_joint_moments_are_those_of_draws(rng):
    mean, covariance = np.array([0.1, -0.2]), np.array([[0.3, 0.2], [0.2, 0.5]])
    y = 1.5 + np.exp(0.4 + 0.7 * rng.multivariate_normal(mean, covariance, 400_000))
    found = LOG.joint(mean, covariance)
    assert_allclose(found[0], y.mean(axis=0), rtol=0.01)
    assert_allclose(found[1], np.cov(y.T), rtol=0.03)


def test_moments_of_a_wide_logarithm_are_not_those_of_its_tail():
    """A kernel of next to no belief must not decide the mean: its own would be e^20 here."""
    mean, covariance = np.array([0.1, -0.2]), np.array([[100.0, 1.5], [1.5, 0.5]])
    found = LOG.joint(mean, covariance)
    shrunk = np.diag([1.0 / 7.0, 1.0])  # to the variance 1 of the logarithm
    expected = LOG.joint(mean, shrunk @ covariance @ shrunk)
    for one, other, moment in zip(
        found, expected, LOG.moments(mean, np.diagonal(covariance)), strict=True
    ):
        assert_allclose(one, other)
        assert_allclose(one if one.ndim == 1 else np.diagonal(one), moment)
    assert_allclose(found[0][0] - 1.5, np.exp(0.4 + 0.07 + 0.5))
    assert np.linalg.eigvalsh(found[1])[0] > 0.0


def test_moments_far_away_are_finite():
    found = LOG.moments(np.array([1e3]), np.array([1e4]))
    assert np.isfinite(found).all() and np.isfinite(found[1] + found[0] ** 2).all()


def mixture():
    """Two components of y and one of log y, for two rows."""
    mean = np.array([[0.2, 1.0, 0.1], [1.2, 0.5, -0.3]])
    variance = np.array([[0.3, 0.1, 0.4], [0.2, 0.5, 0.1]])
    weights = np.array([0.5, 0.2, 0.3])
    kinds = [PlainTarget(0.0, 1.0), LOG, PlainTarget(0.0, 2.0)]
    parts = [
        stats.lognorm(s=np.sqrt(v), scale=np.exp(m), loc=1.5)
        if kind is LOG
        else stats.norm(m, np.sqrt(v))
        for m, v, kind in zip(mean.T, variance.T, kinds, strict=True)
    ]
    return TransformedMixture.of(kinds, mean, variance, weights), parts, weights


def test_density_and_probability_of_a_mixture_of_transforms():
    found, parts, weights = mixture()
    for y in (np.array([2.2, 3.4]), np.array([1.1, 0.2])):
        density = sum(w * part.pdf(y) for w, part in zip(weights, parts, strict=True))
        assert_allclose(found.log_density(y), np.log(density))
        probability = sum(w * part.cdf(y) for w, part in zip(weights, parts, strict=True))
        assert_allclose(found.cdf(y), probability)


@pytest.mark.parametrize("p", [0.01, 0.4, 0.975])
def test_quantiles_of_a_mixture_of_transforms(p):
    found, parts, weights = mixture()
    y = found.quantile(p)
    assert_allclose(sum(w * part.cdf(y) for w, part in zip(weights, parts, strict=True)), p)


def make_positive(n=40):
    """A series whose season grows with its level."""
    X, y = make_series(n)
    return X, np.exp(0.3 * y)


@pytest.fixture(scope="module")
def both():
    X, y = make_positive()
    kernels = [("SE", Constant() * RBF())]
    return small(kernels=kernels, transforms=["identity", "log"], n_inducing=None).fit(X, y)


def test_bound_of_the_logarithm_is_the_evidence_of_y(both):
    X, y = make_positive()
    assert both.transforms_ == ["identity"] + 3 * ["log"]
    for model, i in zip(both.estimators_, np.argsort(-both.local_lower_bounds_), strict=True):
        if model.transform == "log":
            z, new = np.log(y + model.shift), X - X.mean()
            K = z.var() * model.kernel(new)
            expected = oracle.log_evidence(K, model.noise_variance, z - z.mean()) - z.sum()
            assert_allclose(both.local_lower_bounds_[i], expected, atol=1e-3)


def test_predictions_agree_with_one_another(both):
    """Moments, quantiles and densities are those of one distribution."""
    X = np.array([[3.3], [13.0]])
    mean, std = both.predict(X, return_std=True)
    _, covariance = both.predict(X, return_cov=True)
    assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-9)
    for row, m, s in zip(X, mean, std, strict=True):
        y = m + s * np.linspace(-12.0, 40.0, 8_001)
        density = np.exp(both.log_predictive_density(np.repeat(row[None], len(y), axis=0), y))
        assert_allclose(trapezoid(density, y), 1.0, rtol=1e-4)
        assert_allclose(trapezoid(y * density, y), m, rtol=1e-3)
        half = both.predict_quantiles(row[None], 0.5)[0]
        below = np.where(y <= half, density, 0.0)
        assert_allclose(trapezoid(below, y), 0.5, atol=2.0 * density.max() * (y[1] - y[0]))


def test_margins_are_those_of_the_smallest_value():
    _, y = make_positive()
    for target, margin in zip(
        make_targets(["log"], Targets(y - 7.0), normalize=True), (0.01, 0.05, 0.25), strict=True
    ):
        assert_allclose((y - 7.0).min() + target.shift, margin * np.ptp(y))


@pytest.mark.parametrize("transforms", [["root"], [], [["identity"]], np.array([["log"]]), [None]])
def test_unknown_transforms(transforms):
    with pytest.raises(ValueError, match="transforms must be of identity, log; got"):
        small(transforms=transforms).fit(*make_positive())


def test_more_rows_may_lie_below_all_others():
    X, y = make_positive()
    model = small(kernels=[("SE", Constant() * RBF())], transforms=["log"]).fit(X, y)
    model.partial_fit([[12.5]], [-10.0])
    shifts = [model.shift for model in model.estimators_]
    assert_allclose(np.sort(shifts), 10.0 + (y.max() + 10.0) * np.array([0.01, 0.05, 0.25]))


def test_beyond_the_kept_rows_none_may_lie_below_the_logarithm(monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_positive()
    model = small(transforms=["log"], n_inducing=8, max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="y must exceed .*, where its logarithm"):
        model.partial_fit([[12.5]], [-1e3])


@pytest.mark.parametrize("options", [{}, {"batch_size": 16, "max_iter": 2}])
@pytest.mark.every_nth("options", 2)
def test_chunks_beyond_the_kept_rows_keep_the_jacobian(options, monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_positive(60)
    kernels = [("SE", Constant() * RBF())]
    model = small(kernels=kernels, transforms=["log"], n_inducing=10, **options)
    model.fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    for i, one in enumerate(model.estimators_):
        scaled = model._state.fits[i].lower_bound
        expected = scaled + one._frame.target.log_jacobian(Targets(y))
        assert_allclose(model.local_lower_bounds_[i], expected)


@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.every_nth("include_noise", 2)
def test_draws_are_of_the_mixture(include_noise):
    """None where the density is zero, and as many below each quantile as it says."""
    X, y = make_positive()
    kernels = [("SE", Constant() * RBF())]
    X_new, options = np.array([[11.0], [13.0], [16.0]]), {"include_noise": include_noise}
    for transforms in (["log"], ["identity", "log"]):
        model = small(kernels=kernels, transforms=transforms, n_inducing=None).fit(X, y)
        draws = model.sample_y(X_new, 20_000, random_state=1, **options)
        shares = np.array([0.05, 0.3, 0.7, 0.95])
        quantiles = model.predict_quantiles(X_new, shares, **options)
        found = np.mean(draws[:, None, :] <= quantiles[:, :, None], axis=2)
        assert_allclose(found, np.tile(shares, (3, 1)), atol=0.015)
    assert np.isfinite(model.log_predictive_density(X_new, draws[:, 0])).all()


def test_draws_of_a_transform_are_smooth():
    """Neighbours of a draw of f belong together: their differences are small."""
    X, y = make_positive()
    kernels = [("SE", Constant() * RBF())]
    model = small(kernels=kernels, transforms=["log"], n_inducing=None).fit(X, y)
    near = 16.0 + 1e-3 * np.arange(3.0)[:, None]
    draws = model.sample_y(near, 500, random_state=0, include_noise=False)
    assert np.max(np.ptp(np.log(draws + max(m.shift for m in model.estimators_)), axis=0)) < 0.05


@pytest.mark.thorough
@pytest.mark.parametrize("unit", [1e-100, 1e66, 1e140])
def test_predictions_of_a_logarithm_have_the_unit_of_y(unit):
    X, y = make_positive()
    new = X + 0.5
    one, other = (small(transforms=["log"]).fit(X, u * y) for u in (1.0, unit))
    for method, options in [("predict", {"return_std": True}), ("predict_interval", {})]:
        expected = getattr(one, method)(new, **options)
        assert_allclose(np.divide(getattr(other, method)(new, **options), unit), expected, 1e-4)


def test_default_of_a_list_is_y_itself():
    X, y = make_positive()
    assert small().fit(X, y).transforms_ == ["identity", "identity"]
