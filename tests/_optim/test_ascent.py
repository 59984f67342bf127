"""The loop of stochastic ascent, with steps that know no model."""

import numpy as np
import pytest

from skvbgp._optim.ascent import Ascended, Clock, ascend
from skvbgp._optim.schedule import no_annealing


def add(state, batch, clock):
    return state + batch, float(batch)


def run(step=add, **options):
    settings = dict(n_passes=3, n_batches=2) | options
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
