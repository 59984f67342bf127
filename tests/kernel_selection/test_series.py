"""Forecasts of one series by default, its kernels and its season."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBKSRegressor
from skvbgp.base import Targets
from skvbgp.kernel_selection import _series, series_kernels
from skvbgp.kernel_selection._bound import log_evidence
from skvbgp.kernel_selection._categories import bind
from skvbgp.kernel_selection._scales import DataScales
from skvbgp.kernel_selection._series import N_SERIES_KERNELS, _gain
from skvbgp.kernel_selection._start import find_limits
from skvbgp.kernel_selection._state import LocalFit
from skvbgp.kernel_selection._targets import TRANSFORMS
from skvbgp.kernel_selection._training import Climb, train_series
from skvbgp.kernels import IntegratedOU
from skvbgp.kernels._pairs import Pairs
from tests.oracles.kernel_selection import season_gain


def make_walk(n=80, seed=0):
    """A level that wanders, observed with noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(float(n))
    return t[:, None], np.cumsum(rng.standard_normal(n)) + 0.3 * rng.standard_normal(n)


def make_sales(n=96, seed=0):
    """Growth and a season in proportion to the level."""
    rng = np.random.default_rng(seed)
    t = np.arange(float(n))
    season = 0.3 * np.sin(2.0 * np.pi * t / 12.0) + 0.15 * np.cos(2.0 * np.pi * t / 4.0)
    return t[:, None], np.exp(4.0 + 0.02 * t + season + 0.03 * rng.standard_normal(n))


def find_season(t, y):
    """The season of values that count once."""
    return _series.find_season(t, y, np.ones(len(t)))


def test_season_is_found_in_a_level_that_wanders():
    X, y = make_walk(120)
    t = X[:, 0]
    seasonal = y + 3.0 * np.sin(2.0 * np.pi * t / 12.0) + 1.5 * np.cos(4.0 * np.pi * t / 12.0)
    assert_allclose(find_season(t, seasonal), 12.0, rtol=0.02)
    irregular = np.sort(np.random.default_rng(1).choice(t, 100, replace=False)).astype(int)
    assert_allclose(find_season(t[irregular], seasonal[irregular]), 12.0, rtol=0.02)


@pytest.mark.parametrize("seed", [2, 6])
def test_season_is_found_in_few_values_that_a_level_could_follow(seed):
    """Without a season, a fast level is their best explanation, with much of it as noise."""
    X, y = make_walk(58, seed)
    t = X[:, 0]
    seasonal = 0.6 * y + 1.2 * np.sin(2.0 * np.pi * t / 12.0) + 0.6 * np.cos(np.pi * t / 3.0)
    assert_allclose(find_season(t, seasonal / seasonal.std()), 12.0, rtol=0.02)


