"""The search for kernels, on rows whose kernel is known."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.maximum import Trained, draw_processes, log_posterior, train
from skvbgp.gp import _rows, _sample, _search
from skvbgp.gp._belief import fit_mixture, measure_score, rank_mixture
from skvbgp.gp._posterior import Mixture
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import average_weights
from skvbgp.gp._sample import Sample
from skvbgp.gp._search import Search, Trial
from skvbgp.kernels import RBF, Matern
from skvbgp.kernels._candidates import follow, make_base_kernels


def make_rows(kernel, n, noise=1e-2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(n))
    return X, L @ rng.standard_normal(n)


def make_search(X, y, k, end_pass=lambda make: False):
    rng = np.random.RandomState(0)
    return Search(Sample(X, y, rng), (k,), rng, 10, 1e-5, end_pass)


def make_starts(names, *, gaussian):
    kernels = dict(make_base_kernels(2))
    return [(name, start_process(kernels[name], gaussian=gaussian)) for name in names]


@pytest.mark.parametrize(
    ("true", "kernel"),
    [("Matern-1/2", Matern([1.0, 2.0], nu=0.5)), ("SE", RBF([1.0, 2.0]))],
)
@pytest.mark.parametrize("k", [30, 200])
@pytest.mark.in_turn("k")
def test_the_kernel_of_the_rows_is_believed(true, kernel, k):
    """By neighbours that predict, and by the evidence of all rows."""
    X, y = make_rows(kernel, 150)
    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 150)
    found = make_search(X, y, k).run(starts, grows=False)
    belief = dict(zip([trial.name for trial in found.trials], found.belief, strict=True))
    assert max(belief, key=belief.get) == true
    assert_allclose(sum(belief.values()), 1.0)


@pytest.mark.parametrize(
    "noise, expected",
    [
        (1e-3, [1e-3, 3e-4, 1e-2]),
        (2e-7, [2e-7, 2e-6]),  # what training may not find is not tried either
        (0.5, [0.5, 0.15]),
    ],
)
def test_what_is_trained_competes_with_other_noise(monkeypatch, noise, expected):
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    ((name, process),) = make_starts(["SE"], gaussian=False)
    trained = Trained(replace(process, noise=noise), 0.0)
    monkeypatch.setattr(_search, "train", lambda *_, **__: trained)
    search = make_search(X, y, 20)
    search._try(name, process, [], 1, _search._NOISE_FACTORS)
    assert_allclose([trial.process.noise for trial in search.trials], expected)
    assert all(trial.name == name for trial in search.trials)


@pytest.mark.parametrize("k, n_most", [(20, 13), (200, 13)])
@pytest.mark.every_nth("k", 2)
def test_every_trial_is_a_pass_and_may_be_the_last(monkeypatch, k, n_most):
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    starts = make_starts(["Matern-1/2", "SE"], gaussian=k > 60)
    found = []

    def end_pass(make):
        found.append(make())
        return False

    make_search(X, y, k, end_pass).run(starts, grows=True)
    assert 4 <= len(found) <= Search.count(2, grows=True, is_exact=k > 60) == n_most
    assert all(np.isfinite(step.score) for step in found)
    stopped = make_search(X, y, k, lambda make: True).run(starts, grows=True)
    assert len(stopped.trials) == 1


@pytest.mark.parametrize("k", [20, 200])
def test_what_is_found_says_how_likely_rows_left_out_are(monkeypatch, k):
    """By the density of normal distributions, and by that which searches are compared by.

    That is lower by what hyperparameters flatter.
    """
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    search = make_search(X, y, k)
    found = search.run(make_starts(["Matern-1/2", "SE"], gaussian=k > 60), grows=False)
    parts, (y, _) = search.rows.leave_out(found.mixture, found.weights, found.k), search.rows.hold()
    assert_allclose(found.score, measure_score(found.mixture, parts, y))
    shares = np.mean(found.mixture.weigh(parts.evidence), axis=0)
    n_learned = shares @ [len(process.vector) for process in found.mixture.processes]
    price = n_learned / 60 if k < 60 else 0.0  # few rows have draws
    assert_allclose(found.rank, rank_mixture(found.mixture, parts, y) - price)
    assert abs(found.rank - found.score) > 1e-3


@pytest.mark.parametrize("many, n", [(60, 20), (59, 50)])
@pytest.mark.parametrize("counts", [(15,), (8, 15)])
def test_the_mixture_of_many_rows_is_learned_from_more_that_are_left_out(
    monkeypatch, many, n, counts
):
    """Each as often as its weight says."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_search, "_MANY", many)
    monkeypatch.setattr(_search, "HELD_OUT", 20)
    monkeypatch.setattr(_sample, "HELD_OUT", 20)
    monkeypatch.setattr(_search, "_LEAST_COUNT_RISE", -100.0)
    monkeypatch.setattr(_search, "_NEIGHBOURS_OF_ALL", 50 * 15)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    search = replace(make_search(X, y, 15), counts=counts)
    search.rows.noise = RowNoise(np.linspace(0.2, 1.0, 60), np.zeros(60))
    found = search.run(make_starts(["Matern-1/2", "SE"], gaussian=False), grows=True)
    assert found.k == 15
    parts = search.rows.leave_out(found.mixture, found.weights, found.k, n)
    y, weight = search.rows.hold(n)
    assert len(y) == len(parts.mean) == n
    expected = fit_mixture(found.mixture.processes, parts, y, weight)
    assert_allclose(found.mixture.log_weights, expected.log_weights, atol=1e-6)
    assert_allclose(found.mixture.calibration, expected.calibration, rtol=1e-6)
    assert_allclose(found.score, measure_score(found.mixture, parts, y, weight))
    belief = np.average(found.mixture.weigh(parts.evidence), axis=0, weights=weight)
    assert_allclose(found.belief, belief)


