"""Inputs that are warped: what learns that, and predictions in the user's units."""

from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.scaling import Coordinates
from skvbgp._optim.ascent import Watch
from skvbgp.base import _joint_learner
from skvbgp.gp import VBGPRegressor, _learner
from skvbgp.gp._learner import _CLEAR_LEAD, GPLearner, _find_better
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._sum import train_sum
from skvbgp.gp._warp import (
    Warp,
    WarpedCoordinates,
    WarpedProcess,
    fit_values,
)
from skvbgp.gp.search._search import finish
from skvbgp.kernels import RBF, Matern
from tests.derivatives import check_mean_gradient, numerical_gradient
from tests.gp.cases import make_data
from tests.means import check_means
from tests.observer import Recorder
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches", "few_kernels", "unjudged")


def make_counts(n, seed=0):
    """Skewed inputs, and the logarithm of the sum of two of them."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.standard_normal((n, 3)))
    return X, np.log(X[:, 0] + X[:, 1]) + 0.02 * rng.standard_normal(n)


@pytest.fixture
def warp(rng):
    Z = rng.standard_normal((20, 3))
    return Warp.of(np.array([0, 2]), np.array([-1.0, 0.3, -2.0, 1.0]), Z, np.ones(20))


def test_warped_coordinates_can_be_undone_and_have_units(rng, warp):
    X = rng.standard_normal((6, 3))
    coordinates = WarpedCoordinates(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]), warp)
    scaled = coordinates.scaled(X)
    assert_allclose(coordinates.original(scaled), X, rtol=1e-10)
    assert_array_equal(scaled[:, 1], (X[:, 1] - 2.0) / 3.0)
    assert_array_equal(coordinates.scaled(X[None])[0], scaled)  # stacks of rows
    step = 1e-6 * coordinates.measure_units(X)
    assert_allclose(coordinates.scaled(X + step) - scaled, 1e-6, rtol=1e-4)


def make_warped(process):
    """Of the first and the third of three inputs."""
    return WarpedProcess(process, np.array([0, 2]), np.array([0.3, 0.5, -0.2, -1.0]), np.zeros(4))


def check_gradients(model, groups):
    for function in (lambda m: m.evidence(*groups), lambda m: m.log_prior()):
        slopes = numerical_gradient(lambda v, f=function: f(model.with_vector(v))[0], model.vector)
        assert_allclose(function(model)[1], slopes, rtol=1e-6, atol=1e-7)
    assert_allclose(model.log_evidence(*groups), model.evidence(*groups)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_the_evidence_of_a_warp(rng, weighted):
    X, y = np.exp(rng.standard_normal((12, 3))), rng.standard_normal(12)
    known = RowNoise(rng.uniform(0.5, 2.0, 12), np.full(12, 0.1)) if weighted else None
    model = make_warped(start_process((1.5 * RBF()).bind(3), gaussian=True))
    check_gradients(model, [(X, y, known)])
    W = model.make_warp([(X, y, known)])(X)
    weight = None if known is None else known.weight
    assert_allclose(np.average(W[:, [0, 2]] ** 2, axis=0, weights=weight), 1.0)


def test_one_warp_of_all_outputs_by_the_sum_of_their_evidence(rng):
    """Two outputs of the same rows and one of others, whose rows count twice."""
    X, Y = np.exp(rng.standard_normal((16, 3))), rng.standard_normal((10, 2))
    y, known = rng.standard_normal(6), RowNoise(np.full(6, 2.0), np.zeros(6))
    model = make_warped(start_process((1.5 * RBF()).bind(3), gaussian=False))
    groups = [(X[:10], Y, None), (X[10:], y, known)]
    check_gradients(model, groups)
    W = X.copy()
    shape = np.array([0.3, 0.5]), np.exp([-0.2, -1.0])
    W[:, [0, 2]] = oracle.warp(X[:, [0, 2]], *shape, np.full(16, 2))
    assert_allclose(model.make_warp(groups)(X), W, rtol=1e-10)
    C = model.process.kernel(W) + model.process.noise * np.eye(16)
    expected = sum(oracle.log_student(one, C[:10, :10], model.process.dof) for one in Y.T)
    expected += model.process.log_evidence(W[10:], y, known)
    assert_allclose(model.evidence(*groups)[0], expected, rtol=1e-6)


def test_gradient_of_a_warp_of_outputs_that_learn_from_each_other(rng):
    """Indicators of the outputs stay as they are."""
    X, outputs = np.exp(rng.standard_normal((12, 3))), np.arange(12) % 2
    rows, y = np.hstack([X, np.eye(2)[outputs]]), rng.standard_normal(12)
    process = start_process((1.5 * RBF()).bind(3), gaussian=True, n_outputs=2)
    coregion = process.coregion.with_vector(0.5 * rng.standard_normal(5))
    model = make_warped(replace(process, coregion=coregion))
    check_gradients(model, [(rows, y, None)])
    W = X.copy()
    shape = np.array([0.3, 0.5]), np.exp([-0.2, -1.0])
    W[:, [0, 2]] = oracle.warp(X[:, [0, 2]], *shape, np.full(12, 1))
    k, noises = process.kernel(W), process.noise * coregion.factors
    expected, *_ = oracle.predict_outputs(k, coregion.B, outputs, y, noises)
    assert_allclose(model.evidence((rows, y, None))[0], expected, rtol=1e-6)


def test_values_that_are_normal_stay_and_skewed_ones_are_bent(rng):
    normal = rng.standard_normal(200)
    assert fit_values(normal) == (0.0, 1.0)
    centre, log_width = fit_values(np.exp(normal))
    assert centre < 0.5
    assert log_width < 0.0
    assert fit_values(np.unique(np.append(normal, normal))) == (0.0, 1.0)


@pytest.mark.thorough
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


#: How several outputs go together; None is one output.
OUTPUTS = [None, {"output_hyperparameters": "shared"}, {"output_covariance": "learned"}]
several_outputs = pytest.mark.parametrize(
    "outputs",
    [OUTPUTS[1], pytest.param(OUTPUTS[2], marks=pytest.mark.thorough)],
    ids=["shared", "learned"],
)


def make_outputs(n):
    """The skewed inputs, and two outputs in other units, each of which was observed elsewhere."""
    X, y = make_counts(n)
    Y = np.column_stack([y, 4.0 - 3.0 * y])
    Y[::3, 0], Y[1::3, 1] = np.nan, np.nan
    return X, Y


@pytest.fixture
def eager(monkeypatch):
    """A warp needs to gain nothing."""
    monkeypatch.setattr("skvbgp.gp._warp._LEAST_GAIN", -np.inf)
    monkeypatch.setattr("skvbgp.gp._warp._LEAST_GAIN_NEAR", -np.inf)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("n_neighbors", ["auto", 25])
@pytest.mark.in_turn("n_neighbors")
def test_gradients_are_those_of_warped_predictions(n_neighbors):
    X, y = make_counts(50)
    model = VBGPRegressor(n_neighbors=n_neighbors, random_state=0, max_iter=4).fit(X, y)
    assert np.all(np.isfinite(model.input_warp_))
    places = X[7:10] + 0.05
    check_means(model._state.posterior, places)
    if n_neighbors == "auto":
        check_mean_gradient(model, places)
    functions = model.sample_function(4, random_state=0)
    steps = 1e-6 * np.eye(3)
    for i, slope in enumerate(np.moveaxis(functions.gradient(places), 1, 0)):
        difference = functions(places + steps[i]) - functions(places - steps[i])
        assert_allclose(slope, difference / 2e-6, rtol=1e-3, atol=1e-4)


@pytest.fixture
def kept(monkeypatch, eager):
    """A warp is kept, whatever rows that are left out say."""
    monkeypatch.setattr("skvbgp.gp._learner._is_ahead", lambda warped, straight: True)


@pytest.mark.usefixtures("kept")
@several_outputs
@pytest.mark.parametrize("n_neighbors", ["auto", 25])
@pytest.mark.in_turn("n_neighbors")
@pytest.mark.thorough
def test_gradients_of_several_outputs_are_those_of_warped_predictions(outputs, n_neighbors):
    """Of kernels whose functions have some, as these few."""
    X, Y = make_outputs(40)
    model = VBGPRegressor(n_neighbors=n_neighbors, random_state=0, max_iter=1, **outputs)
    model.fit(X, Y)
    assert np.all(np.isfinite(model.input_warp_))
    assert model.input_warp_.shape == (3, 2)
    assert model.feature_importances_.shape == (3,)
    places, step = X[7:10] + 0.05, 1e-5
    functions = model.sample_function(4, random_state=0)
    slopes = functions.gradient(places)
    mean_slopes, _ = model.predict_gradient(places)
    for i, shift in enumerate(step * np.eye(3)):
        difference = functions(places + shift) - functions(places - shift)
        assert_allclose(slopes[:, :, i], difference / (2.0 * step), rtol=1e-3, atol=1e-3)
        if n_neighbors == "auto":
            difference = model.predict(places + shift) - model.predict(places - shift)
            assert_allclose(mean_slopes[..., i], difference / (2.0 * step), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("kept")
@several_outputs
def test_a_stream_of_several_outputs_keeps_the_warp_and_a_warm_start_as_well(outputs):
    X, Y = make_outputs(54)
    model = VBGPRegressor(random_state=0, max_iter=1, warm_start=True, **outputs)
    model.fit(X[:51], Y[:51])
    warp = model.input_warp_
    assert np.all(np.isfinite(warp))
    assert_array_equal(model.partial_fit(X[51:], Y[51:]).input_warp_, warp)
    before = find_frames(model)[0].coordinates.warp
    model.fit(X[:30], Y[:30])
    assert all(frames.coordinates.warp is before for frames in find_frames(model))


def find_frames(model):
    """Those of all outputs, or of all outputs' model."""
    state = model._state
    outputs = state.outputs if hasattr(state, "outputs") else [state.model]
    return [output.frames for output in outputs]


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
@several_outputs
def test_categories_of_several_outputs_are_not_warped_and_gaps_let_none_be(outputs):
    X, Y = make_outputs(40)
    typed = np.column_stack([X, np.arange(40) % 3])
    model = VBGPRegressor(categorical_features=[3], random_state=0, max_iter=4, **outputs)
    model.fit(typed, Y)
    assert_array_equal(np.isfinite(model.input_warp_[:, 1]), [True, True, True, False])
    X[3, 1] = np.nan
    gaps = VBGPRegressor(random_state=0, max_iter=1, **outputs).fit(X, Y)
    assert_array_equal(gaps.input_warp_, [[np.nan, np.inf]] * 3)


