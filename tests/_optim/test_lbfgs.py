"""The driver of L-BFGS: optimum, failing regions, limits and early stops."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.journal import Journal, use_journal
from skvbgp._core.linalg import NotPositiveDefiniteError
from skvbgp._optim.ascent import go_on
from skvbgp._optim.lbfgs import lbfgs_ascent

START = np.array([-1.2, 1.0])


def rosenbrock(x):
    """Minus Rosenbrock's function: maximum 0 at (1, 1)."""
    a, b = 1.0 - x[0], x[1] - x[0] ** 2
    gradient = np.array([2.0 * a + 400.0 * x[0] * b, -200.0 * b])
    return -(a**2) - 100.0 * b**2, gradient


def test_rosenbrock():
    """tol=0 leaves the gradient's 1e-6; the flattest curvature there is 0.4."""
    result = lbfgs_ascent(rosenbrock, START, max_iter=200, tol=0.0)
    assert_allclose(result.x, 1.0, atol=1e-5)
    assert result.value == rosenbrock(result.x)[0]
    assert 5 < result.n_iter < 100


def test_max_iter():
    result = lbfgs_ascent(rosenbrock, START, max_iter=3, tol=0.0)
    assert result.n_iter == 3
    assert rosenbrock(START)[0] < result.value < -0.1


def test_tol_is_relative_to_the_rise():
    coarse = lbfgs_ascent(rosenbrock, START, max_iter=200, tol=0.1)
    fine = lbfgs_ascent(rosenbrock, START, max_iter=200, tol=1e-12)
    assert coarse.n_iter < fine.n_iter < 200
    assert coarse.value < fine.value


def failing(bad):
    """A parabola with its top at 0.9 that cannot be evaluated from 1 on."""

    def objective(x):
        if x[0] >= 1.0:
            failing.count += 1
            if bad is NotPositiveDefiniteError:
                raise NotPositiveDefiniteError("no factor")
            if bad == "gradient":
                return 0.0, np.array([np.nan])
            return bad, np.array([0.0])
        return -100.0 * (x[0] - 0.9) ** 2, -200.0 * (x - 0.9)

    failing.count = 0
    return objective


@pytest.mark.parametrize("bad", [NotPositiveDefiniteError, "gradient", np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("start", [0.0, -50.0])
def test_retreats_from_points_that_fail(bad, start):
    """The first trial step, of length 1, fails from 0: the search has to come back."""
    result = lbfgs_ascent(failing(bad), np.array([start]), max_iter=100, tol=0.0)
    assert failing.count > 0 or start != 0.0
    assert_allclose(result.x, 0.9, atol=1e-6)


def test_other_errors_pass():
    def objective(x):
        if x[0] != 0.0:
            raise ZeroDivisionError
        return 0.0, np.ones(1)

    with pytest.raises(ZeroDivisionError):
        lbfgs_ascent(objective, np.zeros(1), max_iter=5, tol=0.0)


def test_start_has_to_succeed():
    with pytest.raises(NotPositiveDefiniteError):
        lbfgs_ascent(failing(NotPositiveDefiniteError), np.array([2.0]), max_iter=5, tol=0.0)


def test_end_pass_sees_the_best_point_of_every_iteration_and_stops():
    seen = []

    def end_pass(make):
        reached = make()
        assert reached.value == rosenbrock(reached.x)[0]
        seen.append(reached.value)
        return len(seen) == 4

    result = lbfgs_ascent(rosenbrock, START, max_iter=200, tol=0.0, end_pass=end_pass)
    assert len(seen) == result.n_iter == 4
    assert result.value == seen[-1]
    assert_array_equal(seen, np.sort(seen))  # the best so far


def test_bounds():
    bounds = np.array([[-2.0, 0.5], [-2.0, 2.0]])
    result = lbfgs_ascent(rosenbrock, START, max_iter=200, tol=0.0, bounds=bounds)
    assert_allclose(result.x, [0.5, 0.25], atol=1e-6)


def test_start_at_the_optimum():
    result = lbfgs_ascent(rosenbrock, np.ones(2), max_iter=10, tol=0.0)
    assert_array_equal(result.x, 1.0)
    assert result.n_iter == 1


def test_nothing_to_optimise():
    result = lbfgs_ascent(
        lambda x: (3.0, x), np.empty(0), max_iter=3, tol=0.0, bounds=np.empty((0, 2))
    )
    assert result.value == 3.0 and result.n_iter == 1 and len(result.x) == 0


def test_start_is_not_modified():
    start = START.copy()
    start.flags.writeable = False
    lbfgs_ascent(rosenbrock, start, max_iter=3, tol=0.0)


def test_each_iteration_is_a_pass_that_is_reported():
    """With the best point and the values so far, as they were then."""
    reports = []

    def end_pass(make):
        reports.append(make())
        return len(reports) == 3

    def objective(x):
        return -float(np.sum((x - 1.0) ** 4)), -4.0 * (x - 1.0) ** 3

    result = lbfgs_ascent(objective, np.array([5.0, -3.0]), max_iter=50, tol=0.0, end_pass=end_pass)
    assert [len(report.values) for report in reports] == [1, 2, 3]
    assert result.values == reports[-1].values
    assert [report.stopped for report in reports] == [False] * 3 and result.stopped
    assert list(result.values) == sorted(result.values)
    np.testing.assert_array_equal(result.x, reports[-1].x)


class Forgetful:
    """An objective whose value depends, a little, on how often it has been evaluated."""

    def __init__(self, bad=None):
        self.n, self.n_called, self.bad = 0, 0, bad

    def __call__(self, x):
        self.n_called += 1
        if self.bad is not None and self.n_called == self.bad:
            raise NotPositiveDefiniteError("here")
        self.n += 1
        value, gradient = rosenbrock(x)
        return value + 1e-12 * self.n, gradient

    def get_state(self):
        return self.n

    def set_state(self, state):
        self.n = state


def search(objective, journal=None, end_pass=go_on):
    with use_journal(journal):
        result = lbfgs_ascent(
            objective, START, max_iter=12, tol=0.0, memory=objective, end_pass=end_pass
        )
    return result, objective.n


def interrupted(n_passes, objective):
    """What was saved of a search before its end."""
    saved = []
    journal = Journal(None, lambda content: saved.append(pickle.dumps(content)), 1)

    def end_pass(make):
        journal.end_pass(False)
        if len(make().values) == n_passes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(objective, journal, end_pass)
    return pickle.loads(saved[-1])


@pytest.mark.parametrize("bad", [None, 2, 5])
@pytest.mark.parametrize("n_passes", [1, 6, 12])
def test_a_search_goes_on_from_its_journal(n_passes, bad):
    complete = Forgetful(bad)
    expected, n = search(complete)
    content = interrupted(n_passes, first := Forgetful(bad))
    later = Forgetful(None if first.n_called >= (bad or 0) else bad - first.n_called)
    result, n_again = search(later, Journal(content, print, 100))
    assert_array_equal(result.x, expected.x)
    assert (result.values, n_again) == (expected.values, n)
    assert first.n_called + later.n_called == complete.n_called


def test_a_start_that_fails_says_why_with_a_journal():
    with pytest.raises(NotPositiveDefiniteError, match="here"):
        search(Forgetful(bad=1), Journal(None, print, 100))


def test_a_search_that_goes_another_way_is_an_error():
    content = interrupted(3, Forgetful())
    _, _, (log,) = content
    place, (value, gradient) = log.entries[1]
    log.entries[1] = place, (value, 1.1 * gradient)
    with pytest.raises(RuntimeError, match="does not repeat"):
        search(Forgetful(), Journal(content, print, 100))
