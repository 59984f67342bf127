"""Every score against its definition, evaluated by quadrature."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq

from skvbgp.metrics import (
    coverage,
    crps,
    interval_score,
    negative_log_predictive_density,
    prediction_interval,
)

N, K = 6, 3
SCORES = [negative_log_predictive_density, crps, interval_score, coverage]


def make_mixtures(rng):
    """Targets, components, and a weight for each component in each row."""
    y = 2.0 * rng.standard_normal(N)
    mean, std = 2.0 * rng.standard_normal((N, K)), rng.uniform(0.1, 2.0, (N, K))
    return y, mean, std, rng.dirichlet(np.ones(K), N)


class RowMixture:
    """Density, distribution function and quantiles of one row, by SciPy's own."""

    def __init__(self, mean, std, weights):
        self.parts = list(zip(weights, map(stats.norm, mean, std), strict=True))

    def pdf(self, y):
        return sum(w * part.pdf(y) for w, part in self.parts)

    def cdf(self, y):
        return sum(w * part.cdf(y) for w, part in self.parts)

    def quantile(self, p):
        return brentq(lambda y: self.cdf(y) - p, -50.0, 50.0, xtol=1e-13)

    def crps(self, y):
        below = quad(lambda t: self.cdf(t) ** 2, -30.0, y, limit=200, epsabs=1e-11)[0]
        return below + quad(lambda t: (1.0 - self.cdf(t)) ** 2, y, 30.0, limit=200, epsabs=1e-11)[0]

    def interval_score(self, y, level):
        lower, upper = self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)
        outside = max(lower - y, y - upper, 0.0)
        return upper - lower + 2.0 / (1.0 - level) * outside


@pytest.mark.thorough
def test_scores_of_mixtures_are_their_definitions(rng):
    y, *mixture = make_mixtures(rng)
    mean, std, weights = mixture
    rows = [RowMixture(*row) for row in zip(*mixture, strict=True)]
    pairs = list(zip(rows, y, strict=True))
    assert_allclose(
        negative_log_predictive_density(y, mean, std, weights=weights),
        np.mean([-np.log(row.pdf(t)) for row, t in pairs]),
    )
    assert_allclose(
        crps(y, mean, std, weights=weights), np.mean([row.crps(t) for row, t in pairs]), rtol=1e-8
    )
    for level in (0.3, 0.95):
        lower, upper = prediction_interval(mean, std, level=level, weights=weights)
        assert_allclose(lower, [row.quantile(0.5 - 0.5 * level) for row in rows], atol=1e-12)
        assert_allclose(upper, [row.quantile(0.5 + 0.5 * level) for row in rows], atol=1e-12)
        assert_allclose(
            interval_score(y, mean, std, level=level, weights=weights),
            np.mean([row.interval_score(t, level) for row, t in pairs]),
        )
        assert coverage(y, mean, std, level=level, weights=weights) == np.mean(
            (lower <= y) & (y <= upper)
        )


def test_scores_of_gaussians(rng):
    y, mean, std = rng.standard_normal((3, 6))
    std = np.exp(std)
    assert_allclose(
        negative_log_predictive_density(y, mean, std), -np.mean(stats.norm.logpdf(y, mean, std))
    )
    rows = [RowMixture([m], [s], [1.0]) for m, s in zip(mean, std, strict=True)]
    assert_allclose(
        crps(y, mean, std), np.mean([r.crps(t) for r, t in zip(rows, y, strict=True)]), rtol=1e-7
    )
    lower, upper = prediction_interval(mean, std, level=0.8)
    assert_allclose([lower, upper], stats.norm.interval(0.8, mean, std))
    assert coverage(y, mean, std, level=0.8) == np.mean((lower <= y) & (y <= upper))


@pytest.mark.parametrize("score", SCORES)
def test_equal_components_are_one_gaussian(score, rng):
    y, mean, std = rng.standard_normal((3, 20))
    std = np.exp(std)
    expected = score(y, mean, std)
    assert_allclose(score(y, mean[:, None], std[:, None], weights=[1.0]), expected)
    twice = [np.column_stack([a, a]) for a in (mean, std)]
    assert_allclose(score(y, *twice), expected)
    assert_allclose(score(y, *twice, weights=[0.3, 0.7]), expected)