def test_few_rows_are_no_less_likely_than_promised_when_they_are_left_out(monkeypatch):
    """Heavy-tailed noise, six inputs without a meaning: predictions would be too sure."""
    monkeypatch.setattr(Search, "_try_isotropic_alone", lambda *_: None)
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-1.0, 1.0, (40, 6)), rng.standard_t(2.0, 40)
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(6)]
    search = make_search(X, y / y.std(), 200)
    found = search.run(starts, grows=True)
    assert found.mixture.calibration > 1.03
    parts, (y, _) = search.rows.leave_out(found.mixture, np.ones(6), 200), search.rows.hold()
    mean, variance = found.mixture.mix(parts, include_noise=True)
    assert_allclose(np.mean((y - mean) ** 2 / variance), 1.0)


def test_lines_may_be_steep():
    """What shares leave of a hundred per cent, next to nothing: gentle slopes say it is noise."""
    rng = np.random.default_rng(1)
    shares = 100.0 * rng.dirichlet([80, 60, 40, 20, 10, 10, 300, 1], 80)
    X, y = shares[:, :-1], shares[:, -1]
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    known, y_known = X[:60], y[:60]
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(7)]
    found = make_search(known, y_known, 200).run(starts, grows=True)
    processes = found.mixture.processes
    given = [process.factorise(known, y_known).moments(X[60:]) for process in processes]
    assert_allclose(np.mean([one.mean for one in given], axis=0), y[60:], atol=0.01)


def test_few_rows_of_a_trend_are_continued_far_away():
    """And so are slopes in many inputs, of which each length scale is a parameter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 15))
    slopes, far = rng.standard_normal(15), 4.0 * rng.standard_normal((200, 15))
    y = X @ slopes + 0.3 * rng.standard_normal(60)
    scale = y.std()
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(15)]
    found = make_search(X, y / scale, 200).run(starts, grows=True)
    assert [trial.name for trial in found.trials][-1].endswith(" + LIN")
    assert found.belief[-1] > 0.9
    given = [process.factorise(X, y / scale).moments(far) for process in found.mixture.processes]
    mean = scale * np.average([one.mean for one in given], axis=0)
    ridge = X.T @ np.linalg.solve(X @ X.T + 0.09 * np.eye(60), y)
    error, least = (np.mean((m - far @ slopes) ** 2) for m in (mean, far @ ridge))
    assert error < 1.5 * least


def test_weak_slopes_in_many_inputs_have_one_length_scale(monkeypatch):
    """From near rows there would be nothing to see of them: they are predicted from all."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 12))
    slopes, others = 0.25 * rng.standard_normal(12), rng.standard_normal((500, 12))
    y = X @ slopes + rng.standard_normal(120)
    named = [pair for pair in make_base_kernels(12) if pair[0] in ("Matern-5/2", "SE")]
    starts = [(name, start_process(kernel, gaussian=False)) for name, kernel in named]

    def search():
        found = replace(make_search(X, y, 60), counts=(8, 60)).run(starts, grows=True)
        given = [process.factorise(X, y) for process in found.mixture.processes]
        means = [one.moments(others, one.scale).mean for one in given]
        mean = np.average(means, axis=0, weights=found.belief)
        return found, np.mean((mean - others @ slopes) ** 2)

    found, error = search()
    assert found.k == _search._ALL_NEIGHBOURS
    names = [trial.name for trial in found.trials]
    assert found.belief @ ["isotropic" in name for name in names] > 0.5
    monkeypatch.setattr(Search, "_try_isotropic", lambda *_: [])
    assert error < 0.9 * search()[1]


