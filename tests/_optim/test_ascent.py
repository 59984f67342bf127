"""The loop of stochastic ascent, with steps that know no model."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.journal import Journal, use_journal
from skvbgp._optim.ascent import (
    Ascended,
    Clock,
    ascend,
    cosine_annealing,
    go_on,
    no_annealing,
)


def add(state, batch, clock):
    return state + batch, float(batch)


def run(step=add, **options):
    settings = dict(n_passes=3, n_batches=2, rng=np.random.RandomState(0)) | options
    return ascend(step, 0, lambda: iter([1, 2]), **settings)


def test_ends_with_the_state_and_the_average_of_each_pass():
    assert run() == Ascended(9, (1.5, 1.5, 1.5))


def test_steps_are_counted_across_passes_and_annealed_over_all_of_them():
    clocks = []

    def step(state, batch, clock):
        clocks.append(clock)
        return state, 0.0

    run(step)
    assert [clock.step for clock in clocks] == list(range(6))
    shares = [clock.annealing for clock in clocks]
    np.testing.assert_allclose(shares, 0.5 + 0.5 * np.cos(np.pi * np.arange(6) / 6))
    clocks.clear()
    run(step, annealing=no_annealing)
    assert clocks[-1] == Clock(5, 1.0)


def test_a_pass_is_reported_and_may_be_the_last():
    reports = []

    def end_pass(make):
        reports.append(make)
        return len(reports) == 2

    result = run(end_pass=end_pass)
    assert result == Ascended(6, (1.5, 1.5))
    assert reports[0]() == Ascended(3, (1.5,))  # as it was then


@pytest.mark.parametrize("tol, n_passes", [(None, 300), (0.0, 300), (1e-3, 100)])
def test_stops_when_the_objective_has_come_to_rest(tol, n_passes):
    def step(state, batch, clock):
        return state, 1e-9 * clock.step  # rises, by less and less of 1

    assert len(run(step, n_passes=300, tol=tol).values) == n_passes


@pytest.mark.parametrize("n_known", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"tol": 0.5, "n_passes": 300}])
@pytest.mark.every_nth("options", 2)
def test_a_loop_goes_on_from_its_journal(n_known, options):
    """With the generator behind its steps, and without a step that is known."""
    n_steps = 0

    def go(journal, end_pass=go_on):
        nonlocal n_steps
        rng, n_steps = np.random.RandomState(0), 0

        def step(state, batch, clock):
            nonlocal n_steps
            n_steps += 1
            return state + rng.uniform() * batch, float(batch) + clock.annealing

        with use_journal(journal):
            return run(step, rng=rng, end_pass=end_pass, **options), rng.uniform()

    expected, n_all = go(None), n_steps
    saved = []
    journal = Journal(None, saved.append, 1)

    def interrupt(make):
        journal.end_pass(False)
        if len(make().values) == n_known:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(journal, interrupt)
    assert go(Journal(pickle.loads(pickle.dumps(saved[-1])), saved.append, 1)) == expected
    assert n_steps == n_all - 2 * n_known
    complete = Journal(None, saved.append, 1)
    go(complete)
    assert go(Journal(complete.content, saved.append, 1)) == expected
    assert n_steps == 0


# -- step sizes that fall --------------------------------------------------------------------------


def test_from_one_to_zero_by_way_of_a_half():
    assert cosine_annealing(0, 10) == 1.0
    assert cosine_annealing(5, 10) == pytest.approx(0.5)
    assert cosine_annealing(10, 10) == pytest.approx(0.0, abs=1e-15)


def test_falls_slowly_at_both_ends_and_fastest_in_between():
    shares = np.array([cosine_annealing(step, 100) for step in range(101)])
    falls = -np.diff(shares)
    assert np.all(falls > 0.0)
    assert falls.argmax() in (49, 50)
    assert_allclose(falls, falls[::-1])
