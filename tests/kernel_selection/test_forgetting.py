"""Streams in which older rows fade: those that are kept, and sums over them."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp.base import Targets, _change
from skvbgp.kernel_selection._posterior import total_statistics
from skvbgp.kernels import Matern, RationalQuadratic
from tests.kernel_selection.cases import KERNELS, make_series, small
from tests.weights import assert_same

pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture
def few_kept(monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)


def ages(n):
    return np.arange(n - 1.0, -1.0, -1.0)


@pytest.mark.parametrize("options", [{}, {"transforms": ["identity", "log"]}], ids=["y", "log y"])
@pytest.mark.usefixtures("few_kept")
@pytest.mark.every_nth("options", 2)
def test_sums_are_those_of_rows_that_count_by_their_age(options, monkeypatch):
    """At the hyperparameters of the first call."""
    monkeypatch.setattr(_change, "_ODDS", np.inf)  # no second stream
    X, y = make_series(70)
    y = np.exp(0.3 * y)
    model = small(max_iter=2, kernels=KERNELS[:2], forgetting=0.97, **options)
    for rows in (slice(36), slice(36, 50), slice(50, 51), slice(51, 70)):
        model.partial_fit(X[rows], y[rows])
    targets = Targets(y, 0.97 ** ages(70))
    for one, lower_bound in zip(model._state.models, model.local_lower_bounds_, strict=True):
        Z = one.inducing_inputs - one._frame.origin
        sums = total_statistics(X, targets, one._frame, Z, one.kernel, one._points)
        expected = replace(one, _statistics=sums)
        assert_allclose(one.predict(X, True), expected.predict(X, True), rtol=1e-8)
        bound = expected._bound + one._frame.target.log_jacobian(targets)
        assert_allclose(lower_bound, bound, rtol=1e-8)
    assert model.n_samples_seen_ == 70


def test_few_rows_are_trained_on_by_their_age():
    X, y = make_series(60)
    model = small(max_iter=2, kernels=KERNELS[:1], forgetting=0.9)
    expected = small(max_iter=2, kernels=KERNELS[:1])
    model.partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])  # which begins again
    weight = np.where(ages(60) < 44, 0.9 ** ages(60), 0.0)  # 0.9 ** 44 is less than a hundredth
    assert_same(model, expected.fit(X, y, sample_weight=weight), X)
    assert len(model._state.rows[1]) == 44


def test_a_row_that_comes_often_does_not_push_others_out():
    X, y = make_series(60)
    X[np.arange(60) % 10 > 0], y[np.arange(60) % 10 > 0] = X[0], y[0]
    model = small(max_iter=2, kernels=KERNELS[:1], forgetting=0.95)
    expected = clone(model).fit(X, y, sample_weight=0.95 ** ages(60))
    for start in range(0, 60, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    assert len(model._state.rows[1]) == len(expected._state.rows[1]) == 6
    assert_allclose(model._state.rows[1].counts.sum(), (0.95 ** ages(60)).sum())


def test_kernels_that_were_left_behind_stay_so_when_all_rows_are_forgotten(monkeypatch):
    """.5 ** 1200 is zero."""
    monkeypatch.setattr(_change, "_ODDS", np.inf)  # no second stream
    X, y = make_series(1240)
    kernels = [KERNELS[0], ("M", Matern()), ("RQ", RationalQuadratic()), KERNELS[1]]
    options = dict(max_iter=2, batch_size=16, n_trained=2, top_k=2, forgetting=0.5)
    model = small(kernels=kernels, **options).fit(X[:40], y[:40])
    before = np.isfinite(model.local_lower_bounds_)
    assert np.count_nonzero(before) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[40:], y[40:])
    assert_array_equal(np.isfinite(model.local_lower_bounds_), before)
    assert_allclose(model.kernel_posterior_[before].sum(), 1.0)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.every_nth("kept", 2)
def test_an_output_that_is_not_observed_fades(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_series(80)
    Y = np.column_stack([y, np.where(np.arange(80) < 60, -y, np.nan)])
    model = small(max_iter=2, kernels=KERNELS[:1], forgetting=0.95)
    both, alone = clone(model), clone(model)
    for rows in (slice(60), slice(60, 80)):
        both.partial_fit(X[rows], Y[rows])
        alone.partial_fit(X[rows], y[rows])
    assert_array_equal(both.predict(X)[:, 0], alone.predict(X))
    before = clone(model).partial_fit(X[:60], -y[:60])
    faded = both._state.outputs[1]
    share = faded.models[0]._statistics.n / before._state.models[0]._statistics.n
    assert share == pytest.approx(0.95**20)
    assert np.all(both.predict(X, True)[1][:, 1] > 0.99 * before.predict(X, True)[1])


def test_forgetting_nothing_is_the_default():
    X, y = make_series(60)
    plain, one = (
        small(max_iter=2, kernels=KERNELS[:1], **f)
        .partial_fit(X[:40], y[:40])
        .partial_fit(X[40:], y[40:])
        for f in ({}, {"forgetting": 1})
    )
    assert_array_equal(plain.predict(X, True), one.predict(X, True))
