"""Length scales of few of many inputs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.maximum import Trained
from skvbgp.gp import VBGPRegressor
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp.search import _few_rows, _free_inputs
from skvbgp.gp.search._folds import Verdict, judge_folds
from skvbgp.gp.search._free_inputs import free_inputs, has_many_inputs, measure_waves
from skvbgp.kernels._by_input import bind_columns
from skvbgp.kernels._candidates import make_base_kernels
from tests.derivatives import numerical_gradient

TRAINED = {"max_iter": 20, "tol": 1e-4}


def make_rows(rng, n=100, d=30, noise=0.1):
    """A function of the inputs 3 and 17."""
    X = rng.standard_normal((n, d))
    return X, np.sin(1.2 * X[:, 3]) + X[:, 17] + noise * rng.standard_normal(n)


def make_process(d, owners=(), name="Matern-5/2"):
    n_inputs = max(owners) + 1 if owners else d
    kernel = bind_columns(dict(make_base_kernels(n_inputs))[name], d, owners)
    return start_process(kernel, gaussian=True, one_scale=True, owners=owners)


def lengths_of(process):
    return np.array(process.kernel.kernels[1].length_scale)


@pytest.mark.parametrize("name", ["Matern-1/2", "RQ"])
@pytest.mark.every_nth("name", 2)
def test_inputs_of_the_function_are_freed(rng, name):
    X, y = make_rows(rng)
    process = free_inputs(make_process(30, name=name), [(X, y, None)], **TRAINED).process
    assert set(np.flatnonzero(process.tied)) == {3, 17}
    rest = np.delete(lengths_of(process), [3, 17])
    assert np.all(rest == rest[0])
    assert np.all(rest[0] > 3.0 * lengths_of(process)[[3, 17]])
    n_learned = len(make_process(30, name=name).vector) - 30 + 3
    assert len(process.vector) == n_learned


def test_inputs_are_freed_where_all_seems_to_be_noise():
    """After training, what all inputs share is as short as any distance, and has no slopes."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 300))
    y = 2.0 * X[:, 0] + X[:, 1] + 0.3 * rng.standard_normal(60)
    process = free_inputs(make_process(300), [(X, y / y.std(), None)], **TRAINED).process
    assert set(np.flatnonzero(process.tied)) == {0, 1}


def test_nothing_is_freed_of_what_all_share(rng):
    """Noise, and a function of all inputs."""
    X = rng.standard_normal((60, 25))
    for y in (rng.standard_normal(60), X.sum(axis=1) / 5.0 + 0.1 * rng.standard_normal(60)):
        process = free_inputs(make_process(25), [(X, y, None)], **TRAINED).process
        assert not any(process.tied)
        assert np.ptp(lengths_of(process)) == 0.0


@pytest.mark.parametrize("lead, n_free", [(-0.1, 0), (0.1, 1)])
def test_an_input_has_to_gain_what_it_costs(rng, monkeypatch, lead, n_free):
    """Which one of thirty it is, and a nat; the second one gains nothing here."""
    X, y = make_rows(rng)
    gains = [0.0, *[np.log(30) + 1.0 + lead] * 2]

    def pretend(process, *_, **__):
        return Trained(process, gains.pop(0))

    monkeypatch.setattr("skvbgp.gp.search._free_inputs.train_process", pretend)
    process = free_inputs(make_process(30), [(X, y, None)], **TRAINED).process
    assert max(process.tied) == n_free


def test_columns_of_a_category_are_freed_together(rng):
    owners = (*range(20), 20, 20, 20, 21)
    X = rng.standard_normal((90, 24))
    X[:, 20:23] = np.eye(3)[rng.integers(0, 3, 90)]
    y = X[:, 20] - X[:, 22] + 0.05 * rng.standard_normal(90)
    tied = np.array(free_inputs(make_process(24, owners), [(X, y, None)], **TRAINED).process.tied)
    assert len(set(tied[20:23])) == 1
    assert tied[20] > 0
    assert 0 in tied[:20]