@pytest.mark.parametrize("score", SCORES)
def test_a_component_of_weight_zero_does_not_count(score, rng):
    y, mean, std, _ = make_mixtures(rng)
    expected = score(y, mean[:, :2], std[:, :2], weights=[0.4, 0.6])
    assert_allclose(score(y, mean, std, weights=[0.4, 0.6, 0.0]), expected)


@pytest.mark.parametrize("score", SCORES)
def test_sample_weights_count_rows(score, rng):
    y, mean, std, weights = make_mixtures(rng)
    counts = np.array([0, 1, 2, 0, 3, 1])
    repeated = [np.repeat(a, counts, axis=0) for a in (y, mean, std, weights)]
    assert_allclose(
        score(y, mean, std, weights=weights, sample_weight=counts),
        score(*repeated[:3], weights=repeated[3]),
    )


@pytest.mark.parametrize("score", SCORES[:3])
def test_the_truth_has_the_best_score(score, rng):
    """Propriety: any other Gaussian has a higher expected loss."""
    y = rng.standard_normal(20_000)
    truth = score(y, np.zeros_like(y), np.ones_like(y))
    for mean, std in [(0.2, 1.0), (-0.2, 1.0), (0.0, 0.8), (0.0, 1.25)]:
        assert score(y, np.full_like(y, mean), np.full_like(y, std)) > truth


@pytest.mark.parametrize("unit", [1e-150, 1e150])
@pytest.mark.parametrize("score", SCORES)
def test_units_of_y(score, unit, rng):
    y, mean, std, weights = make_mixtures(rng)
    value = score(y, mean, std, weights=weights)
    scaled = score(unit * y, unit * mean, unit * std, weights=weights)
    if score is negative_log_predictive_density:
        assert_allclose(scaled - np.log(unit), value)
    else:
        assert_allclose(scaled, value if score is coverage else unit * value)


def test_an_impossible_observation():
    assert negative_log_predictive_density([1e200], [0.0], [1e-200]) == np.inf
    assert_allclose(crps([1e200], [0.0], [1e-200]), 1e200)
    assert coverage([1e200], [0.0], [1e-200]) == 0.0


def test_quantiles_in_the_tails_and_of_distant_components():
    level = 1.0 - 1e-12
    lower, upper = prediction_interval([[0.0, 0.0]], [[1.0, 2.0]], level=level)
    assert_allclose(upper, -lower)
    tail = np.mean(stats.norm.sf(upper / np.array([1.0, 2.0])))
    assert_allclose(tail, 0.5 * (1.0 - level), rtol=1e-10)
    lower, upper = prediction_interval([[-1e6, 1e6]], [[1e-3, 1e-3]], level=0.5)
    assert_allclose([lower, upper], [[-1e6], [1e6]])


def test_coverage_of_several_levels(rng):
    y, mean, std, _ = make_mixtures(rng)
    levels = [0.2, 0.5, 0.9]
    expected = [coverage(y, mean, std, level=level) for level in levels]
    assert coverage(y, mean, std, level=levels).tolist() == expected


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": [1.0]}, "inconsistent numbers of samples"),
        ({"y_true": [np.nan, 1.0]}, "y_true contains NaN"),
        ({"y_true": [[1.0, 2.0], [1.0, 2.0]]}, "1d array"),
        ({"y_true": []}, "minimum of 1"),
        ({"mean": [np.inf, 1.0]}, "mean contains infinity"),
        ({"mean": [[0.0, 1.0], [0.0, 1.0]]}, "differ in shape"),
        ({"mean": ["a", "b"]}, "could not convert"),
        ({"std": [1.0, 0.0]}, "std must be positive"),
        ({"std": [1.0, -1.0]}, "std must be positive"),
        ({"weights": [0.5, 0.5]}, "weights must have shape"),
        ({"weights": [0.5]}, "sum to one"),
        ({"weights": [np.nan]}, "weights contains NaN"),
        ({"sample_weight": [1.0]}, "inconsistent numbers of samples"),
        ({"sample_weight": [0.0, 0.0]}, "zero for all rows"),
        ({"sample_weight": [2.0, -1.0]}, "negative"),
    ],
)
@pytest.mark.every_nth("change", 2)
def test_bad_input(score, change, message):
    arguments = {"y_true": [0.0, 1.0], "mean": [0.0, 0.0], "std": [1.0, 1.0], **change}
    with pytest.raises(ValueError, match=message):
        score(**arguments)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, "0.9", None])
def test_bad_level(level):
    for score in (interval_score, coverage):
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            score([0.0], [0.0], [1.0], level=level)
