"""The search for kernels of many rows, on rows whose kernel is known."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.maximum import Trained
from skvbgp.gp import _rows
from skvbgp.gp._belief import fit_mixture, measure_score
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp.search import _free_inputs, _many_rows, _sample, _search, _steep_lines
from skvbgp.gp.search._division import divide_inputs
from skvbgp.gp.search._many_rows import ManyRowsSearch
from skvbgp.gp.search._sample import Samples
from skvbgp.gp.search._search import Trial, finish
from skvbgp.kernels import RBF
from skvbgp.kernels._candidates import make_base_kernels
from tests.gp.searches import make_rows, make_search, make_starts


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
    monkeypatch.setattr(_search, "train_process", lambda *_, **__: trained)
    search = make_search(X, y, 20)
    trials = search._train_further([Trial(name, Trained(process, 0.0), None, 0.0)])
    assert_allclose([trial.process.noise for trial in trials], expected)
    assert all(trial.name == name for trial in trials)


@pytest.mark.parametrize("many, n", [(60, 20), (59, 50)])
@pytest.mark.parametrize("counts", [(15,), (8, 15)])
@pytest.mark.every_nth("counts", 2)
@pytest.mark.every_nth("many", 2)
def test_the_mixture_of_many_rows_is_learned_from_more_that_are_left_out(
    monkeypatch, many, n, counts
):
    """Each as often as its weight says."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_many_rows, "_MANY", many)
    monkeypatch.setattr(_many_rows, "HELD_OUT", 20)
    monkeypatch.setattr(_sample, "HELD_OUT", 20)
    monkeypatch.setattr(_many_rows, "_LEAST_COUNT_RISE", -100.0)
    monkeypatch.setattr(_many_rows, "_NEIGHBOURS_OF_ALL", 50 * 15)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    search = replace(make_search(X, y, 15, max_iter=6), rival_k=counts)
    search.rows.noise = RowNoise(np.linspace(0.2, 1.0, 60), np.zeros(60))
    found = finish(search.run(make_starts(["Matern-1/2", "SE"], gaussian=False), grows=True))
    assert found.k == 15
    left_out = search.rows.leave_out(found.mixture, found.weights, found.k, n)
    parts, y, weight = left_out
    assert len(y) == len(parts.mean) == n
    expected = fit_mixture(found.mixture.processes, left_out)
    assert_allclose(found.mixture.log_weights, expected.log_weights, atol=1e-6)
    assert_allclose(found.mixture.calibration, expected.calibration, rtol=1e-6)
    assert_allclose(found.score, measure_score(found.mixture, left_out))
    belief = np.average(found.mixture.weigh(parts.evidence), axis=0, weights=weight)
    assert_allclose(found.belief, belief)