@pytest.mark.parametrize("name", ["wave", "bump"])
@pytest.mark.every_nth("name", 2)
def test_inputs_without_a_slope_are_freed(rng, name):
    """Waves and even functions, which no line sees and long length scales hardly."""
    X = rng.standard_normal((150, 40))
    f = np.sin(2.5 * X[:, 5]) if name == "wave" else X[:, 5] ** 2 / 2.0
    y = f + X[:, 9] + 0.2 * rng.standard_normal(150)
    process = free_inputs(make_process(40), [(X, y / y.std(), None)], **TRAINED).process
    assert set(np.flatnonzero(process.tied)) == {5, 9}


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.every_nth("n_outputs", 2)
def test_waves_are_compared_with_what_is_expected_of_them(rng, n_outputs):
    """Those of the columns of an input add up, as do those of groups and outputs."""
    X, Y = rng.standard_normal((20, 18)), rng.standard_normal((20, n_outputs))
    y, owner = Y[:, 0] if n_outputs == 1 else Y, np.array([*range(16), 16, 16])
    process, known = make_process(18), RowNoise(rng.uniform(0.5, 2.0, 20), np.zeros(20))
    parts = slice(10), slice(10, 20)
    measured = measure_waves(process, [(X[i], y[i], known[i]) for i in parts], owner)
    waves = [wave(w * X) for w in (0.5, 1.0, 2.0) for wave in (np.cos, np.sin)]
    for wave, ratios in zip(waves, measured, strict=True):
        squares, expected = np.zeros(17), np.zeros(17)
        for column, i, one in product(range(18), parts, Y.T):
            K = process.kernel(X[i])
            C_inv = np.linalg.inv(K + np.diag(process.noise / known[i].weight))
            K = K * np.outer(wave[i, column], wave[i, column])
            squares[owner[column]] += one[i] @ C_inv @ K @ C_inv @ one[i]
            expected[owner[column]] += np.trace(C_inv @ K)
        average = expected.mean()
        assert_allclose(ratios, (squares + average) / (expected + average), rtol=1e-5)


def test_waves_of_single_rows_and_constants_are_none(rng):
    """A column that is one in the row whose y is far off, and one that is zero."""
    X, y = make_rows(rng, 80)
    y[0] += 5.0
    X[:, 5], X[:, 6] = np.arange(80) == 0, 0.0
    ratios = measure_waves(make_process(30), [(X, y)], np.arange(30)).max(axis=0)
    assert set(np.flatnonzero(ratios > ratios[[5, 6]].max())) >= {3, 17}


def test_the_gradient_of_those_that_share(rng):
    X, y = make_rows(rng, 25, 18)
    process = replace(make_process(18), tied=(0,) * 5 + (1, 2) + (0,) * 11)
    slopes = numerical_gradient(
        lambda vector: process.with_vector(vector).log_evidence(X, y), process.vector
    )
    assert len(process.vector) == 1 + 3 + 1
    assert_allclose(process.evidence(X, y)[1], slopes, atol=1e-5)


def test_each_is_freed_once(rng, monkeypatch):
    """Here 3 has the largest waves before and after."""
    waves = np.zeros((1, 30))
    waves[0, [3, 17]] = 2.0, 1.0
    monkeypatch.setattr(_free_inputs, "measure_waves", lambda *_: waves.copy())
    process = free_inputs(make_process(30), [(*make_rows(rng), None)], **TRAINED).process
    assert set(np.flatnonzero(process.tied)) == {3, 17}


def test_columns_that_say_an_output_are_no_inputs():
    assert has_many_inputs(make_process(21))
    assert not has_many_inputs(replace(make_process(3), owners=tuple(range(24))))
    assert not has_many_inputs(make_process(20))
    assert not has_many_inputs(make_process(21, (0, 0, *range(1, 20))))


