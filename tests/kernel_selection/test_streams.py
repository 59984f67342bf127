"""Streams: which kernels more rows train, and when a search starts again."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBKSRegressor, kernel_grammar
from skvbgp.kernel_selection import _learner, _rounds, _settings, _training
from skvbgp.kernel_selection._learner import VBKSLearner
from skvbgp.kernel_selection._training import KernelFits
from skvbgp.kernels import RBF, Matern
from tests.kernel_selection.cases import make_series, small

KERNELS = kernel_grammar(2, base=("SE", "LIN"))  # eight
OPTIONS = {"kernels": KERNELS, "n_inducing": None, "max_iter": 8, "top_k": 2, "n_trained": 4}


@pytest.fixture
def calls(monkeypatch):
    """Names of the tasks, with the kernels that they are for, in order; without evaluations."""
    made = []
    replace = KernelFits._replace

    def note(self, function, shared, chosen):
        chosen = list(chosen)
        if chosen and function.__name__ != "evaluate":
            made.append((function.__name__, sorted(chosen)))
        replace(self, function, shared, chosen)

    monkeypatch.setattr(KernelFits, "_replace", note)
    return made


def trained(calls):
    """Which kernels have been trained."""
    return sorted(i for name, chosen in calls if name.startswith("train") for i in chosen)


def names(calls):
    return {name for name, _ in calls}


@pytest.fixture
def few_screened(monkeypatch):
    monkeypatch.setattr(_learner, "SCREENING_ROWS", 20)


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(_learner, "COLLAPSED_ROWS", 40)


def test_more_rows_train_the_kernels_that_are_near_the_best(calls):
    X, y = make_series(60)
    model = small(**OPTIONS).fit(X[:40], y[:40])
    calls.clear()
    model.partial_fit(X[40:], y[40:])
    (name, every), *_ = calls
    assert (name, every) == ("judge", list(range(8)))
    assert 1 <= len(trained(calls)) <= 4
    assert np.isfinite(model.local_lower_bounds_).all()


def test_those_far_behind_are_not_trained_and_their_bounds_are_of_all_rows(calls, monkeypatch):
    monkeypatch.setattr(_learner, "in_reach", lambda bounds, chosen: chosen[:1])
    X, y = make_series(60)
    model = small(**OPTIONS).fit(X[:40], y[:40])
    before = [kernel for _, kernel in model.kernels_]
    calls.clear()
    model.partial_fit(X[40:], y[40:])
    (best,) = trained(calls)
    for i, (_, kernel) in enumerate(model.kernels_):
        assert np.array_equal(kernel.theta, before[i].theta) == (i != best)
    fitted = model._state
    for one in fitted.models:
        i = [other.name for other in fitted.candidates].index(one.name)
        assert_allclose(model.local_lower_bounds_[i], one._bound + fitted.log_jacobians[i])


def test_the_best_are_trained_again_when_rows_say_less_than_was_expected(calls, monkeypatch):
    """Rows on a straight line, and then some that are not."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 10.0, 70)[:, None]
    y = X[:, 0] + 0.1 * rng.standard_normal(70)
    y[40:] += 3.0 * np.sin(2.0 * X[40:, 0])
    options = OPTIONS | {"kernels": KERNELS[:2], "n_trained": 2, "top_k": 1}
    monkeypatch.setattr(_learner, "in_reach", lambda bounds, chosen: chosen[:1])
    model = small(**options).fit(X[:37], y[:37])
    for rows, expected in ((slice(37, 40), [1]), (slice(40, 70), [0, 1])):
        calls.clear()
        model.partial_fit(X[rows], y[rows])
        assert calls == [("judge", [0, 1]), ("train_collapsed", expected)]


@pytest.mark.usefixtures("few_screened")
def test_bounds_of_fewer_inducing_inputs_than_rows_are_no_surprise(calls, monkeypatch):
    """Those of all rows are exact, and higher."""
    monkeypatch.setattr(_learner, "DENSE_ROWS", 40)
    monkeypatch.setattr(_learner, "_SPARSE_INDUCING", 3)
    monkeypatch.setattr(_learner, "in_reach", lambda bounds, chosen: chosen[:1])
    X, y = make_series(60)
    model = small(**OPTIONS).fit(X[:40], y[:40])
    calls.clear()
    model.partial_fit(X[40:], y[40:])
    assert model._state.Z is not None
    assert len(trained(calls)) == 1


def test_what_rows_make_expect():
    """Three standard deviations of log densities of new rows, and the reach, below the average."""
    values = np.random.default_rng(0).standard_normal((20_000, 50))
    sums = -0.5 * np.sum(values**2 + np.log(2.0 * np.pi), axis=1)
    mean = sums.mean()
    expected = _rounds.expect_bound(mean / 50, 100.0, 0.5)
    assert_allclose(expected, 2.0 * mean - _rounds.REACH - 3.0 * sums.std(), rtol=1e-2)


@pytest.mark.usefixtures("few_screened")
@pytest.mark.thorough
def test_rows_that_double_are_searched_again_until_a_search_has_seen_enough(calls):
    X, y = make_series(80)
    model = small(**OPTIONS).fit(X[:19], y[:19])
    for rows, task in ((slice(19, 38), "screen"), (slice(38, 76), "judge")):
        calls.clear()
        model.partial_fit(X[rows], y[rows])
        assert calls[0] == (task, list(range(8)))