@pytest.mark.parametrize("apart, n_learned", [(False, 2), (True, 1)])
@pytest.mark.every_nth("apart", 2)
def test_no_mixture_is_learned_twice_from_the_same_rows(monkeypatch, apart, n_learned):
    """Outputs that were observed in different rows have no more that are left out."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_many_rows, "_MANY", 20)
    monkeypatch.setattr(_many_rows, "HELD_OUT", 20)
    monkeypatch.setattr(_sample, "HELD_OUT", 20)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    search = make_search(X, y, 15)
    if apart:
        search.rows = Samples([replace(search.rows, X=X[i::2], y=y[i::2]) for i in range(2)])
    learned, mix_chosen = [], ManyRowsSearch._mix_chosen
    monkeypatch.setattr(
        ManyRowsSearch,
        "_mix_chosen",
        lambda *args: learned.append(mix_chosen(*args)) or learned[-1],
    )
    found = finish(search.run(make_starts(["SE"], gaussian=False), grows=False))
    assert len(learned) == n_learned
    again = mix_chosen(search, found.trials, found.k, 60)
    assert again.mixture.calibration == found.mixture.calibration
    assert again.score == found.score


@pytest.mark.thorough
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
        found = finish(replace(make_search(X, y, 60), rival_k=(8, 60)).run(starts, grows=True))
        given = [process.factorise(X, y) for process in found.mixture.processes]
        means = [one.moments(others, one.scale).mean for one in given]
        mean = np.average(means, axis=0, weights=found.belief)
        return found, np.mean((mean - others @ slopes) ** 2)

    found, error = search()
    assert found.k == _many_rows._ALL_NEIGHBOURS
    names = [trial.name for trial in found.trials]
    assert found.belief @ ["isotropic" in name for name in names] > 0.5
    monkeypatch.setattr(ManyRowsSearch, "try_isotropic", lambda *_: [])
    assert error < 0.9 * search()[1]


def count_neighbours(counts, y_of):
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (150, 2))
    search = replace(make_search(X, y_of(X), counts[-1]), rival_k=counts)
    return finish(search.run(make_starts(["SE"], gaussian=False), grows=False)).k


def make_smooth(X):
    return np.sin(X[:, 0]) * np.cos(X[:, 1])


@pytest.mark.parametrize(
    "counts, most, k",
    [
        ((8, 60), 149, 60),
        ((8, 60), 150, 300),
        pytest.param((8,), 150, 8, marks=pytest.mark.thorough),
    ],
)
def test_smooth_functions_are_predicted_from_many_neighbours(monkeypatch, counts, most, k):
    """From all rows if there are few enough, also of those that a stream will bring."""
    monkeypatch.setattr(_many_rows, "_TRIED_WITH_ALL", ((100, 5), (most, 2)))
    monkeypatch.setattr(_many_rows, "_ALL_NEIGHBOURS", 300)
    assert count_neighbours(counts, make_smooth) == k


def test_several_kernels_may_predict_from_all_rows(monkeypatch):
    """What has been found says of rows that are left out what it was chosen for."""
    monkeypatch.setattr(_many_rows, "_TRIED_WITH_ALL", ((149, 5), (150, 2)))
    X, y = make_rows(RBF(), 150)
    search = replace(make_search(X, y, 60, max_iter=3), rival_k=(8, 60))
    tried, mix_all = [], ManyRowsSearch._mix_all
    monkeypatch.setattr(
        ManyRowsSearch, "_mix_all", lambda *args: tried.append(args[1]) or mix_all(*args)
    )
    finish(search.run(make_starts(["SE", "Matern-1/2"], gaussian=False), grows=False))
    assert len(tried[0]) == 2  # of the pool, which has those before the further training as well
    best = sorted(search.trials, key=lambda trial: -trial.rank)
    found = search._mix_all(best[:3])
    assert found.k == _many_rows._ALL_NEIGHBOURS
    assert {id(trial.trained) for trial in found.trials} <= {id(one.trained) for one in best[:3]}
    left_out = search.rows.leave_out(found.mixture, found.weights, found.k)
    assert_allclose(search.rank(found.mixture, left_out), found.rank, rtol=1e-8)
    assert np.ptp(left_out.parts.noise, axis=0).min() > 0.0  # at scales of the places
    single = max(search._mix_all([trial]).rank for trial in best[:3])
    assert found.rank >= single - 1e-3


@pytest.mark.parametrize("gain, k", [(0.009, 8), (0.011, 60)])
def test_more_neighbours_have_to_pay(monkeypatch, gain, k):
    X, y = make_rows(RBF(), 150)
    search = replace(make_search(X, y, 60), rival_k=(8, 60))
    ranks = iter([1.0, 1.0 + gain])
    monkeypatch.setattr(ManyRowsSearch, "rank", lambda *_: next(ranks))
    ((name, process),) = make_starts(["SE"], gaussian=False)
    left_out = search.rows.leave_out(Mixture.of(process), np.ones(2), 60)
    trial = Trial(name, Trained(process, 0.0), left_out, 0.0)
    assert search._count_neighbours(trial) == k


def test_all_rows_predict_where_the_scale_depends_on_the_place():
    assert count_neighbours((8, 60), lambda X: make_smooth(8.0 * X) * np.exp(X[:, 0])) == 4000


def test_rows_whose_kernel_depends_on_the_place_are_predicted_from_near_ones():
    """Smooth in one place, with slopes a thousand times as large in another one."""
    assert count_neighbours((8, 60), lambda X: np.sin(np.exp(1.2 * X[:, 0]))) <= 60


def draw_steep_rows(n, amplitude, seed=0):
    """A wave, and the difference of two inputs that hardly differ."""
    rng = np.random.default_rng(seed)
    a, b, difference = rng.standard_normal((3, n))
    X = np.column_stack([a, a + 0.01 * difference, b])
    return X, np.sin(2.0 * b) + amplitude * difference


def search_steep_rows(amplitude, noise=0.05):
    X, f = draw_steep_rows(150, amplitude)
    y = f + noise * np.random.default_rng(1).standard_normal(150)
    named = [pair for pair in make_base_kernels(3) if pair[0] in ("Matern-5/2", "SE")]
    starts = [(name, start_process(kernel, gaussian=False)) for name, kernel in named]
    found = finish(replace(make_search(X, y, 60), rival_k=(8, 60)).run(starts, grows=True))
    X_new, f_new = draw_steep_rows(300, amplitude, seed=2)
    given = [process.factorise(X, y) for process in found.mixture.processes]
    means = [one.moments(X_new, one.scale).mean for one in given]
    return found, np.std(np.average(means, axis=0, weights=found.belief) - f_new)


@pytest.mark.thorough
def test_lines_that_near_rows_cannot_see_are_found(monkeypatch):
    """Beside a wave of one input, which one length scale for all does not describe."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    found, error = search_steep_rows(0.3)
    assert found.k == _many_rows._ALL_NEIGHBOURS
    assert "SE + LIN" in [trial.name for trial in found.trials]
    monkeypatch.setattr(_many_rows, "_TRIED_WITH_LINES", 149)
    assert error < 0.3 * search_steep_rows(0.3)[1]


