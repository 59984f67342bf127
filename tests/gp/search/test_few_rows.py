"""The search for kernels of few rows, all of which are neighbours."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBGPRegressor
from skvbgp._optim.maximum import Trained
from skvbgp.gp._process import start_process
from skvbgp.gp.search import _few_rows, _free_inputs, _search
from skvbgp.gp.search._few_rows import FewRowsSearch
from skvbgp.gp.search._search import finish
from skvbgp.kernels import RBF
from skvbgp.kernels._candidates import make_base_kernels
from tests.gp.searches import make_rows, make_search, make_starts


def test_few_rows_are_no_less_likely_than_promised_when_they_are_left_out(monkeypatch):
    """Heavy-tailed noise, six inputs without a meaning: predictions would be too sure."""
    monkeypatch.setattr(FewRowsSearch, "_try_isotropic_alone", lambda *_: None)
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-1.0, 1.0, (40, 6)), rng.standard_t(2.0, 40)
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(6)[-2:]]
    search = make_search(X, y / y.std(), 200)
    found = finish(search.run(starts, grows=True))
    assert found.mixture.calibration > 1.03
    parts, y, _ = search.rows.leave_out(found.mixture, np.ones(6), 200)
    mean, variance = found.mixture.mix(parts, include_noise=True)
    assert_allclose(np.mean((y - mean) ** 2 / variance), 1.0)


@pytest.mark.usefixtures("unjudged")
def test_lines_may_be_steep():
    """What shares leave of a hundred per cent, next to nothing: gentle slopes say it is noise."""
    rng = np.random.default_rng(1)
    shares = 100.0 * rng.dirichlet([80, 60, 40, 20, 10, 10, 300, 1], 80)
    X, y = shares[:, :-1], shares[:, -1]
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    known, y_known = X[:60], y[:60]
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(7)[-2:]]
    found = finish(make_search(known, y_known, 200).run(starts, grows=True))
    processes = found.mixture.processes
    given = [process.factorise(known, y_known).moments(X[60:]) for process in processes]
    assert_allclose(np.mean([one.mean for one in given], axis=0), y[60:], atol=0.01)


@pytest.mark.thorough
def test_few_rows_of_a_trend_are_continued_far_away():
    """And so are slopes in many inputs, of which each length scale is a parameter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 15))
    slopes, far = rng.standard_normal(15), 4.0 * rng.standard_normal((200, 15))
    y = X @ slopes + 0.3 * rng.standard_normal(60)
    scale = y.std()
    starts = [(name, start_process(k, gaussian=True)) for name, k in make_base_kernels(15)]
    found = finish(make_search(X, y / scale, 200).run(starts, grows=True))
    assert [trial.name for trial in found.trials][-1].endswith(" + LIN")
    assert found.belief[-1] > 0.9
    given = [process.factorise(X, y / scale).moments(far) for process in found.mixture.processes]
    mean = scale * np.average([one.mean for one in given], axis=0)
    ridge = X.T @ np.linalg.solve(X @ X.T + 0.09 * np.eye(60), y)
    error, least = (np.mean((m - far @ slopes) ** 2) for m in (mean, far @ ridge))
    assert error < 1.5 * least


@pytest.mark.parametrize("lead, n_trained", [(3.0, 7), (5.0, 9)])
def test_what_is_mostly_noise_is_searched_again_if_that_explains_more(monkeypatch, lead, n_trained):
    """From the best kernel's own start, which the others then follow."""
    X, y = make_rows(RBF([1.0, 2.0]), 30)
    trained = []

    def train_again(process, groups, **_):
        value = lead * (len(trained) == 3)
        trained.append(process)
        return Trained(replace(process, noise=0.5), value)

    monkeypatch.setattr(_search, "train_process", train_again)
    monkeypatch.setattr(FewRowsSearch, "_mix_draws", lambda self: self.trials)
    monkeypatch.setattr(FewRowsSearch, "_try_isotropic_alone", lambda *_: None)
    starts = make_starts(["Matern-1/2", "Matern-3/2", "SE"], gaussian=True)
    trials = finish(make_search(X, y, 200).run(starts, grows=True))
    assert len(trained) == n_trained
    assert (trials[0].trained.value == lead) == (lead > 4.0)


def test_as_many_trials_are_counted_as_there_may_be(monkeypatch):
    """Where most seems to be noise, kernels are tried again, and so are free length scales."""
    trained, calls = [], []

    def train_again(process, groups, **_):
        value = 5.0 * (len(trained) == 3)
        trained.append(process)
        return Trained(replace(process, noise=0.5), value)

    def free_all(process, groups, **_):
        return Trained(replace(process, tied=(0, 1)), 0.0)

    def end_pass(make):
        calls.append(make)
        return False

    monkeypatch.setattr(_search, "train_process", train_again)
    monkeypatch.setattr(_few_rows, "free_inputs", free_all)
    monkeypatch.setattr(_few_rows, "judge_folds", lambda *_, **__: (0.0, 1.0, 0.0))
    monkeypatch.setattr(_free_inputs, "_MANY_INPUTS", 1)
    monkeypatch.setattr(FewRowsSearch, "_mix_draws", lambda self: self.trials)
    X, y = make_rows(RBF([1.0, 2.0]), 60)
    starts = make_starts(["Matern-1/2", "Matern-3/2", "SE"], gaussian=True)
    search = make_search(X, y, 200, end_pass)
    finish(search.run(starts, grows=True))
    assert len(calls) == search.count_trials(3, grows=True) == 15


@pytest.mark.thorough
def test_parts_are_judged_by_what_they_learn_as_all_rows_did():
    """Places in clusters: from its own start, the best kernel ends where all is noise."""
    rng = np.random.RandomState(100)
    cluster = rng.randint(0, 3, 350)
    X = np.column_stack([1000.0 * cluster, -500.0 * cluster]) + rng.standard_normal((350, 2))
    y = np.sin(X[:, 0]) + 5.0 * cluster + 0.1 * rng.standard_normal(350)
    model = VBGPRegressor(random_state=0).fit(X[:150], y[:150])
    assert np.std(model.predict(X[150:]) - y[150:]) < 0.2


@pytest.mark.parametrize("lead, follows", [(3.0, False), (5.0, True)])
@pytest.mark.every_nth("lead", 2)
def test_parts_follow_the_first_trial_where_the_best_had_to(lead, follows):
    X, y = make_rows(RBF([1.0, 2.0]), 30)
    search = make_search(X, y, 200)
    first, (_, start) = starts = make_starts(["Matern-1/2", "SE"], gaussian=True)
    search.try_starts(starts, 2, 2, grows=True)
    leader, best = search.trials
    alone = search.train(start, search._n_iter)
    best = best._replace(trained=best.trained._replace(value=alone.value + lead))
    learn = search._find_way(best, first, start)
    assert (learn is _few_rows.train_process) != follows
    found = learn(start, search.groups, max_iter=10, tol=1e-4)
    assert found.value >= _few_rows.train_process(start, search.groups, max_iter=10, tol=1e-4).value
    assert search._find_way(leader, first, first[1]) is _few_rows.train_process
