"""Streams of sums over rows, in which older rows fade."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor
from skvbgp.base import _change
from tests.sgpr.cases import INDEPENDENT, SPARSE_SOLVERS, make_data, small
from tests.sgpr.test_partial_fit import assert_equal_models

independent = pytest.mark.parametrize("cls", INDEPENDENT)
N, SHARE = 42, 0.95


def fixed(cls, **options):
    """Nothing to learn but q(s)."""
    X, _ = make_data(N)
    given = {"inducing_inputs": X[::5] + 0.1, "learn_hyperparameters": False}
    return small(cls, **(given | options))


def stream(model, X, y, step, **metadata):
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        model.partial_fit(X[rows], y[rows], **{k: v[rows] for k, v in metadata.items()})
    return model


def ages(n):
    return np.arange(n - 1.0, -1.0, -1.0)


@independent
@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.thorough), 5, N])
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize("knows_noise", [True, False])
@pytest.mark.in_turn("cls", "solver", "normalize_y")
@pytest.mark.every_nth("knows_noise", 2)
def test_rows_count_by_their_age(cls, solver, step, normalize_y, knows_noise, rng, monkeypatch):
    monkeypatch.setattr(_change, "_ODDS", np.inf)  # no second stream
    X, y = make_data(N)
    y[:20] += 7.0  # mean and spread of y fade, too
    given = {"sample_weight": rng.uniform(0.5, 2.0, N)}
    if step > 1:  # a call has rows that count
        given["sample_weight"][[3, 41]] = 0.0
    options = {"solver": solver, "normalize_y": normalize_y}
    if knows_noise:  # then none of it is relative to the spread of y
        given["y_var"], options["noise_variance"] = rng.uniform(0.0, 0.3, N), 0.3
    model = stream(fixed(cls, forgetting=SHARE, **options), X, y, step, **given)
    given["sample_weight"] = given["sample_weight"] * SHARE ** ages(N)
    assert_equal_models(model, fixed(cls, **options).fit(X, y, **given), X)


@independent
def test_a_fit_weighs_all_rows_alike_and_then_they_fade(cls):
    X, y = make_data(N)
    model = fixed(cls, forgetting=SHARE).fit(X[:20], y[:20])
    assert_array_equal(model.predict(X), fixed(cls).fit(X[:20], y[:20]).predict(X))
    model.partial_fit(X[20:], y[20:])
    weight = SHARE ** np.minimum(ages(N), N - 20.0)
    weight[20:] = SHARE ** ages(N - 20)
    assert_equal_models(model, fixed(cls).fit(X, y, sample_weight=weight), X)


@independent
def test_rows_of_weight_zero_may_let_all_others_of_a_call_fade(cls):
    X, y = make_data(N)
    model = fixed(cls, forgetting=1e-3, normalize_y=False).partial_fit(X[:20], y[:20])
    model.partial_fit(X[20:], y[20:], sample_weight=np.arange(N - 20) < 10)
    assert model.n_samples_seen_ == 30
    weight = np.zeros(N)
    weight[29] = 1e-9  # the least there is; of those before, 1e-66 is left
    expected = fixed(cls, normalize_y=False).fit(X, y, sample_weight=weight)
    means = [one.predict(X, include_noise=False) for one in (model, expected)]
    assert_allclose(*means, atol=1e-12)


@independent
@pytest.mark.every_nth("cls", 2)
def test_forgetting_nothing_is_the_default(cls):
    X, y = make_data(N)
    plain, one = (stream(small(cls, **f), X, y, 14) for f in ({}, {"forgetting": 1}))
    assert_array_equal(plain.predict(X, True), one.predict(X, True))


def test_few_rows_are_learned_from_by_their_age():
    """The exact posterior keeps the rows, and those of almost no weight not for ever."""
    X, y = make_data(60)
    model = stream(small(VBDTCRegressor, "exact", forgetting=0.8), X, y, 10)
    weight = 0.8 ** ages(60)
    weight[weight < 0.01] = 0.0
    expected = small(VBDTCRegressor, "exact").fit(X, y, sample_weight=weight)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6)
    assert len(model._state.kept_rows[1]) == np.count_nonzero(weight) == 21
    assert model.n_samples_seen_ == 60


@pytest.mark.parametrize("solver", ["exact", "collapsed"])
@pytest.mark.every_nth("solver", 2)
def test_an_output_that_is_not_observed_fades(solver):
    X, y = make_data(N)
    options = {"learn_hyperparameters": False, "noise_variance": 0.2, "signal_std": 1.0}
    options["length_scale"] = 1.0
    if solver == "collapsed":
        options["inducing_inputs"] = X[::5]
    model = small(VBDTCRegressor, solver, forgetting=0.9, **options)
    Y = np.column_stack([y, np.where(np.arange(N) < 28, -y, np.nan)])
    both = stream(clone(model), X, Y, 14)
    weight = 0.9 ** ages(N)
    for j, rows in ((0, slice(None)), (1, slice(28))):
        alone = clone(model).fit(X[rows], Y[rows, j], sample_weight=weight[rows])
        assert_allclose(
            np.array(both.predict(X, True))[:, :, j], alone.predict(X, True), rtol=1e-7, atol=1e-8
        )
    assert both.n_samples_seen_ == N


@pytest.mark.thorough
def test_an_abrupt_change_is_forgotten(rng):
    X = rng.uniform(-2.0, 2.0, (240, 1))
    y = np.where(np.arange(240) < 120, np.sin(3.0 * X[:, 0]), 2.0 - X[:, 0] ** 2)
    y = y + 0.1 * rng.standard_normal(240)
    T = rng.uniform(-2.0, 2.0, (200, 1))

    def error(model):
        return np.sqrt(np.mean((model.predict(T) - 2.0 + T[:, 0] ** 2) ** 2))

    settings = {"n_inducing": 20, "solver": "collapsed", "max_iter": 20, "random_state": 0}
    fresh = error(VBDTCRegressor(**settings).fit(X[120:], y[120:]))
    assert error(stream(VBDTCRegressor(forgetting=0.95, **settings), X, y, 40)) < 4.0 * fresh
    assert error(stream(VBDTCRegressor(**settings), X, y, 40)) > 5.0 * fresh


@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
@pytest.mark.parametrize("forgetting", [0.0, 1.5, 50])
def test_a_window_is_refused(cls, forgetting):
    X, y = make_data(N)
    with pytest.raises(ValueError, match="forgetting"):
        small(cls, forgetting=forgetting).partial_fit(X, y)


def test_rows_of_dask_do_not_fade():
    da = pytest.importorskip("dask.array")
    X, y = make_data(N)
    with pytest.raises(TypeError, match="forgetting"):
        small(VBDTCRegressor, forgetting=0.9).partial_fit(da.from_array(X), da.from_array(y))


@pytest.mark.thorough
def test_hyperparameters_are_learned_again_from_rows_that_are_remembered():
    """As often as so many have come; 0.95 ** 59 is the first below a twentieth."""
    X, y = make_data(260)
    model = small(VBDTCRegressor, forgetting=0.95, solver="collapsed", max_iter=1)
    model.fit(X[:100], y[:100])
    places, restarts = model.inducing_inputs_, []
    for start in range(100, 260, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10])
        if len(model.inducing_inputs_) != len(places) or np.any(model.inducing_inputs_ != places):
            restarts.append(start + 10)
        places = model.inducing_inputs_
    assert restarts == [160, 220]
    assert len(model._state.kept_rows[1]) == 90  # 0.95 ** 90 is less than a hundredth
    assert model.n_samples_seen_ == 260
