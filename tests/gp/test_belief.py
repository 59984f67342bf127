"""The belief in processes, from rows that are left out."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skvbgp.gp._belief import (
    calibrate,
    fit_mixture,
    judge_state,
    learn_belief,
    measure_log_density,
    measure_score,
    rank_mixture,
    score_belief,
    widen,
)
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._sum import _rank_state
from tests.derivatives import numerical_gradient
from tests.gp.cases import make_data, small
from tests.oracles import gp as oracle


@pytest.fixture
def parts(rng):
    n, C = 50, 3
    return LocalMoments(
        rng.standard_normal((n, C)),
        rng.uniform(0.1, 1.0, (n, C)),
        rng.uniform(0.1, 1.0, (n, C)),
        5.0 * rng.standard_normal((n, C)),
    )


def repeat(parts, y, weight):
    """Each row as often as its weight says."""
    return Predicted(parts, y).take(np.arange(len(y)).repeat(weight))


def test_log_density(parts, rng):
    y = rng.standard_normal(50)
    expected = stats.norm(parts.mean, np.sqrt(parts.variance + parts.noise)).logpdf(y[:, None])
    assert_allclose(measure_log_density(parts, y), expected)


def test_score(parts, rng):
    y, mixture = rng.standard_normal(50), Mixture((None,) * 3, np.zeros(3), 0.0, 0.7)
    mean, variance = mixture.mix(parts, include_noise=True)
    expected = stats.norm(mean, np.sqrt(variance)).logpdf(y).mean()
    assert_allclose(measure_score(mixture, Predicted(parts, y)), expected)


def test_gradient_of_the_score(parts, rng):
    log_density = measure_log_density(parts, rng.standard_normal(50))
    x, weight = np.array([0.3, -0.5, 0.1, -2.0]), rng.uniform(0.5, 3.0, 50)
    data = log_density.T, parts.evidence.T, weight
    numeric = numerical_gradient(lambda x: score_belief(x, *data)[0], x)
    assert_allclose(score_belief(x, *data)[1], numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("factor, calibration", [(0.5, 1.0), (2.0, 4.0)])
def test_variances_grow_with_the_errors_of_rows_left_out(factor, calibration, parts, rng):
    mixture = Mixture((None,) * 3, np.zeros(3), 0.0)
    mean, variance = mixture.mix(parts, include_noise=True)
    y = mean + factor * np.sqrt(variance) * rng.choice([-1.0, 1.0], 50)
    assert_allclose(widen(mixture, Predicted(parts, y)).calibration, calibration)
    y, weight = y + rng.standard_normal(50), rng.integers(1, 4, 50)
    expected = widen(mixture, repeat(parts, y, weight)).calibration
    assert_allclose(widen(mixture, Predicted(parts, y, weight)).calibration, expected)


def test_weights_are_repetitions(parts, rng):
    """Of the rows that are left out, in the belief, the score and the calibration."""
    y, weight = rng.standard_normal(50), rng.integers(1, 4, 50)
    weighted, repeated = Predicted(parts, y, weight), repeat(parts, y, weight)
    (log_weights, temper), expected = learn_belief(weighted), learn_belief(repeated)
    assert_allclose(log_weights, expected[0], atol=1e-4)
    assert_allclose(temper, expected[1], rtol=1e-4)
    mixture = Mixture((None,) * 3, log_weights, temper)
    assert_allclose(measure_score(mixture, weighted), measure_score(mixture, repeated))
    factor = calibrate(mixture, Predicted(parts, 2.0 * y, weight))
    assert_allclose(factor, calibrate(mixture, repeat(parts, 2.0 * y, weight)), rtol=0.1)
    assert abs(factor / calibrate(mixture, Predicted(parts, 2.0 * y)) - 1.0) > 1e-3


def test_the_process_that_predicts_is_believed(parts):
    y = parts.mean[:, 1]
    mixture = fit_mixture((None,) * 3, Predicted(parts, y))
    assert np.argmax(mixture.log_weights) == 1
    assert mixture.weigh(parts.evidence)[:, 1].mean() > 0.9


def test_evidence_that_tells_is_listened_to(parts):
    """Where each row is predicted by the process with the highest evidence."""
    best = np.argmax(parts.evidence, axis=1)
    y = parts.mean[np.arange(50), best]

    def fit(parts):
        mixture = fit_mixture((None,) * 3, Predicted(parts, y))
        return mixture.temper, measure_score(mixture, Predicted(parts, y))

    temper, telling = fit(parts)
    assert temper > 0.2
    assert telling > fit(parts._replace(evidence=np.zeros_like(parts.evidence)))[1] + 0.2


@pytest.mark.parametrize("include_noise", [True, False])
def test_mixture_moments(parts, include_noise):
    mixture = Mixture((None,) * 3, np.array([0.0, -1.0, 0.5]), 0.3, extra_noise=0.2)
    mean, variance = mixture.mix(parts, include_noise=include_noise)
    for i in range(50):
        expected = oracle.mix(
            mixture.log_weights,
            0.3,
            parts.evidence[i],
            parts.mean[i],
            parts.variance[i] + include_noise * (parts.noise[i] + 0.2),
        )
        assert_allclose([mean[i], variance[i]], expected)


def test_what_is_added_to_the_noise_is_not_calibrated(parts):
    mixture = Mixture((None,) * 3, np.zeros(3), 0.0, calibration=2.0)
    noisier = replace(mixture, extra_noise=0.5)
    plain, more = (one.mix(parts, include_noise=True)[1] for one in (mixture, noisier))
    assert_allclose(more - plain, 0.5)


@pytest.mark.parametrize("draw", ["standard_normal", "standard_cauchy"])
def test_intervals_hold_what_they_promise(draw):
    """Also where errors are so heavy-tailed that the normal density has no best scale."""
    rng = np.random.default_rng(1)
    n = 2000
    parts = LocalMoments(*np.ones((4, n, 1)))
    mixture = Mixture((None,), np.zeros(1), 0.0)
    y = 1.0 + 5.0 * getattr(rng, draw)(n)
    mixture = replace(mixture, calibration=calibrate(mixture, Predicted(parts, y)))
    mean, variance = mixture.mix(parts, include_noise=True)
    assert 0.94 < np.mean(np.abs(y - mean) < 1.96 * np.sqrt(variance)) < 0.975


@pytest.mark.parametrize(("error", "expected"), [(0.5, 0.03 * 0.25), (40.0, 1.0)])
def test_rows_that_are_exact_do_not_make_a_few_others_unthinkable(error, expected):
    """Three in a hundred: without them, variances would be a thousandth of themselves."""
    parts = LocalMoments(*np.ones((4, 100, 1)))  # variances of 2
    y = 1.0 + np.sqrt(2.0) * np.repeat([1e-6, error], [97, 3])
    assert_allclose(calibrate(Mixture.of(None), Predicted(parts, y)), expected)


def test_calibration_of_rows_that_are_predicted_exactly():
    parts = LocalMoments(*np.ones((4, 20, 1)))
    assert calibrate(Mixture.of(None), Predicted(parts, np.ones(20))) > 0.0


def test_calibration_counts_errors_as_often_as_their_rows():
    """Small ones often, so that it is small."""
    z = stats.norm.ppf((np.arange(40) + 0.5) / 40)
    parts, weight = LocalMoments(*np.ones((4, 40, 1))), np.where(np.abs(z) > 1.0, 1.0, 9.0)
    left_out = Predicted(parts, 1.0 + np.sqrt(2.0) * z, weight)
    found = calibrate(Mixture.of(None), left_out)
    assert_allclose(found, np.average(z**2, weights=weight))


def test_rank_is_a_density_which_a_single_row_does_not_decide():
    rng = np.random.default_rng(3)
    y, z = rng.standard_normal((2, 400))

    def rank(scale, std, outlier=0.0):
        mean = (y - scale * z)[:, None]
        mean[0] += outlier
        one = np.ones((400, 1))
        parts = LocalMoments(mean, 0.5 * std**2 * one, 0.5 * std**2 * one, one)
        return rank_mixture(Mixture.of(None), Predicted(parts, y))

    assert rank(0.1, 0.1) > rank(0.2, 0.2) > rank(0.2, 1.0)
    assert rank(0.1, 0.1) - rank(0.1, 0.1, outlier=10.0) < 0.1
    parts = LocalMoments(np.zeros((1, 1)), *(np.full((1, 1), v) for v in (3.0, 1.0, 0.0)))
    found = rank_mixture(Mixture.of(None), Predicted(parts, np.ones(1)))
    expected = stats.t(5.0, scale=2.0 * np.sqrt(0.6)).logpdf(1.0)  # of variance 4
    assert_allclose(found, expected, rtol=1e-10)


def test_states_are_judged_by_rows_left_out(rng):
    """As often as these count; of a global part, on the scale of y."""
    X, y = make_data(60)
    weight, index = rng.choice([1.0, 3.0], 60), np.arange(10)
    states = [
        small(n_neighbors=12, max_iter=2).fit(X, unit * y, sample_weight=weight)._state
        for unit in (1.0, 10.0)
    ]
    rows, target = states[0].rows, states[0].frames.target
    parts = states[0].posterior.leave_out(index)
    mean, variance = states[0].mixture.mix(parts, include_noise=True)
    z, std = target.scaled(rows.y[index]) - mean, np.sqrt(variance)
    expected = [
        np.average(density, weights=rows.weight[index])
        for density in (
            stats.t.logpdf(z, 5.0, scale=std * np.sqrt(0.6)),
            stats.norm.logpdf(z, scale=std),
        )
    ]
    assert_allclose(judge_state(states[0], rows, index), expected)
    ranks = [_rank_state(state, state.rows, index) for state in states]
    assert_allclose(ranks[0] - ranks[1], np.log(10.0))


def test_states_are_judged_by_one_of_equal_rows_at_a_time():
    X, y = make_data(60)
    X[20:] = X[:20].repeat(2, axis=0)  # several measurements at one place
    weight, index = np.tile([1.0, 3.0], 30), np.arange(30)
    state = small(n_neighbors=12, max_iter=2).fit(X, y, sample_weight=weight)._state
    rows = state.rows
    parts = state.posterior.leave_out(index, np.maximum(rows.weight[index] - 1.0, 0.0))
    assert not np.allclose(parts.mean, state.posterior.leave_out(index).mean)
    y = state.frames.target.scaled(rows.y[index])
    mean, variance = state.mixture.mix(parts, include_noise=True)
    density = stats.norm.logpdf(y, mean, np.sqrt(variance))
    expected = np.average(density, weights=rows.weight[index])
    assert_allclose(judge_state(state, rows, index)[1], expected)
