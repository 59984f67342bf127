"""How much noise a model takes whose kernel of noise has been found: against dense predictions."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBPICRegressor
from skvbgp._core.linalg import JITTER
from skvbgp._core.scaling import RunningScale
from skvbgp.kernels import Matern
from skvbgp.sgpr import _learner, _noise_choice
from skvbgp.sgpr._bound import Shared
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._memory import remember
from skvbgp.sgpr._noise_choice import choose_again, choose_noise_variance
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._quadrature import ClosedForm
from skvbgp.sgpr._state import State
from tests.oracles import sgpr as oracles
from tests.sgpr.problems import small_problem

NOISES = np.array([0.2, 0.7, 3.0])


def state_of(problem, memory=None, *, found=True):
    """A trained state, whose kernel of noise a search has found."""
    model, target = problem.model, problem.data.target
    return State(
        model=replace(model, structure=replace(model.structure, found=found)),
        parameters=problem.parameters,
        memory=problem.memory() if memory is None else memory,
        reference=target,
        target=target,
        summary=RunningScale.of(problem.data.y),
        draw_rule=ClosedForm(),
        seed=0,
        n_seen=len(problem.data),
        places=Places.none(problem.data.X.shape[1]),
    )


def left_out_by_hand(mean, covariance, y):
    """Sum of log densities of each given the others."""
    total = 0.0
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, i])
        variance = covariance[i, i] - gain @ covariance[rest, i]
        error = y[i] - mean[i] - gain @ (y - mean)[rest]
        total -= 0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)
    return total


def conclude_with(state, data):
    """A pass over all rows of the state's model."""

    def conclude(parameters, rule):
        memory = remember(Shared(state.model, parameters), data, rule, n_jobs=None)
        return replace(state, parameters=parameters, memory=memory)

    return conclude


def scores(state, data, noises=NOISES):
    held = _noise_choice._leave_out(state, data, conclude_with(state, data))
    return sum(part.score(noises) for part in held)


@pytest.mark.parametrize("known", [None, np.linspace(0.0, 2.0, 11)])
def test_rows_are_predicted_from_their_block_and_what_others_say_of_u(known):
    problem = small_problem("pitc")
    problem = replace(problem, data=replace(problem.data, variance=known))
    p, (x, y) = problem.parameters, problem.scaled
    Sigma, C = oracles.sigma_zz(problem.Z, JITTER), problem.C
    expected = np.zeros(len(NOISES))
    for block in problem.groups:
        others = np.setdiff1d(np.arange(len(y)), block)
        known_at_mean = p.nu, np.full(2, 1e-12), p.alpha, p.beta
        C_others = C[np.ix_(others, others)]
        m, S = oracles.optimal_q(x[others], y[others], problem.Z, *known_at_mean, C_others, JITTER)
        K = oracles.k_xz(x[block], problem.Z, p.nu, p.alpha)
        G = K @ np.linalg.inv(Sigma)
        prior = oracles.k_xx(x[block], x[block], p.nu, p.alpha)
        own = prior - G @ Sigma @ G.T + G @ S @ G.T + C[np.ix_(block, block)]
        for i, noise in enumerate(NOISES):
            covariance = own + (noise - p.noise_variance) * np.eye(len(block))
            expected[i] += left_out_by_hand(G @ m, covariance, y[block])
    assert_allclose(scores(state_of(problem), problem.data), expected, rtol=1e-6)


def test_of_many_blocks_some_are_left_out(monkeypatch):
    problem = small_problem("pitc")
    state, data = state_of(problem), problem.data
    every = _noise_choice._leave_out(state, data, conclude_with(state, data))
    monkeypatch.setattr(_noise_choice, "_MOST_BLOCKS", 2)
    some = _noise_choice._leave_out(state, data, conclude_with(state, data))
    assert len(some) == 2 < len(every)
    for held, known in zip(some, every, strict=False):
        assert_allclose(held.K, known.K, rtol=1e-9)
        assert_allclose(held.y, known.y, rtol=1e-9)


def test_rows_are_predicted_from_all_where_all_are_known():
    problem = small_problem("pitc")
    p, (x, y) = problem.parameters, problem.scaled
    rows = problem.data.rows(slice(None))
    mixture = Mixture(problem.model, p, rows, np.zeros((1, 3)), tuple(problem.groups))
    prior = oracles.k_xx(x, x, p.nu, p.alpha) + problem.C
    expected = [
        left_out_by_hand(np.zeros(11), prior + (noise - p.noise_variance) * np.eye(11), y)
        for noise in NOISES
    ]
    assert_allclose(scores(state_of(problem, mixture), problem.data), expected, rtol=1e-9)