@pytest.mark.thorough
def test_functions_of_few_of_many_inputs_are_learned(rng, monkeypatch):
    X, y = make_rows(rng, 160)
    model = VBGPRegressor(max_iter=15, random_state=0)
    errors = []
    for most in (10**9, 20):
        monkeypatch.setattr(_free_inputs, "_MANY_INPUTS", most)
        mean = model.fit(X[:60], y[:60]).predict(X[60:])
        errors.append(np.sqrt(np.mean((mean - y[60:]) ** 2)))
    assert errors[1] < 0.7 * errors[0]
    assert set(np.argsort(model.feature_importances_)[-2:]) == {3, 17}


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.thorough
def test_a_warm_start_leaves_them_as_they_are(rng, monkeypatch):
    def prefer_freed(*_, learn=None, **__):
        return Verdict(float(learn is free_inputs), 1.0, 0.0)

    monkeypatch.setattr(_few_rows, "judge_folds", prefer_freed)
    X, y = make_rows(rng, 50, 22)
    model = VBGPRegressor(max_iter=3, random_state=0, warm_start=True).fit(X, y)
    before = {process.tied for process in model._state.mixture.processes}
    assert all(map(any, before))
    model.fit(X, y)
    assert {process.tied for process in model._state.mixture.processes} <= before


def refuse(*_, **__):
    raise AssertionError("nothing is to be freed")


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.thorough
def test_inputs_that_are_not_many_have_length_scales_anyway(rng, monkeypatch):
    monkeypatch.setattr(_few_rows, "free_inputs", refuse)
    X, y = make_rows(rng, 24, 21)
    VBGPRegressor(max_iter=1, random_state=0).fit(X[:, :20], y)
    with pytest.raises(AssertionError, match="freed"):
        VBGPRegressor(max_iter=1, random_state=0).fit(X, y)


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.parametrize("is_better", [True, False])
@pytest.mark.every_nth("is_better", 2)
def test_rows_without_a_part_in_training_decide(rng, monkeypatch, is_better):
    """And every part frees inputs anew."""
    learners = []

    def judge(*given, learn=None, **settings):
        learners.append(learn)
        if learn is not free_inputs:
            return Verdict(0.0, 2.0, 0.0)
        assert np.isfinite(judge_folds(*given, learn=learn, **settings).density)
        return Verdict(1.0 if is_better else -1.0, 3.0, 0.0)

    monkeypatch.setattr(_few_rows, "judge_folds", judge)
    X, y = make_rows(rng, 30, 21)
    state = VBGPRegressor(max_iter=2, random_state=0).fit(X, y)._state
    assert free_inputs in learners
    assert all(any(process.tied) == is_better for process in state.mixture.processes)
    assert state.mixture.calibration >= (3.0 if is_better else 2.0)


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 30])
@pytest.mark.parametrize("what", ["gaps", "outputs", "shared", "joint", "variances"])
def test_whatever_rows_are(rng, what, n_neighbors):
    X, y = make_rows(rng, 40, 22)
    options, known = {}, {}
    if what == "gaps":
        X[::7, 3] = X[::5, 1] = np.nan
    elif what == "variances":
        known["y_var"] = rng.uniform(0.01, 0.1, 40)
    else:
        y = np.column_stack([y, X[:, 17]])
        options["output_covariance"] = "learned" if what == "joint" else None
        options["output_hyperparameters"] = "shared" if what == "shared" else "own"
    model = VBGPRegressor(n_neighbors=n_neighbors, max_iter=4, random_state=0, **options)
    model.fit(X, y, **known)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.usefixtures("few_kernels")
def test_where_the_gaussian_is_wrong_the_maximum_is_left(rng, monkeypatch):
    """All draws are much less probable than a Gaussian around it says."""
    X, y = make_rows(rng, 30, 3 + 15)

    def draw(trained, groups, n, seed):
        wrong = [(replace(trained.process, noise=9.0), -40.0 - i) for i in range(n)]
        return wrong, 0.0

    monkeypatch.setattr(_few_rows, "draw_processes", draw)
    mixture = VBGPRegressor(max_iter=2, random_state=0).fit(X, y)._state.mixture
    assert all(process.noise != 9.0 for process in mixture.processes)
    assert len(mixture.processes) <= 9
