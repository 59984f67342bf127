"""What rows that have had no part in training say of few rows of many inputs."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from skvbgp._optim.maximum import train
from skvbgp.gp import VBGPRegressor
from skvbgp.gp._folds import Verdict, draw_folds, judge_folds
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.kernels import Matern

TRAINED = {"max_iter": 4, "tol": 1e-6}


def make_process(d=2, **options):
    return start_process((1.0 * Matern(np.ones(d), nu=1.5)).bind(d), gaussian=True, **options)


def predict_part(process, X, y, noise, is_left):
    """Literally: mean and variance of the observations that are left out."""
    kept = ~is_left
    known = None if noise is None else noise[kept]
    trained = train(process, [(X[kept], y[kept], known)], **TRAINED).process
    extra = np.zeros(len(X)) if noise is None else noise.variance
    weight = np.ones(len(X)) if noise is None else noise.weight
    C = trained.kernel(X[kept]) + np.diag((trained.noise + extra[kept]) / weight[kept])
    k = trained.kernel(X[is_left], X[kept])
    mean = k @ np.linalg.solve(C, y[kept])
    variance = trained.kernel.diag(X[is_left]) - np.sum(k * np.linalg.solve(C, k.T).T, axis=1)
    return mean, variance + trained.noise + extra[is_left]


@pytest.mark.parametrize(("known", "is_wide"), [(None, False), (0.1, False), (9.0, True)])
def test_each_part_is_predicted_by_what_the_others_train(rng, known, is_wide):
    X = rng.standard_normal((23, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(23)
    y[3] += 4.0
    noise = None
    if known is not None:
        noise = RowNoise(rng.uniform(0.5, 2.0, 23), known * rng.uniform(0.5, 1.0, 23))
    process, groups = make_process(), [(X, y, noise)]
    (fold,) = folds = draw_folds(groups, np.random.RandomState(0))
    assert sorted(np.bincount(fold)) == [4, 4, 5, 5, 5]
    mean, variance = np.empty((2, 23))
    for k in range(5):
        mean[fold == k], variance[fold == k] = predict_part(process, X, y, noise, fold == k)
    weight = np.ones(23) if noise is None else noise.weight
    calibration = max(1.0, np.average((y - mean) ** 2 / variance, weights=weight))
    expected = weight @ norm.logpdf(y, mean, np.sqrt(calibration * variance))
    verdict = judge_folds(process, groups, folds, **TRAINED)
    assert_allclose(verdict, (expected, calibration), rtol=1e-5, atol=1e-5)
    assert (calibration == 1.0) == is_wide


def test_outputs_in_the_same_rows_are_judged_as_each_alone(rng):
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal((20, 2))
    process = replace(make_process(), noise=0.5)
    folds = draw_folds([(X, Y, None)], np.random.RandomState(1))
    held = {"max_iter": 1, "tol": 1e9}  # as they start
    both = judge_folds(process, [(X, Y, None)], folds, **held)
    each = judge_folds(process, [(X, y, None) for y in Y.T], [*folds, *folds], **held)
    assert_allclose(both, each, rtol=1e-8)


def make_wide(rng, n=60, d=24):
    """Inputs that all matter a little."""
    X = rng.standard_normal((n, d))
    return X, np.cos(X.sum(axis=1) / np.sqrt(d)) + 0.05 * rng.standard_normal(n)


def test_what_predicts_other_rows_takes_the_place_of_the_others(rng):
    X = rng.standard_normal((60, 24))
    all_matter = X.sum(axis=1) + 0.1 * rng.standard_normal(60)
    one_matters = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    names = {}
    for key, y in (("all", all_matter), ("one", one_matters)):
        model = VBGPRegressor(max_iter=15, random_state=0).fit(X, y)
        names[key] = {name for name, _ in model.kernels_}
    assert all("isotropic" in name for name in names["all"])
    assert not any("isotropic" in name for name in names["one"])


@pytest.mark.parametrize(("d", "n"), [(20, 40), (24, 19)])
def test_few_inputs_and_very_few_rows_are_not_judged(rng, d, n, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is to be judged")

    monkeypatch.setattr("skvbgp.gp._search.judge_folds", refuse)
    X, y = make_wide(rng, n, d)
    VBGPRegressor(max_iter=1, random_state=0).fit(X, y)
    if d > 20:
        X, y = make_wide(rng, 20, d)
        with pytest.raises(AssertionError, match="judged"):
            VBGPRegressor(max_iter=1, random_state=0).fit(X, y)


def test_intervals_are_as_wide_as_these_rows_ask(rng, monkeypatch):
    X, y = make_wide(rng, 30)
    wide = VBGPRegressor(max_iter=2, random_state=0)
    verdicts = [
        Verdict(0.0, 900.0),
        Verdict(1.0, 70.0),
        Verdict(0.5, 900.0),
    ]  # the best one's counts
    verdicts *= 2  # with warped inputs as well
    monkeypatch.setattr("skvbgp.gp._search.judge_folds", lambda *_, **__: verdicts.pop(0))
    assert wide.fit(X, y)._state.mixture.calibration == 70.0
    monkeypatch.setattr("skvbgp.gp._search.judge_folds", lambda *_, **__: Verdict(0.0, 1.0))
    assert wide.fit(X, y)._state.mixture.calibration < 70.0