@pytest.mark.thorough
def test_lines_are_not_tried_where_rows_do_not_ask_for_them(monkeypatch):
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_many_rows, "find_start_beside", None)
    search_steep_rows(0.0)
    with pytest.raises(TypeError):
        search_steep_rows(0.3)


@pytest.mark.parametrize("factor, leaves", [(0.99, False), (1.01, True)])
def test_rows_ask_for_lines_as_often_as_they_count(monkeypatch, factor, leaves):
    X, y = make_rows(RBF(), 60)
    search, weight = replace(make_search(X, y, 20), rival_k=(8, 20)), np.linspace(0.2, 1.0, 60)
    search.rows.noise = RowNoise(weight, np.zeros(60))
    ((name, process),) = make_starts(["SE"], gaussian=False)
    search.add_trials(name, [Trained(process, 0.0)])
    seen, gain = [], factor * 0.01 * weight.sum()
    monkeypatch.setattr(_steep_lines, "measure_gain", lambda *args: seen.append(args[3]) or gain)
    assert search._leaves_lines(search.trials[0]) == leaves
    assert_allclose(seen[0], search.rows.take_targets()[1])


@pytest.mark.parametrize("many, n_ways", [(60, 1), (59, 2)])
def test_many_rows_say_how_inputs_are_divided_among_factors(monkeypatch, many, n_ways):
    """Of different factors in one way and in the other."""
    monkeypatch.setattr(_many_rows, "_MANY", many)
    search = make_search(*make_rows(RBF([1.0, 2.0]), 60), 20)
    search.groups = search._draw_groups(60, 1.0)
    starts = make_starts(["SE", "RQ"], gaussian=False)
    best = [Trial(name, Trained(process, 0.0), None, 0.0) for name, process in starts]
    first, second = kernels = [process.kernel for _, process in starts]
    divide = search.choose_division(best)
    assert len(divide(first, first)) == 1
    ways = divide(first, second)
    assert len(ways) == n_ways
    if n_ways == 2:
        assert_allclose(ways[0], -ways[1])
        assert_allclose(ways[0], divide_inputs(starts[0][1], kernels, search.groups))


def make_wide_rows(rng):
    """A function of the inputs 3 and 17 of thirty."""
    X = rng.standard_normal((120, 30))
    return X, np.sin(1.2 * X[:, 3]) + X[:, 17] + 0.2 * rng.standard_normal(120)


def make_wide_starts():
    named = make_base_kernels(30)[:2]
    return [(name, start_process(kernel, gaussian=False)) for name, kernel in named]


@pytest.mark.parametrize("many", [29, pytest.param(30, marks=pytest.mark.thorough)])
def test_a_few_of_many_inputs_are_freed(rng, monkeypatch, many):
    """And groups are of rows that are near by these."""
    monkeypatch.setattr(_rows, "_LEAST_GROUP", 30)
    monkeypatch.setattr(_free_inputs, "_MANY_INPUTS", many)
    search = make_search(*make_wide_rows(rng), 20, lambda _: len(search.trials) == 2)
    found = finish(search.run(make_wide_starts(), grows=True))
    is_freed = [any(process.tied) for process in found.mixture.processes]
    assert is_freed == [many == 29] * len(is_freed)
    spread = np.mean([np.std(X, axis=0) for X, *_ in search.groups], axis=0)
    assert (spread[[3, 17]].max() < 0.7 * spread.max()) == (many == 29)


def test_what_was_freed_makes_way_for_what_is_better(rng, monkeypatch):
    """Here it is an input of no meaning."""
    X, y = make_wide_rows(rng)
    wrong = replace(make_wide_starts()[0][1], tied=(1,) + (0,) * 29)
    monkeypatch.setattr(_many_rows, "free_inputs", lambda *_, **__: Trained(wrong, 0.0))
    search = make_search(X, y, 30)
    search.groups = groups = search._draw_groups(120, 1.0)
    (name, start), _ = make_wide_starts()
    search.add_trials(name, [Trained(start, 0.0)])
    search.trials = first = [search.trials[0]._replace(rank=np.inf)]
    search._try_freed(name, start)
    assert search.trials is first
    assert search.groups is groups
    assert search.near_weights is None
