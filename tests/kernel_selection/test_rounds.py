"""Mini-batches train many kernels in rounds, and leave most of them behind."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import kernel_grammar
from skvbgp.base import Targets
from skvbgp.kernel_selection import _rounds, _training
from skvbgp.kernel_selection._bound import total_statistics
from skvbgp.kernel_selection._rounds import Round, plan_rounds
from tests.kernel_selection.cases import make_series, small

KERNELS = kernel_grammar(2, base=("SE", "LIN"))  # eight
OPTIONS = {"kernels": KERNELS, "batch_size": 16, "max_iter": 8, "top_k": 3}
SHORT_ROUNDS = ((3, 0.25), (1, 0.5), (0, 1.0))


@pytest.fixture
def short_rounds(monkeypatch):
    monkeypatch.setattr(_rounds, "_ROUNDS", SHORT_ROUNDS)


def plan(*args, at_once=False):
    return list(plan_rounds(*args, at_once=at_once))


def test_the_best_make_all_steps(short_rounds):
    assert plan(8, 100) == [Round(8, 0, 25), Round(3, 25, 25), Round(1, 50, 50)]
    assert plan(3, 100) == [Round(3, 0, 50), Round(1, 50, 50)]  # none would stay
    assert plan(1, 100) == [Round(1, 0, 100)]
    assert plan(8, 100, at_once=True) == [Round(8, 0, 100)]


def test_there_is_no_round_without_a_step(short_rounds):
    assert [each.n_steps for each in plan(8, 2)] == [1, 1, 1]


@pytest.fixture(scope="module")
def raced():
    X, y = make_series(64)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(_rounds, "_ROUNDS", SHORT_ROUNDS)
        warnings.simplefilter("error")  # who is left behind has not failed
        return small(**OPTIONS, n_trained=5).fit(X, y)


def test_kernels_that_are_left_behind_get_no_belief_and_no_bound(raced):
    bounds, posterior = raced.local_lower_bounds_, raced.kernel_posterior_
    behind = ~np.isfinite(bounds)
    assert behind.sum() == 3
    assert np.all(bounds[behind] == -np.inf)
    assert_array_equal(posterior[behind], 0.0)
    assert_allclose(posterior.sum(), 1.0)
    assert_array_equal(raced.g_mean_[behind], 0.0)
    for (_, found), (_, first) in zip(raced.kernels_, KERNELS, strict=True):
        assert not np.array_equal(found.theta, first.bind(1).theta)  # what the search has found


def test_bounds_of_those_that_go_into_a_round_are_of_all_rows(raced):
    X, y = make_series(64)
    for model in raced.estimators_:
        Z = model.inducing_inputs - model._frame.origin
        whole = total_statistics(X, Targets(y), model._frame, Z, model._kernel, model._points)
        i = [name for name, _ in raced.kernels_].index(model.name)
        expected = whole.bound(whole.optimal_q()) - len(y) * np.log(y.std())
        assert_allclose(raced.local_lower_bounds_[i], expected)


def test_the_best_goes_through_all_rounds(raced):
    assert raced.n_iter_ == 8
    passes = sorted(fit.n_iter for fit in raced._state.fits if fit.is_valid)
    assert passes == [2, 2, 4, 4, 8]


@pytest.mark.thorough
def test_all_are_trained_and_evaluated_if_that_is_asked_for(short_rounds):
    X, y = make_series(64)
    model = small(**OPTIONS | {"kernels": KERNELS[:4]}, n_trained=None).fit(X, y)
    assert np.isfinite(model.local_lower_bounds_).all()
    assert {fit.n_iter for fit in model._state.fits} == {8}


@pytest.mark.thorough
def test_a_later_round_goes_on_with_other_rows(short_rounds, monkeypatch):
    """The rounds of a kernel have the mini-batches of one training, in their order."""
    batches = []

    class Recording(_training.Evaluation):
        def __init__(self, prior, X, y, factor=1.0):
            if factor > 1.0:
                batches.append(np.sort(y.y))
            super().__init__(prior, X, y, factor)

    monkeypatch.setattr(_training, "Evaluation", Recording)
    X, y = make_series(64)
    trained = []
    for options in ({"kernels": KERNELS[:2]}, {"kernels": KERNELS[:2], "n_trained": None}):
        batches.clear()
        small(**OPTIONS | options).fit(X, y)
        trained.append(list(batches))
    rounds, whole = trained
    one = whole[: len(whole) // 2]  # of the first kernel
    assert_array_equal(rounds[: len(one) // 2], one[: len(one) // 2])
    assert_array_equal(rounds[-(len(one) // 2) :], one[len(one) // 2 :])


@pytest.mark.thorough
def test_a_stream_leaves_kernels_behind_when_its_rows_become_many(short_rounds, monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 40)
    X, y = make_series(64)
    model = small(**OPTIONS | {"batch_size": None}, n_trained=5).fit(X[:40], y[:40])
    assert np.isfinite(model.local_lower_bounds_).all()
    model.partial_fit(X[40:56], y[40:56])
    assert np.isfinite(model.local_lower_bounds_).sum() == 5
    model.partial_fit(X[56:], y[56:])
    assert len(model.kernels_) == len(model.estimators_) == 3
    assert np.isfinite(model.local_lower_bounds_).all()
