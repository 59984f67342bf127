"""Shares of kernels, against a search of the simplex for the optimum that they promise."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from skvbgp._optim.maximum import Trained, train
from skvbgp.gp import VBGPClassifier, _rows
from skvbgp.gp._rows import average_weights
from skvbgp.gp.classes import _few_places, _many_places, _search
from skvbgp.gp.classes._inducing import InducingModel
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._posterior import mix_log_probabilities
from skvbgp.gp.classes._search import Trial
from skvbgp.gp.classes._shares import Combination, Part, learn_shares, weigh_by_models
from skvbgp.gp.classes._start import start_class_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import Matern
from tests.gp.cases import make_classes
from tests.gp.searches import make_class_search


def make_parts(rng, C=3, M=80, K=3):
    parts = rng.dirichlet(np.ones(K), (C, M))
    counts = np.eye(K)[rng.integers(K, size=M)] * rng.integers(1, 4, M)[:, None]
    return np.log(parts), counts


def measure(shares, parts, counts, n_free):
    """The objective, written out."""
    total = 0.0
    for m, k in zip(*np.nonzero(counts), strict=True):
        p = [np.exp(part[m, k] - q / counts.sum()) for part, q in zip(parts, n_free, strict=True)]
        total += counts[m, k] * np.log(np.dot(shares, p))
    return total + 0.5 * np.sum(np.log(shares))


@pytest.mark.parametrize("n_free", [[3, 3, 3], [2, 5, 20]])
@pytest.mark.every_nth("n_free", 2)
def test_no_other_shares_are_better(rng, n_free):
    parts, counts = make_parts(rng)
    shares = learn_shares(parts, counts, np.array(n_free) / counts.sum())
    assert_allclose(shares.sum(), 1.0)
    best = minimize(
        lambda x: -measure(np.exp(x) / np.exp(x).sum(), parts, counts, n_free), np.zeros(3)
    )
    assert measure(shares, parts, counts, n_free) > -best.fun - 1e-3


def test_more_hyperparameters_cost(rng):
    """As much as kernels that say the same differ in their numbers."""
    (part, *_), counts = make_parts(rng)
    assert_allclose(learn_shares([part, part], counts, [0.02, 0.02]), 0.5)
    assert learn_shares([part, part], counts, [0.02, 0.2])[0] > 0.7


def test_kernels_that_know_different_votes_share(rng):
    """Where the belief by the sum of log probabilities would take one of them."""
    counts = np.eye(2)[np.zeros(100, dtype=int)]
    known = np.arange(100) < 55
    first, second = (np.log(np.where(side, 0.9, 0.3)) for side in (known, ~known))
    parts = [np.stack([p, np.log1p(-np.exp(p))], axis=1) for p in (first, second)]
    shares = learn_shares(parts, counts, [0.04, 0.04])
    assert 0.5 < shares[0] < 0.7


def test_a_vote_that_is_hopeless_for_all(rng):
    parts, counts = make_parts(rng)
    parts[:, 0] = -800.0
    shares = learn_shares(parts, counts, [0.01, 0.01, 0.01])
    assert np.all(shares >= 0.0)
    assert_allclose(shares.sum(), 1.0)


def test_shares_go_with_processes_in_any_order_of_parts(rng):
    """Predictions have those through inducing inputs last."""
    parts, counts = make_parts(rng, C=2)
    trained = start([1.0, 2.0])
    processes = [(Mock(spec=InducingModel),), (trained, trained)]
    given = [
        Part(name, trained, own, np.full(len(own), 1.0 / len(own)), log_p, 0.0)
        for name, own, log_p in zip("ab", processes, parts, strict=True)
    ]
    for some in (given, given[::-1]):
        found = Combination.of(some, counts, 2).found
        assert found.names == ("b", "a")
        assert found.kernel_of == (0, 0, 1)
        shares = learn_shares(parts[::-1], counts, [0.0, 0.0])
        assert_allclose(found.belief, shares[[0, 0, 1]] / [2.0, 2.0, 1.0])


def test_no_probability_is_above_one():
    """As shares that sum to one by more than their last digit would have it."""
    belief = np.array([0.5, 0.5 + 2.0**-52])
    mixed = mix_log_probabilities([np.array([[0.0, -40.0]])] * 2, belief)
    assert mixed[0, 0] == 0.0
    assert_allclose(mixed[0, 1], -40.0)


def make_search(rng, k, weight=1.0):
    X, y = make_classes(60)
    votes = Votes.of(X, weight * np.eye(3)[y])
    return make_class_search(votes, 2, k, rng)


def start(length_scale):
    return start_class_process(Matern(length_scale), 2)


def test_length_scales_by_input_say_which_rows_are_near():
    freed = [replace(start(scale), shared_scale=2.0) for scale in ([1.0, 4.0], [3.0, 3.0])]
    weights = weigh_by_models([start([2.0, 2.0]), *freed], 2)
    assert_allclose(weights, average_weights([process.kernel for process in freed], 2))
    assert weights[0] > 1.2 * weights[1]


def test_if_there_are_none_a_shared_one_does():
    weights = weigh_by_models([start([2.0, 2.0])], 2)
    assert_allclose(weights, np.sqrt(0.5))


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_hyperparameters_are_charged_to_the_votes_that_chose_them(weight, rng):
    """A nat each, of two length scales, the noise and three parameters of the link."""
    search = make_search(rng, 60, weight)
    assert_allclose(search.charge(start([2.0, 2.0])), 6.0 / (60.0 * weight))


@pytest.mark.parametrize("weight", [1.0, 3.0])
@pytest.mark.parametrize("apart", [0.0, 4.0])
def test_draws_are_charged_no_more_than_there_is_to_gain(apart, weight, rng, monkeypatch):
    X, labels = rng.standard_normal((60, 2)), np.arange(60) % 2
    votes = Votes.of(X + apart * labels[:, None], weight * np.eye(2)[labels])
    search = make_class_search(votes, 2, 60, rng)
    draws = [replace(start([scale, 4.0]), link=Link(slope=20.0)) for scale in (2.0, 5.0)]
    trial = Trial("a", Trained(draws[0], 0.0), 0.0)
    part = search._average(trial, [(draws[0], np.log(3.0)), (draws[1], 0.0)])
    p = [
        np.exp(one.link.log_probabilities(*one.leave_out(votes), votes.log_frequencies))
        for one in draws
    ]
    left_out = (0.75 * p[0] + 0.25 * p[1])[votes.left_out.counts > 0.0]
    losses = -np.log(left_out)
    assert len(losses) == 60
    most, loss = 6.0 / (60.0 * weight), losses.mean()
    assert (most < loss) == (apart == 0.0)
    assert_allclose(part.charge, min(most, loss))
    monkeypatch.setattr(_few_places, "_MOST_FLATTERED", most)  # as if they were too many
    part = search._average(trial, [(draws[0], np.log(3.0)), (draws[1], 0.0)])
    assert_allclose(part.charge, most)


@pytest.mark.thorough
def test_length_scales_by_input_predict_classes_that_one_input_tells_apart(rng):
    """As they can have gained next to nothing by being many."""
    X = rng.standard_normal((80, 20))
    model = VBGPClassifier(random_state=0).fit(X, X[:, 0] > 0.0)
    shares = zip(model.kernels_, model.kernel_posterior_, strict=True)
    assert sum(share for (name, _), share in shares if "by input" in name) > 0.9


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_from_neighbours_those_are_of_groups(weight, rng, monkeypatch):
    """But the link's, which is learned from what is left out."""
    monkeypatch.setattr(_many_places, "_HELD_OUT", 10)
    monkeypatch.setattr(_many_places, "draw_groups", lambda *_: [np.arange(20), np.arange(10, 25)])
    search = make_search(rng, 20, weight)
    search._draw_near_groups(2)
    assert_allclose(search.charge(start([2.0, 2.0])), (3.0 / 25.0 + 3.0 / 10.0) / weight)


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.every_nth("gains", 2)
def test_they_learn_from_random_places_where_that_gains(gains, rng, monkeypatch):
    """From all votes of groups of these, which are then what has chosen them."""
    monkeypatch.setattr(_search, "_LEAST_GAIN", -np.inf if gains else np.inf)
    monkeypatch.setattr(_many_places, "_FAR_PLACES", 20)
    monkeypatch.setattr(_many_places, "draw_groups", lambda *_: [np.arange(15)])
    monkeypatch.setattr(_rows, "_ROWS_OF_INPUT", 20)
    search, mixed = make_search(rng, 20, 3.0), []
    mix = Combination.of
    monkeypatch.setattr(
        Combination, "of", lambda *known: mixed.append((known[0], mix(*known))) or mixed[-1][1]
    )
    found = search.run([("a", start([2.0, 2.0]))], grows=False)
    (trained,), ((part,),) = found.trained, [parts for parts, one in mixed if one.found is found]
    (near,) = search.make_parts(search.trials)
    drawn = search.known[:20], search.known[20:40]
    afar = [(search.votes.part(np.sort(places)),) for places in drawn]
    expected = train(near.trained, afar, max_iter=1, tol=1e-3).process
    assert expected.process != near.trained.process
    assert trained.process == (expected if gains else near.trained).process
    n_votes = 120.0 if gains else 45.0
    assert_allclose(part.charge, 3.0 / n_votes + 3.0 / 180.0)