@pytest.mark.usefixtures("few_screened")
def test_few_new_rows_make_few_iterations(monkeypatch):
    seen = []
    train = _settings.train_collapsed
    monkeypatch.setattr(
        _settings, "train_collapsed", lambda *args: seen.append(args[0].max_iter) or train(*args)
    )
    X, y = make_series(60)
    model = small(**OPTIONS | {"max_iter": None, "n_jobs": 1}).fit(X[:40], y[:40])
    assert set(seen) == {60}
    for n, expected in ((1, 10), (18, round(60 * 18 / 59))):
        seen.clear()
        rows = slice(model.n_samples_seen_, model.n_samples_seen_ + n)
        model.partial_fit(X[rows], y[rows])
        assert set(seen) == {expected}


@pytest.mark.usefixtures("few_screened")
@pytest.mark.thorough
def test_all_kernels_are_trained_and_searched_for_if_that_is_asked_for(calls):
    X, y = make_series(60)
    model = small(**OPTIONS | {"n_trained": None}).fit(X[:25], y[:25])
    calls.clear()
    model.partial_fit(X[25:26], y[25:26])
    assert calls == [("train_collapsed", list(range(8)))]
    model.partial_fit(X[26:], y[26:])
    assert calls[1][0] == "screen"


@pytest.mark.usefixtures("few_at_once", "few_screened")
def test_mini_batches_train_the_four_best_of_a_stream(calls):
    X, y = make_series(60)
    model = small(**OPTIONS | {"n_trained": 6}).fit(X[:35], y[:35])
    calls.clear()
    model.partial_fit(X[35:], y[35:])
    assert names(calls) == {"train_stochastic"}
    assert len(trained(calls)) == 4
    assert len(model.kernels_) == 8
    assert np.isfinite(model.local_lower_bounds_).sum() == 6


def test_bounds_of_kept_kernels_have_the_divergence_of_their_hyperparameters(monkeypatch):
    monkeypatch.setattr(_learner, "COLLAPSED_ROWS", 30)
    X, y = make_series(60)
    model = small(n_inducing=6, max_iter=2, hyperparameter_posterior="gaussian")
    state = model.fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])._state
    assert all(fit.kl > 0.1 for fit in state.fits)
    bounds = [one._bound - fit.kl for one, fit in zip(state.models, state.fits, strict=True)]
    assert_allclose(model.local_lower_bounds_, state.log_jacobians + bounds)


@pytest.mark.thorough
def test_climbs_that_will_not_come_near_the_best_end(monkeypatch):
    """And what they have reached is a bound on all rows, only lower than it could be."""
    monkeypatch.setattr(_training, "_SCREENING_ITERATIONS", 1)
    X, y = make_series(60)
    options = OPTIONS | {"n_trained": 8, "max_iter": 60}
    whole = small(**options).fit(X, y)
    assert whole.n_iter_ > 10
    monkeypatch.setattr(_learner, "N_FIRST", 1)
    monkeypatch.setattr(_learner, "REACH", -1e6)  # all others are behind
    short = small(**options).fit(X, y)
    n_iter = np.array([fit.n_iter for fit in short._state.fits])
    assert np.sum(n_iter > 6) == 1
    assert np.all(short.local_lower_bounds_ <= whole.local_lower_bounds_ + 1e-6)
    (best,) = np.flatnonzero(n_iter > 6)
    assert_allclose(short.local_lower_bounds_[best], whole.local_lower_bounds_[best])


@pytest.mark.thorough
def test_a_stream_of_single_rows_ends_where_one_that_trains_all_kernels_does():
    X, y = make_series(40)
    few, all_kernels = (small(**OPTIONS | {"n_trained": n}).fit(X[:30], y[:30]) for n in (4, None))
    for i in range(30, 40):
        for model in (few, all_kernels):
            model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert few.best_kernel_[0] == all_kernels.best_kernel_[0]
    assert few.lower_bound_ > all_kernels.lower_bound_ - 0.1


def test_as_many_passes_are_announced_as_there_may_be(calls):
    X, y = make_series(60)
    model = small(**OPTIONS).fit(X[:40], y[:40])
    announced = VBKSLearner.of(model).max_update_passes(model._state, X[40:], model._state.rows[1])
    calls.clear()
    model.partial_fit(X[40:], y[40:])
    assert sum(len(chosen) for _, chosen in calls) <= announced


@pytest.mark.parametrize("now", [{"transforms": ["identity"]}, {"kernels": [RBF()]}])
@pytest.mark.every_nth("now", 3)
def test_a_stream_goes_on_with_its_kernels_whatever_a_fit_would_have_now(now):
    """As many passes are announced as these need."""
    X, y = make_series(40)
    model = VBKSRegressor(
        [RBF(), Matern()], max_iter=2, random_state=0, transforms=["identity", "log"], n_restarts=1
    )
    model.fit(X[:30], np.exp(y[:30]))
    n_kernels = len(model.kernels_)
    model.set_params(**now).partial_fit(X[30:33], np.exp(y[30:33]))
    assert len(model.kernels_) == n_kernels and model.n_samples_seen_ == 33
