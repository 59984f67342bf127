"""Inputs that are warped: what learns that, and predictions in the user's units."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.scaling import Coordinates
from skvbgp.gp import VBGPRegressor
from skvbgp.gp._learner import GPLearner
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._warp import (
    Warp,
    WarpedCoordinates,
    WarpedProcess,
    fit_values,
)
from skvbgp.kernels import RBF, Matern
from tests.derivatives import check_mean_gradient, numerical_gradient
from tests.gp.cases import make_data

pytestmark = pytest.mark.usefixtures("quick_searches")


def make_counts(n, seed=0):
    """Skewed inputs, and the logarithm of the sum of two of them."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.standard_normal((n, 3)))
    return X, np.log(X[:, 0] + X[:, 1]) + 0.02 * rng.standard_normal(n)


@pytest.fixture
def warp(rng):
    Z = rng.standard_normal((20, 3))
    return Warp.of(np.array([0, 2]), np.array([-1.0, 0.3, -2.0, 1.0]), Z, None)


def test_warped_coordinates_can_be_undone_and_have_units(rng, warp):
    X = rng.standard_normal((6, 3))
    coordinates = WarpedCoordinates(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]), warp)
    scaled = coordinates.scaled(X)
    assert_allclose(coordinates.original(scaled), X, rtol=1e-10)
    assert_array_equal(scaled[:, 1], (X[:, 1] - 2.0) / 3.0)
    assert_array_equal(coordinates.scaled(X[None])[0], scaled)  # stacks of rows
    step = 1e-6 * coordinates.measure_units(X)
    assert_allclose(coordinates.scaled(X + step) - scaled, 1e-6, rtol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_the_evidence_of_a_warp(rng, weighted):
    X, y = np.exp(rng.standard_normal((12, 3))), rng.standard_normal(12)
    known = RowNoise(rng.uniform(0.5, 2.0, 12), np.full(12, 0.1)) if weighted else None
    process = start_process((1.5 * RBF()).bind(3), gaussian=True)
    shape = np.array([0.3, 0.5, -0.2, -1.0])
    model = WarpedProcess(process, np.array([0, 2]), shape, np.zeros(4))
    for function in (lambda m: m.evidence(X, y, known), lambda m: m.log_prior()):
        slopes = numerical_gradient(lambda v, f=function: f(model.with_vector(v))[0], model.vector)
        assert_allclose(function(model)[1], slopes, atol=1e-7)
    W = model.make_warp(X, known)(X)
    weight = None if known is None else known.weight
    assert_allclose(np.average(W[:, [0, 2]] ** 2, axis=0, weights=weight), 1.0)


def test_values_that_are_normal_stay_and_skewed_ones_are_bent(rng):
    normal = rng.standard_normal(200)
    assert fit_values(normal) == (0.0, 1.0)
    centre, log_width = fit_values(np.exp(normal))
    assert centre < 0.5
    assert log_width < 0.0
    assert fit_values(np.unique(np.append(normal, normal))) == (0.0, 1.0)


def test_skewed_inputs_are_warped_where_that_explains_y():
    X, y = make_counts(400)
    model = VBGPRegressor(random_state=0).fit(X[:100], y[:100])
    error = np.sqrt(np.mean((model.predict(X[100:]) - y[100:]) ** 2))
    assert error < 0.06
    assert np.all(np.isfinite(model.input_warp_))
    assert np.all(model.input_warp_[:2, 1] < 2.0)


def test_inputs_stay_as_they_are_where_a_warp_says_nothing():
    X, y = make_data(60)
    model = VBGPRegressor(random_state=0, max_iter=10).fit(X, y)
    assert_array_equal(model.input_warp_, [[np.nan, np.inf]] * 2)
    skewed, y = make_counts(60)
    given = VBGPRegressor(Matern(nu=1.5), random_state=0, max_iter=5).fit(skewed, y)
    assert_array_equal(given.input_warp_, [[np.nan, np.inf]] * 3)


@pytest.fixture
def eager(monkeypatch):
    """A warp needs to gain next to nothing."""
    monkeypatch.setattr("skvbgp.gp._warp._LEAST_GAIN", 1.0)
    monkeypatch.setattr("skvbgp.gp._warp._LEAST_GAIN_NEAR", 1.0)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("n_neighbors", ["auto", 25])
@pytest.mark.in_turn("n_neighbors")
def test_gradients_are_those_of_warped_predictions(n_neighbors):
    X, y = make_counts(50)
    model = VBGPRegressor(n_neighbors=n_neighbors, random_state=0, max_iter=4).fit(X, y)
    assert np.all(np.isfinite(model.input_warp_))
    places = X[7:10] + 0.05
    if n_neighbors == "auto":
        check_mean_gradient(model, places)
    functions = model.sample_function(4, random_state=0)
    steps = 1e-6 * np.eye(3)
    for i, slope in enumerate(np.moveaxis(functions.gradient(places), 1, 0)):
        difference = functions(places + steps[i]) - functions(places - steps[i])
        assert_allclose(slope, difference / 2e-6, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("eager")
def test_a_weight_is_a_repetition_of_a_warped_row():
    X, y = make_counts(40)
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    noisy = y + 0.1 * np.random.default_rng(1).standard_normal(40)
    weighted = VBGPRegressor(random_state=0, max_iter=4).fit(X, noisy, sample_weight=weight)
    rows = np.append(np.arange(40), np.arange(10))
    repeated = VBGPRegressor(random_state=0, max_iter=4).fit(X[rows], noisy[rows])
    assert np.all(np.isfinite(weighted.input_warp_))
    assert_allclose(repeated.input_warp_, weighted.input_warp_, rtol=1e-6)
    assert_allclose(repeated.predict(X), weighted.predict(X), rtol=1e-6)


@pytest.fixture(scope="module")
def states():
    """What two whole fits have learned, by the kind of their coordinates."""
    return {}


@pytest.mark.parametrize(
    "lead, ranks_lead, is_kept",
    [(0.01, -1.0, True), (-0.05, 1.0, True), (-0.05, -1.0, False), (-0.2, 1.0, False)],
)
def test_what_rows_left_out_say_decides(monkeypatch, states, lead, ranks_lead, is_kept):
    """Of two whole fits, whatever the evidence of a part of the rows has gained.

    A few of the rows, which ranks hardly see, may cost a warp a tenth of a nat of each.
    """
    X, y = make_counts(60)
    train, said = GPLearner._train, []

    def judge(self, start, end_pass):
        kind, is_warped = type(start.frames.coordinates), float(len(said))
        said.append(kind)
        if kind not in states:
            states[kind] = train(self, start, end_pass)
        return replace(states[kind], score=is_warped * lead, rank=is_warped * ranks_lead)

    monkeypatch.setattr(GPLearner, "_train", judge)
    model = VBGPRegressor(random_state=0, max_iter=4).fit(X, y)
    assert said == [Coordinates, WarpedCoordinates]
    assert np.all(np.isfinite(model.input_warp_)) == is_kept


def test_warm_start_keeps_the_warp_and_categories_have_none():
    X, y = make_counts(60)
    model = VBGPRegressor(random_state=0, max_iter=4, warm_start=True).fit(X, y)
    before = model._state.frames.coordinates.warp
    model.set_params(max_iter=2).fit(X[:50], y[:50])
    assert model._state.frames.coordinates.warp is before
    typed = np.column_stack([X, np.arange(60) % 3])
    encoded = VBGPRegressor(categorical_features=[3], random_state=0, max_iter=4).fit(typed, y)
    assert encoded.input_warp_.shape == (4, 2)
    assert np.isinf(encoded.input_warp_[3, 1])
    assert np.all(np.isfinite(encoded.input_warp_[:3]))
