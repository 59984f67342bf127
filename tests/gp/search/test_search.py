"""Searches for kernels of few rows and of many, on rows whose kernel is known."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.maximum import Trained, draw_processes, log_posterior, train
from skvbgp.gp import VBGPRegressor, _rows
from skvbgp.gp._belief import measure_score, rank_mixture
from skvbgp.gp._process import start_process
from skvbgp.gp._rows import average_weights
from skvbgp.gp.search import _free_inputs, _search
from skvbgp.gp.search._search import finish
from skvbgp.kernels import RBF, Matern
from skvbgp.kernels._candidates import follow
from tests.gp.searches import make_rows, make_search, make_starts


@pytest.mark.parametrize(
    ("true", "kernel"),
    [("Matern-1/2", Matern([1.0, 2.0], nu=0.5)), ("SE", RBF([1.0, 2.0]))],
)
@pytest.mark.parametrize("k", [30, 200])
@pytest.mark.in_turn("k")
@pytest.mark.every_nth("true", 2)
def test_the_kernel_of_the_rows_is_believed(true, kernel, k):
    """By neighbours that predict, and by the evidence of all rows."""
    X, y = make_rows(kernel, 150)
    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 150)
    found = finish(make_search(X, y, k).run(starts, grows=False))
    belief = dict(zip([trial.name for trial in found.trials], found.belief, strict=True))
    assert max(belief, key=belief.get) == true
    assert_allclose(sum(belief.values()), 1.0)


@pytest.mark.parametrize("k, n_most", [(20, 15), (200, 12)])
@pytest.mark.every_nth("k", 2)
@pytest.mark.usefixtures("quick_searches")
def test_every_trial_is_a_pass(monkeypatch, k, n_most):
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 60)
    found = []

    def end_pass(make):
        found.append(make())
        return False

    search = make_search(X, y, k, end_pass, max_iter=2)
    finish(search.run(starts, grows=True))
    assert 4 <= len(found) <= search.count_trials(2, grows=True) == n_most
    assert all(np.isfinite(step.score) for step in found)


@pytest.mark.parametrize("k", [20, 200])
@pytest.mark.parametrize("stop_after", [1, 3, 6, 8])
@pytest.mark.every_nth("stop_after", 4)
@pytest.mark.usefixtures("quick_searches")
def test_a_search_may_end_after_any_trial(monkeypatch, k, stop_after):
    """Of few rows: of the first kernel, of a product, with one length scale, and of few of many."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_free_inputs, "_MANY_INPUTS", 1)
    X, y = make_rows(RBF([1.0, 20.0]), 60)
    calls = []

    def end_pass(make):
        calls.append(make)
        return len(calls) == stop_after

    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 60)
    found = finish(make_search(X, y, k, end_pass, max_iter=2).run(starts, grows=True))
    assert len(calls) == stop_after
    assert len(found.trials) <= stop_after
    assert_allclose(found.belief.sum(), 1.0)
    assert np.isfinite(found.score)


def train_in_stages(done):
    done.append("first")
    yield 1.0
    done.append("second")
    return "learned"


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_training_is_finished_from_where_it_is(has_begun):
    done = []
    training = train_in_stages(done)
    if has_begun:
        assert next(training) == 1.0
        assert done == ["first"]
    assert finish(training) == "learned"
    assert done == ["first", "second"]