def test_gain_of_a_season_is_a_ratio_of_evidences(rng):
    waves, level = rng.standard_normal((14, 2)), 1e6
    y = waves @ [1.0, -0.5] + rng.standard_normal(14) + 3.0
    L = np.linalg.cholesky(np.eye(14) + level)
    gain = _gain(np.linalg.solve(L, waves), np.linalg.solve(L, y), 14.0)
    assert_allclose(gain, season_gain(waves, y, level), atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.every_nth("seed", 2)
def test_a_level_that_wanders_has_no_season(seed):
    X, y = make_walk(120, seed)
    assert find_season(X[:, 0], y / y.std()) is None


@pytest.mark.parametrize("n", [2, 3, 6])
def test_few_values_have_no_season(n):
    assert find_season(np.arange(float(n)), np.arange(float(n)) % 2.0) is None


def test_kernels_of_a_series():
    seasonal = series_kernels(*make_sales())
    assert len(seasonal) == N_SERIES_KERNELS
    assert [name for name, _ in seasonal if "PER" not in name] == ["LIN + W"]
    plain = series_kernels(*make_walk())
    assert not any("PER" in name for name, _ in plain)
    for _, kernel in seasonal + plain:
        lowest, highest = kernel.bounds.T
        assert_allclose(0.5 * (lowest + highest), kernel.theta, atol=1e-12)
    with pytest.raises(ValueError, match="one column"):
        series_kernels(np.ones((5, 1)), np.arange(5.0))


def test_kernels_of_a_series_follow_its_units():
    X, y = make_sales()
    for (name, kernel), (other_name, other) in zip(
        series_kernels(X, y), series_kernels(1e3 * X + 7.0, 1e-2 * y), strict=True
    ):
        assert name == other_name
        new = X - X.mean()
        assert_allclose(other(1e3 * new), kernel(new), rtol=1e-6, atol=1e-9)


def test_series_are_trained_by_the_evidence_and_a_prior():
    """The gradient of both is zero at the end, and the bound is the evidence alone."""
    X, y = make_walk(40)
    X, y = X - X.mean(), (y - y.mean()) / y.std()
    targets, kernel = Targets(y), bind(series_kernels(X, y)[0][1], 1, ())
    scales = DataScales.of(X, targets)
    fit = train_series(
        Climb(X, targets, None, scales, 200, 1e-12), kernel, LocalFit.fail("not yet")
    )
    value, gradient = log_evidence(kernel, fit.x, Pairs(X), Targets(y))
    lowest, highest = find_limits(kernel, scales).T
    prior = (0.5 * (lowest + highest) - fit.x) / ((highest - lowest) / 8.0) ** 2
    assert_allclose(fit.lower_bound, value)
    assert_allclose(gradient, -prior, atol=1e-3)


@pytest.fixture(scope="module")
def sales():
    X, y = make_sales()
    return VBKSRegressor(random_state=0).fit(X[:72], y[:72])


@pytest.mark.slow
def test_default_forecasts_growth_in_proportion(sales):
    X, y = make_sales()
    names = [name for name, _ in sales.kernels_]
    listed = [name for name, _ in series_kernels(X[:72], y[:72])]
    assert names == 4 * listed
    assert sales.transforms_ == ["identity"] * len(listed) + ["log"] * 3 * len(listed)
    assert sales.estimators_[0].transform == "log"
    assert "of log(y + c)" in sales.summary() and "level that wanders" in sales.summary()
    mean, std = sales.predict(X[72:], return_std=True)
    assert np.sqrt(np.mean((np.log(mean) - np.log(y[72:])) ** 2)) < 0.08
    low, high = sales.predict_interval(X[72:])
    assert np.mean((low < y[72:]) & (y[72:] < high)) > 0.85
    plain = VBKSRegressor(transforms=["identity"], random_state=0).fit(X[:72], y[:72])
    errors = [np.mean((model.predict(X[72:]) - y[72:]) ** 2) for model in (sales, plain)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.thorough
def test_forecast_of_a_slope_that_lasts_does_not_return():
    """The slope dies away, and the level stays where it has led: unlike after a bend."""
    t = np.linspace(0.0, 1.0, 81)
    y = t + np.where(t > 0.9, 0.5 * (t - 0.9), 0.0)  # faster at the end
    listed = dict(series_kernels(t[:, None], y))
    forecasts = {}
    for name in ("LIN + W + IOU", "LIN + W + M32"):
        model = VBKSRegressor([(name, listed[name])], transforms=["identity"], random_state=0)
        forecasts[name] = model.fit(t[:, None], y).predict([[1.0], [3.0]])
    gained = {name: ends[1] - ends[0] for name, ends in forecasts.items()}
    assert gained["LIN + W + IOU"] > gained["LIN + W + M32"]
    assert (
        "slopes last over"
        in model.set_params(kernels=[("IOU", 0.1 * IntegratedOU())]).fit(t[:, None], y).summary()
    )


@pytest.mark.thorough
def test_default_forecast_of_a_level_stays_and_widens():
    X, y = make_walk()
    model = VBKSRegressor(random_state=0).fit(X, y)
    new = X[-1] + np.array([[1.0], [4.0], [16.0]])
    mean, std = model.predict(new, return_std=True)
    assert np.all(np.abs(mean - y[-1]) < 0.5 * std)
    assert_allclose(std[2] / std[1], 2.0, rtol=0.25)
    assert std[1] > 1.5


def test_default_of_several_inputs_is_the_grammar(rng):
    X = rng.uniform(size=(15, 2))
    model = VBKSRegressor(depth=1, n_restarts=1, max_iter=2, random_state=0).fit(X, X[:, 0])
    assert [name for name, _ in model.kernels_] == ["SE", "RQ", "LIN", "PER"]
    assert set(model.transforms_) == {"identity"}


@pytest.mark.parametrize("options", [{"n_inducing": 8}, {"batch_size": 8}])
@pytest.mark.every_nth("options", 2)
def test_sparse_models_of_a_series_are_those_of_the_grammar(options):
    X, y = make_walk(20)
    model = VBKSRegressor(depth=1, n_restarts=1, max_iter=2, random_state=0, **options).fit(X, y)
    assert [name for name, _ in model.kernels_] == ["SE", "RQ", "LIN", "PER"]


def test_series_of_many_rows_are_screened_by_the_last(monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner._SERIES_ROWS", 30)
    X, y = make_walk(60)
    model = VBKSRegressor(random_state=0, n_trained=1, top_k=1, transforms=["identity"]).fit(X, y)
    scaled = (y - y.mean()) / y.std()
    for (_, kernel), fit, bound in zip(
        model.kernels_, model._state.fits, model.local_lower_bounds_, strict=True
    ):
        value, _ = log_evidence(bind(kernel, 1, ()), fit.x, Pairs(X - X.mean()), Targets(scaled))
        expected = value - len(y) * np.log(y.std())
        assert_allclose(
            bound, expected, atol=0.05
        )  # that of the average is at Z = X, with a jitter


@pytest.mark.slow
def test_rows_in_any_order():
    X, y = make_walk(30)
    order = np.random.default_rng(0).permutation(30)
    models = [VBKSRegressor(random_state=0).fit(X[rows], y[rows]) for rows in (slice(None), order)]
    new = np.array([[31.0], [40.0]])
    assert_allclose(models[0].predict(new), models[1].predict(new), rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("first", [3, pytest.param(1, id="a row, with the grammar")])
def test_chunks_of_a_series_begin_anew_when_rows_double(first):
    X, y = make_sales(48)
    model = VBKSRegressor(random_state=0, max_iter=20)
    for rows in np.split(np.arange(48), [first, 20, 47]):
        model.partial_fit(X[rows], y[rows])
    assert model.n_samples_seen_ == 48
    assert any("PER" in name for name, _ in model.kernels_)
    assert model.estimators_[0].transform == "log"
    assert_array_equal(model.prune(2).predict(X).shape, (48,))


@pytest.mark.parametrize(
    ("t", "y"),
    [
        pytest.param(np.arange(2.0), np.arange(2.0), id="two"),
        pytest.param(np.arange(9.0), np.ones(9), id="constant"),
        pytest.param(
            np.repeat(np.arange(4.0), 3), np.arange(12.0), id="repeated", marks=pytest.mark.slow
        ),
        pytest.param(
            1e-150 * np.arange(12.0),
            1e-150 * np.arange(12.0) ** 2,
            id="tiny",
            marks=pytest.mark.slow,
        ),
        pytest.param(1e150 * np.arange(12.0), 1e150 * np.arange(12.0) ** 2, id="huge"),
        pytest.param(
            np.append(np.arange(11.0), 1e6), np.arange(12.0), id="a gap", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.every_nth("t", 3)
def test_unusual_series(t, y):
    model = VBKSRegressor(random_state=0, max_iter=2).fit(t[:, None], y)
    mean, std = model.predict(t[:, None], return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all() and np.all(std > 0.0)


@pytest.mark.thorough
def test_series_of_a_few_values_have_no_logarithm():
    """Nothing tells it from y itself, and its forecasts grow beyond any bound."""
    y = np.array([9.51, 9.45, 10.10, 9.8, 10.3, 9.9, 10.2, 10.4])
    t = np.arange(8.0)[:, None]
    few = VBKSRegressor(random_state=0).fit(t[:3], y[:3])
    assert set(few.transforms_) == {"identity"}
    mean, std = few.predict([[3.0], [9.0]], return_std=True)
    assert np.all(np.abs(mean - 10.0) < 5.0) and np.all(std < 20.0)
    assert set(VBKSRegressor(random_state=0, n_trained=1).fit(t, y).transforms_) == set(TRANSFORMS)