@pytest.mark.parametrize("lead, n_trained", [(3.0, 7), (5.0, 9)])
def test_what_is_mostly_noise_is_searched_again_if_that_explains_more(monkeypatch, lead, n_trained):
    """From the best kernel's own start, which the others then follow."""
    X, y = make_rows(RBF([1.0, 2.0]), 30)
    trained = []

    def train_again(process, groups, **_):
        value = lead * (len(trained) == 3)
        trained.append(process)
        return Trained(replace(process, noise=0.5), value)

    monkeypatch.setattr(_search, "train", train_again)
    monkeypatch.setattr(Search, "_mix_draws", lambda self, groups: self.trials)
    monkeypatch.setattr(Search, "_try_isotropic_alone", lambda *_: None)
    starts = make_starts(["Matern-1/2", "Matern-3/2", "SE"], gaussian=True)
    trials = make_search(X, y, 200).run(starts, grows=True)
    assert len(trained) == n_trained
    assert (trials[0].trained.value == lead) == (lead > 4.0)


def count_neighbours(counts, y_of):
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (150, 2))
    rng = np.random.RandomState(0)
    search = Search(Sample(X, y_of(X), rng), counts, rng, 10, 1e-5, lambda make: False)
    return search.run(make_starts(["SE"], gaussian=False), grows=False).k


def make_smooth(X):
    return np.sin(X[:, 0]) * np.cos(X[:, 1])


@pytest.mark.parametrize(
    "counts, most, k", [((8, 60), 149, 60), ((8, 60), 150, 300), ((8,), 150, 8)]
)
def test_smooth_functions_are_predicted_from_many_neighbours(monkeypatch, counts, most, k):
    """From all rows if there are few enough, also of those that a stream will bring."""
    monkeypatch.setattr(_search, "_TRIED_WITH_ALL", ((100, 5), (most, 2)))
    monkeypatch.setattr(_search, "_ALL_NEIGHBOURS", 300)
    assert count_neighbours(counts, make_smooth) == k


def test_several_kernels_may_predict_from_all_rows(monkeypatch):
    """What has been found says of rows that are left out what it was chosen for."""
    monkeypatch.setattr(_search, "_TRIED_WITH_ALL", ((149, 5), (150, 2)))
    X, y = make_rows(RBF(), 150)
    search = replace(make_search(X, y, 60), counts=(8, 60))
    tried, mix_all = [], Search._mix_all
    monkeypatch.setattr(Search, "_mix_all", lambda *args: tried.append(args[1]) or mix_all(*args))
    search.run(make_starts(["SE", "Matern-1/2"], gaussian=False), grows=False)
    assert len(tried[0]) == 2  # of the pool, which has those before the further training as well
    best = sorted(search.trials, key=lambda trial: -trial.rank)
    found = search._mix_all(best[:3])
    assert found.k == _search._ALL_NEIGHBOURS
    assert {id(trial.trained) for trial in found.trials} <= {id(one.trained) for one in best[:3]}
    parts = search.rows.leave_out(found.mixture, found.weights, found.k)
    assert_allclose(search._rank(found.mixture, parts), found.rank, rtol=1e-8)
    assert np.ptp(parts.noise, axis=0).min() > 0.0  # at scales of the places
    single = max(search._mix_all([trial]).rank for trial in best[:3])
    assert found.rank >= single - 1e-3


@pytest.mark.parametrize("gain, k", [(0.009, 8), (0.011, 60)])
def test_more_neighbours_have_to_pay(monkeypatch, gain, k):
    X, y = make_rows(RBF(), 150)
    search = replace(make_search(X, y, 60), counts=(8, 60))
    ranks = iter([1.0, 1.0 + gain])
    monkeypatch.setattr(Search, "_rank", lambda *_: next(ranks))
    ((name, process),) = make_starts(["SE"], gaussian=False)
    parts = search.rows.leave_out(Mixture.of(process), np.ones(2), 60)
    trial = Trial(name, Trained(process, 0.0), parts, 0.0)
    assert search._count_neighbours(trial) == k


def test_all_rows_predict_where_the_scale_depends_on_the_place():
    assert count_neighbours((8, 60), lambda X: make_smooth(8.0 * X) * np.exp(X[:, 0])) == 4000


def test_rows_whose_kernel_depends_on_the_place_are_predicted_from_near_ones():
    """Smooth in one place, with slopes a thousand times as large in another one."""
    assert count_neighbours((8, 60), lambda X: np.sin(np.exp(1.2 * X[:, 0]))) <= 60


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
