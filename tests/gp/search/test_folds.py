"""What rows that have had no part in training say of few rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from skvbgp._optim.maximum import train
from skvbgp.gp import VBGPRegressor
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp.search._folds import Verdict, draw_folds, judge_folds, learn_spread, score_spread
from skvbgp.kernels import Matern
from tests.derivatives import numerical_gradient

TRAINED = {"max_iter": 4, "tol": 1e-6}


def make_process(d=2, **options):
    return start_process((1.0 * Matern(np.ones(d), nu=1.5)).bind(d), gaussian=True, **options)


def predict_part(process, X, y, noise, counts, is_left):
    """Literally: mean and variance of observations that are left out; the others count so often."""
    kept = counts > 0.0
    known = None if noise is None else replace(noise[kept], weight=counts[kept])
    trained = train(process, [(X[kept], y[kept], known)], **TRAINED).process
    extra = np.zeros(len(X)) if noise is None else noise.variance
    C = trained.kernel(X[kept]) + np.diag((trained.noise + extra[kept]) / counts[kept])
    k = trained.kernel(X[is_left], X[kept])
    mean = k @ np.linalg.solve(C, y[kept])
    variance = trained.kernel.diag(X[is_left]) - np.sum(k * np.linalg.solve(C, k.T).T, axis=1)
    return mean, variance + trained.noise + extra[is_left]


@pytest.mark.parametrize(("known", "is_wide"), [(None, False), (0.1, False), (9.0, True)])
@pytest.mark.every_nth("known", 3)
def test_each_part_is_predicted_by_what_the_others_train(rng, known, is_wide):
    """One row is far off: unless it is known to be that uncertain, variances are too small.

    Rows that can part are in several of them.
    """
    X = rng.standard_normal((23, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(23)
    y[3] += 4.0
    noise = None
    if known is not None:
        variance = known * rng.uniform(0.5, 1.0, 23)
        noise = RowNoise(rng.uniform(0.5, 2.0, 23), variance, can_part=is_wide)
    process, groups = make_process(), [(X, y, noise)]
    (counts,) = folds = draw_folds(groups, np.random.RandomState(0))
    weight = np.ones(23) if noise is None else noise.weight
    assert_allclose(counts.sum(axis=1), weight)
    held = [(k, np.flatnonzero(counts[:, k])) for k in range(5)]
    parts = [predict_part(process, X, y, noise, weight - counts[:, k], index) for k, index in held]
    mean, variance = np.hstack(parts)
    targets = np.concatenate([y[index] for _, index in held])
    counted = np.concatenate([counts[index, k] for k, index in held])

    def measure(factor, added):
        total = np.multiply.outer(factor, variance) + np.asarray(added)[..., None]
        return norm.logpdf(targets, mean, np.sqrt(total)) @ counted

    verdict = judge_folds(process, groups, folds, **TRAINED)
    assert_allclose(verdict.density, measure(*verdict[1:]), rtol=1e-5)
    grid = np.mgrid[1.0:4.0:0.02, 0.0:3.0:0.02].reshape(2, -1)
    best = grid[:, np.argmax(measure(*grid))]
    assert_allclose(verdict.density, measure(*best), rtol=1e-3)
    assert_allclose(verdict[1:], best, atol=0.05)
    assert (verdict[1:] == (1.0, 0.0)) == is_wide


def test_equal_rows_are_shared_out():
    """One at a time up to five of them, and more in equal pieces; copies are not."""
    weight = np.array([0.3, 1.0, 2.0, 2.5, 7.0, 1e9])
    noise = RowNoise(weight, np.zeros(6))
    (counts,) = draw_folds([(np.zeros((6, 1)), np.zeros(6), noise)], np.random.RandomState(0))
    assert_allclose(np.sort(counts, axis=1)[:, -1], weight)
    group = np.zeros((6, 1)), np.zeros(6), replace(noise, can_part=True)
    (counts,) = draw_folds([group], np.random.RandomState(0))
    assert_allclose(counts.sum(axis=1), weight)
    pieces = counts / (weight / [1, 1, 2, 3, 5, 5])[:, None]
    assert_allclose(pieces, pieces.round())
    assert_allclose(pieces.sum(axis=0), [4, 4, 3, 3, 3])
    (plain,) = draw_folds([(np.zeros((8, 1)), np.zeros(8), None)], np.random.RandomState(0))
    assert_allclose(plain.sum(axis=0), [2, 2, 2, 1, 1])


def test_gradient_of_the_score_of_a_spread(rng):
    data = rng.chisquare(1, 20), rng.uniform(0.1, 2.0, 20), rng.uniform(0.5, 2.0, 20)
    x = np.array([0.3, -1.0])
    numeric = numerical_gradient(lambda x: score_spread(x, *data)[0], x)
    assert_allclose(score_spread(x, *data)[1], numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("factor", "added"), [(1.0, 0.0), (3.0, 0.0), (1.0, 0.5), (2.0, 0.5)])
def test_what_widens_is_told_from_what_is_added(rng, factor, added):
    n = 20_000
    variance = np.exp(rng.uniform(-6.0, 2.0, n))
    squares = (factor * variance + added) * rng.standard_normal(n) ** 2
    found = learn_spread(squares, variance, np.ones(n))
    assert_allclose(found, (factor, added), rtol=0.05, atol=2e-3)


def test_a_row_that_contradicts_a_sure_prediction_leaves_the_others_likely():
    """A factor alone would be 50,000 for all."""
    squares, variance = np.full(20, 1e-6), np.full(20, 1e-6)
    squares[3], variance[:10] = 1.0, 1.0
    variance[3] = 1e-6
    factor, added = learn_spread(squares, variance, np.ones(20))
    assert_allclose(factor, 1.0)
    assert 0.01 < added < 0.2


def test_weights_are_repetitions_of_errors(rng):
    squares, variance = rng.chisquare(1, 30), rng.uniform(0.1, 0.5, 30)
    weight = rng.integers(1, 4, 30)
    expected = learn_spread(squares.repeat(weight), variance.repeat(weight), np.ones(weight.sum()))
    assert_allclose(learn_spread(squares, variance, weight.astype(float)), expected, rtol=1e-3)
    assert learn_spread(np.zeros(30), variance, np.ones(30)) == (1.0, 0.0)


def test_outputs_in_the_same_rows_are_judged_as_each_alone(rng):
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal((20, 2))
    process = replace(make_process(), noise=0.5)
    folds = draw_folds([(X, Y, None)], np.random.RandomState(1))
    held = {"max_iter": 1, "tol": 1e9}  # as they start
    both = judge_folds(process, [(X, Y, None)], folds, **held)
    each = judge_folds(process, [(X, y, None) for y in Y.T], [*folds, *folds], **held)
    assert_allclose(both, each, rtol=1e-6)


def make_wide(rng, n=60, d=24):
    """Inputs that all matter a little."""
    X = rng.standard_normal((n, d))
    return X, np.cos(X.sum(axis=1) / np.sqrt(d)) + 0.05 * rng.standard_normal(n)


@pytest.mark.usefixtures("quick_searches", "few_kernels")
@pytest.mark.thorough
def test_what_predicts_other_rows_takes_the_place_of_the_others(rng):
    X = rng.standard_normal((60, 24))
    all_matter = X.sum(axis=1) + 0.1 * rng.standard_normal(60)
    one_matters = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    names = {}
    for key, y in (("all", all_matter), ("one", one_matters)):
        model = VBGPRegressor(max_iter=5, random_state=0).fit(X, y)
        names[key] = {name for name, _ in model.kernels_}
    assert all("isotropic" in name for name in names["all"])
    assert not any("isotropic" in name for name in names["one"])


@pytest.mark.usefixtures("quick_searches", "few_kernels")
@pytest.mark.parametrize("d", [1, 24])
@pytest.mark.every_nth("d", 2)
def test_very_few_rows_are_not_judged(rng, d, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is to be judged")

    monkeypatch.setattr("skvbgp.gp.search._few_rows.judge_folds", refuse)
    X, y = make_wide(rng, 20, d)
    VBGPRegressor(max_iter=1, random_state=0).fit(X[:19], y[:19])
    with pytest.raises(AssertionError, match="judged"):
        VBGPRegressor(max_iter=1, random_state=0).fit(X, y)


@pytest.mark.usefixtures("quick_searches", "few_kernels")
def test_intervals_are_as_wide_as_these_rows_ask(rng, monkeypatch):
    X, y = make_wide(rng, 30)
    model = VBGPRegressor(max_iter=1, random_state=0)
    verdicts = [Verdict(0.0, 900.0, 0.0), Verdict(1.0, 70.0, 0.25), Verdict(0.5, 900.0, 0.0)]
    verdicts *= 2  # with warped inputs as well; the best one's counts
    monkeypatch.setattr("skvbgp.gp.search._few_rows.judge_folds", lambda *_, **__: verdicts.pop(0))
    mixture = model.fit(X, y)._state.mixture
    assert (mixture.calibration, mixture.extra_noise) == (70.0, 0.25)
    std, latent = (
        model.predict(X, return_std=True, include_noise=noise)[1] for noise in (True, False)
    )
    noises = [process.noise for process in mixture.processes]
    more = (std**2 - latent**2) / (y.std() ** 2)
    assert np.all(more >= 70.0 * min(noises) + 0.25 - 1e-9)
    assert np.all(more <= 70.0 * max(noises) + 0.25 + 1e-9)
    assert min(noises) + 0.25 <= model.noise_variance_ / y.var() <= max(noises) + 0.25
    nothing = Verdict(0.0, 1.0, 0.0)
    monkeypatch.setattr("skvbgp.gp.search._few_rows.judge_folds", lambda *_, **__: nothing)
    mixture = model.fit(X, y)._state.mixture
    assert mixture.calibration < 70.0
    assert mixture.extra_noise == 0.0
