"""What the displays draw: the numbers in the artists, not their looks."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import SVBSSGPRegressor, VBDTCRegressor, VBGPRegressor, VBKSRegressor
from skvbgp.inspection import (
    CalibrationDisplay,
    KernelPosteriorDisplay,
    LowerBoundDisplay,
    PredictionIntervalDisplay,
    RelevanceDisplay,
)
from skvbgp.kernel_selection._posterior import KernelAverage
from skvbgp.kernels import RBF, Matern
from skvbgp.metrics import coverage, prediction_interval


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 3)) * [1.0, 10.0, 0.1]
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * X[:, 1] + 0.1 * rng.standard_normal(60)


@pytest.fixture(scope="module")
def model(data):
    return quick().fit(*data)


def quick(**parameters):
    return VBDTCRegressor(8, max_iter=5, random_state=0, **parameters)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def in_pipeline_and_search(data):
    """The same regressor behind a scaler, alone and in a search."""
    pipeline = make_pipeline(StandardScaler(), quick())
    search = GridSearchCV(pipeline, {"vbdtcregressor__tol": [1e-5]}, cv=2)
    return pipeline.fit(*data), search.fit(*data)


# -- calibration -----------------------------------------------------------------------


def test_calibration_is_the_coverage_of_every_level(model, data):
    X, y = data
    mean, std = model.predict(X, return_std=True)
    display = CalibrationDisplay.from_estimator(model, X, y)
    assert_allclose(display.nominal, np.arange(0.05, 0.96, 0.05))
    assert_allclose(display.observed, coverage(y, mean, std, level=display.nominal))
    assert_allclose(display.line_.get_xydata(), np.c_[display.nominal, display.observed])
    assert legend(display.ax_) == ["Perfectly calibrated", "VBDTCRegressor"]
    assert display.figure_ is display.ax_.figure


def test_two_calibrations_share_axes_and_diagonal(model, data):
    _, ax = plt.subplots()
    CalibrationDisplay.from_estimator(model, *data, ax=ax, name="first")
    display = CalibrationDisplay.from_estimator(model, *data, ax=ax, name="second", lw=3, c="C5")
    assert display.ax_ is ax
    assert legend(ax) == ["Perfectly calibrated", "first", "second"]
    assert display.line_.get_linewidth() == 3
    assert display.line_.get_color() == "C5"


def test_calibration_at_one_level(rng):
    y, mean, std = rng.standard_normal(20), np.zeros(20), np.ones(20)
    display = CalibrationDisplay.from_predictions(y, mean, std, levels=0.5)
    assert display.nominal.tolist() == [0.5]
    assert display.observed.shape == (1,)


def test_calibration_of_a_mixture_with_chosen_levels_and_weights(rng):
    y, mean = rng.standard_normal(40), rng.standard_normal((40, 2))
    std, weight = np.ones((40, 2)), rng.uniform(0.0, 1.0, 40)
    display = CalibrationDisplay.from_predictions(
        y, mean, std, weights=[0.3, 0.7], levels=[0.9, 0.5], sample_weight=weight, ref_line=False
    )
    expected = coverage(y, mean, std, weights=[0.3, 0.7], level=[0.5, 0.9], sample_weight=weight)
    assert_allclose(display.line_.get_xydata(), np.c_[[0.5, 0.9], expected])
    assert display.ax_.get_legend() is None
    assert len(display.ax_.lines) == 1


def test_calibrated_and_overconfident_predictions(rng):
    y = rng.standard_normal(4000)
    zeros, ones = np.zeros(4000), np.ones(4000)
    display = CalibrationDisplay.from_predictions(y, zeros, ones)
    assert_allclose(display.observed, display.nominal, atol=0.03)
    display = CalibrationDisplay.from_predictions(y, zeros, 0.5 * ones)
    assert np.all(display.observed < display.nominal)


# -- prediction intervals --------------------------------------------------------------


def test_intervals_over_the_predictive_mean(model, data):
    X, y = data
    mean, std = model.predict(X, return_std=True)
    display = PredictionIntervalDisplay.from_estimator(model, X, y, level=0.5)
    order = np.argsort(mean)
    ends = stats.norm.interval(0.5, mean, std)
    bars = np.array(display.intervals_.get_segments())  # (n, 2 ends, 2 coordinates)
    assert_allclose(bars[:, 0], np.c_[mean, ends[0]][order])
    assert_allclose(bars[:, 1], np.c_[mean, ends[1]][order])
    assert_allclose(display.line_.get_xydata(), np.c_[mean, mean][order])
    assert legend(display.ax_) == ["50 % interval", "Predictive mean", "Observation"]
    assert display.ax_.get_title() == "VBDTCRegressor"


def test_observations_outside_have_a_colour_of_their_own():
    y, mean, std = [0.0, 5.0, 0.1, -4.0], np.arange(4.0) / 10.0, np.ones(4)
    display = PredictionIntervalDisplay.from_predictions(y, mean, std)
    points = {tuple(p) for p in display.scatter_.get_offsets().data}
    assert points == set(zip(mean, y, strict=True))
    red = np.all(display.scatter_.get_facecolors() == to_rgba("C3"), axis=1)
    assert sorted(display.scatter_.get_offsets().data[red, 1]) == [-4.0, 5.0]


def test_a_band_along_a_single_input(data):
    X, y = data[0][:, :1], data[1]
    model = quick().fit(X, y)
    display = PredictionIntervalDisplay.from_estimator(model, X, y, name="sine")
    order = np.argsort(X[:, 0])
    mean, std = model.predict(X[order], return_std=True)
    assert_allclose(display.line_.get_xydata(), np.c_[X[order], mean])
    lower, upper = prediction_interval(mean, std)
    (path,) = display.intervals_.get_paths()
    box = path.get_extents()
    assert_allclose([box.x0, box.x1], X[order[[0, -1]], 0])
    assert_allclose([box.y0, box.y1], [lower.min(), upper.max()])
    assert display.ax_.get_title() == "sine"


def test_a_mixture_along_dates():
    dates = pd.date_range("2026-01-01", periods=3)[::-1]
    mean, std = np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]), np.ones((3, 2))
    display = PredictionIntervalDisplay.from_predictions(
        [1.0, 2.0, 3.0], mean, std, weights=[0.25, 0.75], x=dates
    )
    assert display.line_.get_ydata().tolist() == [3.5, 2.5, 1.5]
    assert np.all(np.diff(display.line_.get_xdata()) > np.timedelta64(0))


@pytest.mark.parametrize("n_features", [1, 2])
def test_intervals_at_sparse_inputs(rng, n_features):
    X, y = rng.standard_normal((10, n_features)), rng.standard_normal(10)
    model = VBGPRegressor(RBF(), learn_hyperparameters=False).fit(X, y)
    dense, sparse = (
        PredictionIntervalDisplay.from_estimator(model, form(X), y)
        for form in (np.asarray, csr_array)
    )
    assert_allclose(sparse.line_.get_xydata(), dense.line_.get_xydata())


def test_subsample(rng):
    y, mean, std = rng.standard_normal((2, 50)).tolist() + [np.ones(50)]
    drawn = [
        PredictionIntervalDisplay.from_predictions(y, mean, std, subsample=10, random_state=seed)
        for seed in (0, 0, 1)
    ]
    assert [len(display.y_true) for display in drawn] == [10, 10, 10]
    assert set(drawn[0].y_true) == set(drawn[1].y_true) != set(drawn[2].y_true)
    whole = PredictionIntervalDisplay.from_predictions(y, mean, std, subsample=None)
    assert len(whole.y_true) == 50


def test_styles(model, data):
    display = PredictionIntervalDisplay.from_estimator(
        model,
        *data,
        scatter_kwargs={"color": "k"},
        interval_kwargs={"lw": 3},
        line_kwargs={"c": "r"},
    )
    assert_allclose(display.scatter_.get_facecolors(), [to_rgba("k")])
    assert display.intervals_.get_linewidth() == [3]
    assert display.line_.get_color() == "r"
    display.plot(scatter_kwargs={"c": "k"})
    assert_allclose(display.scatter_.get_facecolors(), [to_rgba("k")])


# -- relevance -------------------------------------------------------------------------


def bars(display):
    """Centres, half widths and names of the bars, from the top."""
    _, _, (lines,) = display.errorbar_
    ends = np.array(lines.get_segments())[:, :, 0]
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    return ends.mean(axis=1), np.diff(ends, axis=1)[:, 0] / 2.0, names


def test_relevance_is_sorted_with_95_percent_intervals(model):
    centres, widths, names = bars(RelevanceDisplay.from_estimator(model))
    order = np.argsort(-model.inverse_length_scale_mean_)
    assert_allclose(centres, model.inverse_length_scale_mean_[order], atol=1e-12)
    std = np.sqrt(model.inverse_length_scale_var_[order])
    assert_allclose(widths, stats.norm.ppf(0.975) * std)
    assert names == [f"x{i}" for i in order]


def test_relevance_in_units_of_the_spread(model, data):
    centres, _, names = bars(RelevanceDisplay.from_estimator(model, data[0], max_features=2))
    relevance = model.inverse_length_scale_mean_ * data[0].std(axis=0)
    order = np.argsort(-relevance)[:2]
    assert_allclose(centres, relevance[order])
    assert names == [f"x{i}" for i in order]


def test_relevance_within_a_pipeline_and_a_search(data):
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    for estimator in in_pipeline_and_search((frame, data[1])):
        centres, _, names = bars(RelevanceDisplay.from_estimator(estimator))
        assert sorted(names) == ["a", "b", "c"]
        # the scaler has brought the spread of the inputs to one
        again = bars(RelevanceDisplay.from_estimator(estimator, frame))[0]
        assert_allclose(again, centres)


def test_importances_are_drawn_with_what_is_uncertain_in_them(data):
    model = VBGPRegressor([Matern(nu=0.5), RBF()], max_iter=5, random_state=0).fit(*data)
    display = RelevanceDisplay.from_estimator(model, data[0])
    centres, widths, names = bars(display)
    order = np.argsort(-model.feature_importances_)
    assert_allclose(centres, model.feature_importances_[order])
    assert_allclose(widths, stats.norm.ppf(0.975) * model.feature_importances_std_[order])
    assert names == [f"x{i}" for i in order]
    assert "Share in the variation" in display.ax_.get_xlabel()


def test_importances_are_measured_once(data, monkeypatch):
    """It may take seconds."""
    calls, measure = [], KernelAverage.relevance.fget
    counted = property(lambda posterior: calls.append(1) or measure(posterior))
    model = VBKSRegressor([RBF()], n_restarts=1, max_iter=2, random_state=0).fit(*data)
    expected = model.feature_importances_
    monkeypatch.setattr(KernelAverage, "relevance", counted)
    display = RelevanceDisplay.from_estimator(model)
    assert len(calls) == 1
    assert_array_equal(display.mean, np.sort(expected)[::-1])


def test_relevance_in_units_of_the_spread_with_gaps_and_categories(rng):
    X = rng.uniform(-3.0, 3.0, (60, 2))
    y = np.sin(X[:, 0])
    G = X.copy()
    G[::9] = np.nan
    model = VBDTCRegressor(10, max_iter=2, random_state=0).fit(G, y)
    display = RelevanceDisplay.from_estimator(model, G, max_features=None)
    expected = model.inverse_length_scale_mean_ * np.nanstd(G, axis=0)
    assert_allclose(np.sort(display.mean), np.sort(expected))
    kinds = np.where(X[:, :1] > 0.0, "u", "v")
    C = np.hstack([X.astype(object), kinds])
    model = VBDTCRegressor(10, max_iter=2, categorical_features=[2], random_state=0).fit(C, y)
    display = RelevanceDisplay.from_estimator(model, C, feature_names=["a", "b", "c"])
    expected = model.inverse_length_scale_mean_[:2] * X.std(axis=0)
    found = dict(zip(display.feature_names, display.mean, strict=True))
    assert_allclose([found["a"], found["b"]], expected)
    assert 0.0 < found["c"] < 2.0 * model.inverse_length_scale_mean_[2]


def test_names_of_the_inputs(model, data):
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    fitted = quick().fit(frame, data[1])
    assert set(bars(RelevanceDisplay.from_estimator(fitted))[2]) == {"a", "b", "c"}
    names = ["u", "v", "w"]
    display = RelevanceDisplay.from_estimator(fitted, feature_names=names)
    assert set(bars(display)[2]) == set(names)
    with pytest.raises(ValueError, match="3 inputs, but 2 names"):
        RelevanceDisplay.from_estimator(model, feature_names=["a", "b"])


def test_rows_that_say_how_much_inputs_spread(model, data):
    dense, sparse = (
        RelevanceDisplay.from_estimator(model, X) for X in (data[0], csr_array(data[0]))
    )
    assert_allclose(bars(sparse)[0], bars(dense)[0])
    with pytest.raises(ValueError, match=r"X has shape \(\d+, 1\), but there are 3 inputs"):
        RelevanceDisplay.from_estimator(model, data[0][:, :1])


def test_rows_that_say_how_much_inputs_spread_are_read_as_the_model_reads_them(data):
    """By their names, and with pandas' own missing entries."""
    names = ["a", "b", "c"]
    frame = pd.DataFrame(data[0] * [1.0, 10.0, 100.0], columns=names)
    fitted = quick().fit(frame, data[1])
    with pytest.raises(ValueError, match="feature names should match"):
        RelevanceDisplay.from_estimator(fitted, frame[names[::-1]])
    numbers = np.arange(len(frame)) % 7
    frame["b"] = pd.array([None if i == 3 else i for i in numbers], dtype="Int64")
    fitted = quick().fit(frame, data[1])
    found = RelevanceDisplay.from_estimator(fitted, frame)
    relevance = dict(zip(found.feature_names, found.mean, strict=True))
    spread = np.std(numbers[numbers != 3])
    assert_allclose(relevance["b"], fitted.inverse_length_scale_mean_[1] * spread)