@pytest.mark.parametrize("k, n_trials", [(20, 2), (200, 4)])
@pytest.mark.every_nth("k", 2)
@pytest.mark.usefixtures("quick_searches")
def test_a_search_says_on_its_way_how_well_its_best_trial_predicts(monkeypatch, k, n_trials):
    """Of few rows, when products have been tried; what other searches do then is their own."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 60)
    search = make_search(X, y, k, max_iter=1)
    training = search.run(starts, grows=True)
    rank = next(training)
    assert rank == max(trial.rank for trial in search.trials)
    assert len(search.trials) == n_trials
    other = finish(make_search(X, y, k, max_iter=1).run(starts, grows=True))
    found = finish(training)
    assert (found.score, found.rank) == (other.score, other.rank)


@pytest.mark.parametrize("k", [20, 200])
@pytest.mark.every_nth("k", 2)
def test_what_is_found_says_how_likely_rows_left_out_are(monkeypatch, k):
    """By the density of normal distributions, and by that which searches are compared by.

    That is lower by what hyperparameters flatter.
    """
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    search = make_search(X, y, k)
    found = finish(search.run(make_starts(["Matern-1/2", "SE"], gaussian=k > 60), grows=False))
    left_out = search.rows.leave_out(found.mixture, found.weights, found.k)
    assert_allclose(found.score, measure_score(found.mixture, left_out))
    shares = np.mean(found.mixture.weigh(left_out.parts.evidence), axis=0)
    n_learned = shares @ [len(process.vector) for process in found.mixture.processes]
    price = n_learned / 60 if k < 60 else 0.0  # few rows have draws
    assert_allclose(found.rank, rank_mixture(found.mixture, left_out) - price)
    assert abs(found.rank - found.score) > 1e-3


def test_a_kernel_follows_what_another_one_has_learned():
    """Its start explains rows better than one that knows nothing."""
    X, y = make_rows(Matern([0.5, 20.0], nu=1.5), 150)
    starts = dict(make_starts(["Matern-1/2", "SE"], gaussian=False))
    trained = train(starts["Matern-1/2"], [(X, y)], max_iter=30, tol=1e-9).process
    kernel = follow("SE", starts["SE"].kernel, "Matern-1/2", trained.kernel)
    process = replace(trained, kernel=kernel)
    values = [log_posterior(one, [(X, y)])[0] for one in (starts["SE"], process)]
    assert values[1] > values[0] + 10.0
    before, after = (one.kernel.kernels[1].length_scale for one in (trained, process))
    assert_allclose(np.divide(after, before), 0.1)


def test_draws_have_the_curvature_of_the_log_posterior():
    """Where it is quadratic to a good approximation: importance weights hardly vary."""
    X, y = make_rows(Matern([1.0, 2.0]), 120, noise=0.1)
    process = start_process(Matern([1.0, 2.0], length_scale_bounds="fixed").bind(2), gaussian=True)
    trained = train(process, [(X, y)], max_iter=50, tol=1e-12)
    drawn, _ = draw_processes(trained, [(X, y)], 64, 0)
    logs = np.log([process.noise for process, _ in drawn])
    weights = np.array([weight for _, weight in drawn])
    assert_allclose(np.mean(logs), np.log(trained.process.noise), atol=0.05)
    assert np.std(weights) < 0.2
    grid = np.linspace(np.log(trained.process.noise) - 2.0, np.log(trained.process.noise) + 2.0, 81)
    values = [log_posterior(process.with_vector(np.array([x])), [(X, y)])[0] for x in grid]
    exact = np.max(values) + np.log(np.sum(np.exp(values - np.max(values))) * (grid[1] - grid[0]))
    assert_allclose(
        np.log(np.mean(np.exp(weights - weights.max()))) + weights.max(), exact, atol=0.1
    )


def test_training_ends_at_a_maximum():
    X, y = make_rows(RBF([1.0, 2.0]), 80)
    process = start_process(RBF([2.0, 2.0]).bind(2), gaussian=False)
    trained = train(process, [(X[:40], y[:40]), (X[40:], y[40:])], max_iter=100, tol=1e-12)
    assert isinstance(trained, Trained)
    gradient = log_posterior(trained.process, [(X[:40], y[:40]), (X[40:], y[40:])])[1]
    inside = np.all(trained.process.vector[:, None] != trained.process.bounds, axis=1)
    assert_allclose(gradient[inside], 0.0, atol=0.05)


def test_a_distance_in_between():
    weights = average_weights([RBF(scale).bind(2) for scale in ([1.0, 9.0], [9.0, 1.0])], 2)
    assert_allclose(weights[0], weights[1])


@pytest.mark.thorough
@pytest.mark.parametrize("n", [60, 420])
def test_lines_may_be_steep_and_noisy(n):
    """The difference of inputs that are nearly equal, a hundredth of which differs."""
    rng = np.random.default_rng(3)
    a, difference, noise = rng.standard_normal((3, n + 50))
    X = np.column_stack([a, a + 0.01 * difference, rng.standard_normal((n + 50, 4))])
    y = difference + 0.2 * noise
    model = VBGPRegressor(random_state=0, n_inducing=None).fit(X[:n], y[:n])
    assert np.std(model.predict(X[n:]) - difference[n:]) < 0.12


def test_the_most_probable_start_is_judged(monkeypatch):
    starts = [process for _, process in make_starts(["SE", "RQ", "Matern-1/2"], gaussian=True)]
    values = [1.0, 3.0, 2.0]
    pairs = dict(zip(map(id, starts), values, strict=True))
    monkeypatch.setattr(
        _search, "train_process", lambda one, *_, **__: Trained(one, pairs[id(one)])
    )
    search = make_search(*make_rows(RBF(), 30), 200)
    search.try_processes("any", starts, 5)
    (trial,) = search.trials
    assert trial.process is starts[1]