def test_copies_do_not_predict_each_other(rng):
    """Nor does a row of weight two; rows at one place with other targets do."""
    problem = small_problem("pitc")
    rows = problem.data.rows(slice(None))
    twice = replace(rows, X=np.append(rows.X, rows.X[:3], 0), y=np.append(rows.y, rows.y[:3]))
    weight = np.append(np.full(3, 2.0), np.ones(8))
    root = rng.standard_normal((11, 11))
    K = root @ root.T
    index = np.append(np.arange(11), np.arange(3))
    merged = _noise_choice._merge(K[np.ix_(index, index)], twice.y, twice)
    plain = _noise_choice._merge(K, rows.y, replace(rows, weight=weight))
    assert len(merged.y) == 11
    assert_allclose(merged.score(NOISES), plain.score(NOISES), rtol=1e-10)
    contradicted = replace(twice, y=twice.y + np.append(np.zeros(11), np.ones(3)))
    K = K[np.ix_(index, index)]
    assert len(_noise_choice._merge(K, contradicted.y, contradicted).y) == 14


def test_the_noise_is_the_largest_that_costs_little():
    problem = small_problem("pitc")
    state, data = state_of(problem), problem.data
    state = replace(state, parameters=replace(state.parameters, noise_variance=1e-6))
    chosen = choose_noise_variance(state, data, conclude_with(state, data))
    noise = chosen.parameters.noise_variance

    def score(noise):
        return scores(state, data, np.array([noise]))[0] / len(data)

    best = max(score(1e-6 * factor) for factor in _noise_choice._FACTORS)
    assert score(noise) >= best - 0.01
    assert score(noise * 10.0**0.25) < best - 0.01
    assert noise > 1e-3


def test_noise_beside_a_kernel_that_was_given_stays():
    problem = small_problem("pitc")
    state = state_of(problem, found=False)
    assert choose_noise_variance(state, problem.data, None) is state


def test_it_is_chosen_again_from_what_training_has_left():
    """Not from what was chosen before, which may be too much for more rows."""
    problem = small_problem("pitc")
    state, data = state_of(problem), problem.data
    low = replace(state, parameters=replace(state.parameters, noise_variance=1e-6))
    chosen = choose_noise_variance(low, data, conclude_with(state, data))
    assert chosen.learned_noise == 1e-6
    high = replace(chosen, parameters=replace(state.parameters, noise_variance=0.9))
    again = choose_again(high, data, conclude_with(state, data))
    assert again.parameters.noise_variance == chosen.parameters.noise_variance
    assert again.learned_noise == 1e-6
    assert choose_again(state, data, None) is state  # nothing was chosen


def test_a_stream_chooses_it_again_with_its_blocks(monkeypatch):
    """On y's own scale, whose unit is refined by every call."""
    monkeypatch.setattr("skvbgp.sgpr._settings._BLOCK_ROWS", 20)
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (70, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(70)
    model = VBPICRegressor(
        10, noise_kernel=Matern(nu=1.5), max_iter=3, solver="collapsed", random_state=0
    ).fit(X[:60], y[:60])
    noise = 0.5 * model.noise_variance_
    unit = model._state.target.unit
    high = replace(model._state.parameters, noise_variance=1.0)
    model._state = replace(model._state, parameters=high, learned_noise=noise / unit**2)
    model.partial_fit(X[60:64], y[60:64])  # no blocks are made
    assert model.noise_variance_ > 0.9 * unit**2
    model.partial_fit(X[64:], y[64:])
    steps = 4.0 * np.log10(model.noise_variance_ / noise)
    assert_allclose(steps, round(steps), atol=1e-9)
    assert model.noise_variance_ < 0.5 * unit**2


@pytest.mark.thorough
def test_twins_that_agree_do_not_take_the_noise_away(rng, monkeypatch):
    """A new row that contradicts a known one has some density, and others lose next to none."""
    X = rng.uniform(-3.0, 3.0, (180, 2))
    kernel = Matern([3.0, 9.0], nu=0.5).bind(2)
    y = np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(180)) @ rng.standard_normal(180)
    X_new, y_new = X[120:], y[120:]
    X, y = np.append(X[:120], X[:20], 0), np.append(y[:120], y[:20])
    model = VBPICRegressor(
        20, noise_kernel="auto", n_blocks=2, max_iter=5, solver="collapsed", random_state=0
    )
    densities = []
    for choose in (lambda state, *_: state, choose_noise_variance):
        monkeypatch.setattr(_learner, "choose_noise_variance", choose)
        model.fit(X, y)
        twin = model.log_predictive_density(X[:1], y[:1] + 2.0)[0]
        densities.append([model.log_predictive_density(X_new, y_new).mean(), twin])
    (before, twin_before), (after, twin_after) = densities
    assert after > before - 0.03
    assert twin_after > 0.5 * twin_before