def test_inputs_of_a_display_are_a_matrix(model, data):
    with pytest.raises(ValueError, match="Expected 2D array"):
        PredictionIntervalDisplay.from_estimator(model, data[0][:, 0], data[1])


def test_level_of_relevance():
    display = RelevanceDisplay([1.0], [0.1], ["a"]).plot(level=0.5, color="C2")
    assert_allclose(bars(display)[1], 0.1 * stats.norm.ppf(0.75))
    assert "50 % interval" in display.ax_.get_xlabel()


# -- lower bound -----------------------------------------------------------------------


def test_lower_bounds_of_every_pass(model, data):
    display = LowerBoundDisplay.from_estimator(model, color="C4")
    passes = np.arange(1, len(model.lower_bounds_) + 1)
    assert_allclose(display.line_.get_xydata(), np.c_[passes, model.lower_bounds_])
    assert display.line_.get_color() == "C4"
    other = SVBSSGPRegressor(5, max_iter=2, random_state=0).fit(*data)
    LowerBoundDisplay.from_estimator(other, ax=display.ax_)
    assert legend(display.ax_) == ["VBDTCRegressor", "SVBSSGPRegressor"]


def test_lower_bounds_within_a_pipeline_and_a_search(data):
    for estimator in in_pipeline_and_search(data):
        display = LowerBoundDisplay.from_estimator(estimator)
        assert legend(display.ax_) == ["VBDTCRegressor"]


# -- all -------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [KernelPosteriorDisplay, LowerBoundDisplay, RelevanceDisplay])
def test_what_a_model_does_not_have(cls, data):
    with pytest.raises(NotFittedError):
        cls.from_estimator(quick())
    with pytest.raises(TypeError, match="LinearRegression has no .*_ to draw"):
        cls.from_estimator(LinearRegression().fit(*data))


@pytest.mark.parametrize("cls", [CalibrationDisplay, PredictionIntervalDisplay])
def test_bad_predictions(cls, data):
    with pytest.raises(NotFittedError):
        cls.from_estimator(quick(), *data)
    with pytest.raises(TypeError, match="return_std"):
        cls.from_estimator(LinearRegression().fit(*data), *data)
    with pytest.raises(ValueError, match="std must be positive"):
        cls.from_predictions([0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        cls.from_predictions([0.0, 1.0], [0.0], [1.0])


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "skvbgp\[plot\]"'):
        LowerBoundDisplay([1.0]).plot()