@pytest.fixture
def patient(monkeypatch):
    """Straight inputs are trained to the end."""
    monkeypatch.setattr("skvbgp.gp._learner._CLEAR_LEAD", np.inf)


@pytest.mark.thorough
@pytest.mark.usefixtures("kept", "patient")
@several_outputs
def test_both_are_trained_in_no_more_passes_than_said(outputs):
    """The beginning of each, and then the rest."""
    X, Y = make_outputs(60)
    model = VBGPRegressor(n_neighbors=15, random_state=0, max_iter=3, **outputs)
    observed, y = model._prepare(X, Y, reset=True, sample_weight=None, y_var=None)
    learner, states = model._full_learner(), []
    start = learner.start(observed, y, np.random.RandomState(0), None)
    learner.train(start, observed, y, lambda make: bool(states.append(make())))
    widths = [learner.attributes(state)["input_warp_"][0, 1] for state in states]
    is_warped = np.isfinite(widths)
    assert [kind for kind, _ in groupby(is_warped)][:4] == [False, True, False, True]
    assert 8 <= is_warped.sum() < len(states) <= learner.max_passes(y)


@pytest.mark.usefixtures("eager")
@pytest.mark.thorough
def test_a_weight_is_a_repetition_of_a_warped_row():
    X, y = make_counts(30)
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    noisy = y + 0.1 * np.random.default_rng(1).standard_normal(30)
    weighted = VBGPRegressor(random_state=0, max_iter=2).fit(X, noisy, sample_weight=weight)
    rows = np.append(np.arange(30), np.arange(10))
    repeated = VBGPRegressor(random_state=0, max_iter=2).fit(X[rows], noisy[rows])
    assert np.all(np.isfinite(weighted.input_warp_))
    assert_allclose(repeated.input_warp_, weighted.input_warp_, rtol=1e-6)
    assert_allclose(repeated.predict(X), weighted.predict(X), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
@several_outputs
def test_a_weight_is_a_repetition_of_a_warped_row_of_several_outputs(outputs):
    X, Y = make_outputs(40)
    Y += 0.1 * np.random.default_rng(1).standard_normal(Y.shape)
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    make = partial(VBGPRegressor, random_state=0, max_iter=2, **outputs)
    weighted = make().fit(X, Y, sample_weight=weight)
    rows = np.append(np.arange(40), np.arange(10))
    repeated = make().fit(X[rows], Y[rows])
    assert np.all(np.isfinite(weighted.input_warp_))
    assert_allclose(repeated.input_warp_, weighted.input_warp_, rtol=1e-5)
    assert_allclose(repeated.predict(X), weighted.predict(X), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def states():
    """What two whole fits have learned, by the kind of their coordinates."""
    return {}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("outputs", OUTPUTS, ids=["one", "shared", "learned"])
@pytest.mark.parametrize(
    ("lead", "ranks_lead", "is_kept"),
    [(0.01, -1.0, True), (-0.05, 1.0, True), (-0.05, -1.0, False), (-0.2, 1.0, False)],
)
@pytest.mark.in_turn("outputs")
def test_what_rows_left_out_say_decides(monkeypatch, states, outputs, lead, ranks_lead, is_kept):
    """Of two whole trainings, if neither says on its way that it will be better.

    A few of the rows, which ranks hardly see, may cost a warp a tenth of a nat of each.
    """
    X, y = make_counts(30)
    y = y if outputs is None else np.column_stack([y, -3.0 * y])
    train, said = GPLearner._train, []

    def judge(self, starts, part, end_pass):
        kind, is_warped = type(starts[0].frames.coordinates), float(len(said))
        said.append(kind)
        known = kind, str(outputs)
        if known not in states:
            states[known] = finish(train(self, starts, part, end_pass))
        yield np.nan
        judged = {"score": is_warped * lead, "rank": is_warped * ranks_lead}
        return tuple(replace(one, **judged) for one in states[known])

    monkeypatch.setattr(GPLearner, "_train", judge)
    monkeypatch.setattr(_joint_learner, "_LEAST_VALUES", 1_000)  # no output is tried alone
    model = VBGPRegressor(random_state=0, max_iter=2, **outputs or {}).fit(X, y)
    assert said == [Coordinates, WarpedCoordinates]
    assert model.input_warp_.shape == (3, 2)
    assert np.all(np.isfinite(model.input_warp_)) == is_kept


class Outcome(NamedTuple):
    """What a training comes to, as far as another one is compared with it."""

    name: str
    score: float
    rank: float


def train_as(name, score, rank, end_pass, passes):
    """A training that says after two passes how good it may be, and has two more."""
    for rest in (False, True):
        if rest:
            yield rank
        for _ in range(2):
            if not end_pass.stopped:
                passes.append(name)
                end_pass(None)
    return (Outcome(name, score, rank),)


def choose(lead, score=0.0, stop_after=None):
    """Which one is chosen, and whose passes there are, where warped inputs lead on the way."""
    passes = []
    watch = Watch(lambda _: len(passes) == stop_after)
    straight = train_as("s", 0.0, 1.0, watch, passes)
    warped = train_as("w", score, 1.0 + lead, watch, passes)
    return _find_better(straight, warped, watch)[0].name, "".join(passes)


@pytest.mark.parametrize(
    ("lead", "score", "chosen", "passes"),
    [
        (1.1 * _CLEAR_LEAD, -1.0, "w", "sswwww"),
        (0.9 * _CLEAR_LEAD, -1.0, "s", "sswwssww"),
        (0.9 * _CLEAR_LEAD, 1.0, "w", "sswwssww"),
        (-5.0, 1.0, "w", "sswwssww"),
        (np.nan, -1.0, "s", "sswwssww"),
    ],
)
def test_straight_inputs_go_on_unless_they_are_clearly_behind(lead, score, chosen, passes):
    assert choose(lead, score) == (chosen, passes)


@pytest.mark.parametrize(
    ("stop_after", "chosen"), [(1, "s"), (2, "s"), (3, "w"), (4, "w"), (5, "s"), (6, "s"), (7, "w")]
)
def test_of_a_training_that_is_stopped_there_is_what_was_at_work(stop_after, chosen):
    """Or the better one, if straight inputs have come to their end."""
    found, passes = choose(0.0, 1.0, stop_after)
    assert found == chosen
    assert passes == "sswwssww"[:stop_after]


@pytest.mark.thorough
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("stop_after", [None, 7])
def test_every_pass_counts(monkeypatch, goes_on, stop_after):
    """Those of straight inputs, too, and as long as training was not asked to stop."""
    monkeypatch.setattr("skvbgp.gp._learner._CLEAR_LEAD", np.inf if goes_on else -np.inf)
    X, y = make_counts(60)
    recorder = Recorder(stop_after=stop_after)
    model = VBGPRegressor(random_state=0, max_iter=4).set_callbacks(recorder).fit(X, y)
    assert model.n_iter_ == len(recorder.models) == (stop_after or model.n_iter_)
    assert np.all(np.isfinite(model.input_warp_)) or goes_on


@pytest.mark.usefixtures("eager")
def test_both_go_on_where_the_number_of_inducing_inputs_is_given(monkeypatch):
    """There is nothing to compare on the way."""
    started = []

    def train(*arguments):
        started.append(arguments)
        return train_sum(*arguments)

    monkeypatch.setattr(_learner, "train_sum", train)
    X, y = make_counts(60)
    model = VBGPRegressor(n_inducing=15, n_neighbors=12, max_iter=4, random_state=0).fit(X, y)
    assert len(started) == 2
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
def test_warm_start_keeps_the_warp():
    X, y = make_counts(40)
    model = VBGPRegressor(random_state=0, max_iter=3, warm_start=True).fit(X, y)
    before = model._state.frames.coordinates.warp
    model.set_params(max_iter=2).fit(X[:30], y[:30])
    assert model._state.frames.coordinates.warp is before


@pytest.mark.usefixtures("kept")
def test_categories_are_not_warped():
    X, y = make_counts(40)
    typed = np.column_stack([X, np.arange(40) % 3])
    encoded = VBGPRegressor(categorical_features=[3], random_state=0, max_iter=2).fit(typed, y)
    assert encoded.input_warp_.shape == (4, 2)
    assert np.isinf(encoded.input_warp_[3, 1])
    assert np.all(np.isfinite(encoded.input_warp_[:3]))
