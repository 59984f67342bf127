"""Streams that forget: fits to the rows that count, with labels and without."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import HybridGPLVM

pytestmark = pytest.mark.usefixtures("quick_searches")

N, SHARE, WINDOW = 60, 0.9, 25
each = pytest.mark.parametrize("latents", ["map", "free"])


def small(**options):
    return HybridGPLVM(**{"n_inducing": 5, "max_iter": 1, "random_state": 0, **options})


@pytest.fixture
def table(rng):
    """Two continuous columns and a binary one with missing entries, and labels, some unknown."""
    X = rng.standard_normal((N, 3))
    X[:, 2] = np.where(X[:, 0] + X[:, 2] > 0.0, 5.0, 2.0)
    y = (X[:, 0] > 0.0).astype(int)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:10] *= 50.0  # what is to be forgotten
    X[:10, 2] = 2.0
    return X, np.where(rng.random(N) < 0.3, -1, y)


@each
@pytest.mark.parametrize("forgetting", [SHARE, WINDOW])
@pytest.mark.parametrize("options", [{"supervised": False}, {"missing_label": -1}], ids=str)
@pytest.mark.in_turn("forgetting")
@pytest.mark.every_nth("options", 2)
@pytest.mark.every_nth("forgetting", 3)
@pytest.mark.thorough
def test_a_stream_is_a_fit_to_rows_by_their_age(latents, forgetting, options, table, rng):
    """Also the latents: what is said of a row that is forgotten is what is said of a new one."""
    X, y = table
    options = {"latents": latents, "binary_columns": [2], **options}
    stream, given = small(forgetting=forgetting, **options), rng.uniform(0.5, 2.0, N)
    for rows in np.split(np.arange(N), [20, 30, 31]):
        stream.partial_fit(X[rows], y[rows], classes=[0, 1], sample_weight=given[rows])
    age = np.arange(N - 1.0, -1.0, -1.0)
    share = (age < forgetting) * 1.0 if forgetting > 1.0 else forgetting**age
    counts = share >= 0.01
    weight = (given * share)[counts]
    model = small(**options).partial_fit(X[counts], y[counts], [0, 1], weight)
    assert (stream.n_samples_seen_, model.n_samples_seen_) == (N, counts.sum())
    assert_allclose(stream.lower_bound_, model.lower_bound_, rtol=1e-6)
    methods = ["transform", "impute"] + ["predict_proba"] * ("missing_label" in options)
    for method in methods:
        one, other = (getattr(estimator, method)(X[8:12]) for estimator in (stream, model))
        assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@each
@pytest.mark.every_nth("latents", 2)
def test_latents_of_forgotten_rows_are_forgotten(latents, table):
    """Of a window, free latents are as many as its rows; single rows come and go."""
    X, _ = table
    model = small(latents=latents, forgetting=WINDOW, max_iter=1).fit(X[:56])
    for i in range(56, N):
        model.partial_fit(X[i : i + 1])
    state = model._state
    assert_array_equal(np.sort(state.X, axis=0), np.sort(X[-WINDOW:], axis=0))
    if latents == "free":
        assert len(state.posterior.training_latents) == WINDOW
    assert model.transform(X[:3]).shape == (3, 2) and model.n_samples_seen_ == N


def test_labels_may_all_be_forgotten_and_come_again(table):
    X, y = table
    stream = small(missing_label=-1, forgetting=WINDOW).fit(X, y)
    stream.partial_fit(X[:WINDOW], np.full(WINDOW, -1))
    assert_array_equal(stream.classes_, [0, 1])
    assert_allclose(stream.predict_proba(X), 0.5)
    stream.partial_fit(X, y)
    model = small(missing_label=-1).fit(X[-WINDOW:], y[-WINDOW:])
    assert_allclose(stream.predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_what_is_left_out_of_y_stays_left_out(table):
    """What the first call has found of y."""
    X, _ = table
    model = small(forgetting=WINDOW)
    model.fit_transform(X[:30], np.linspace(0.0, 1.0, 30))
    model.partial_fit(X[30:], np.zeros(30))
    assert not hasattr(model, "classes_")
    assert_array_equal(model.transform(X), small().fit(X[-WINDOW:]).transform(X))


def test_a_column_without_an_entry_in_the_window_is_an_error_that_changes_nothing(table):
    X, y = table[0], (np.arange(N) % 2)
    stream = small(forgetting=WINDOW).fit(X[:30], y[:30])
    before = stream.transform(X)
    gap = X[30:].copy()
    gap[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"Columns \[1\] of X have no entry"):
        stream.partial_fit(gap, y[30:])
    assert_array_equal(stream.transform(X), before)
    assert stream.n_samples_seen_ == 30
    stream.partial_fit(X[30:], y[30:])
    model = small().fit(X[-WINDOW:], y[-WINDOW:])
    assert_allclose(stream.transform(X), model.transform(X), rtol=1e-6, atol=1e-6)


@each
@pytest.mark.every_nth("latents", 2)
def test_a_value_of_a_binary_column_may_be_forgotten(latents, rng):
    """Predictions take it all the same, but no third one."""
    X = rng.standard_normal((40, 3))
    X[:, 2] = np.where(np.arange(40) < 15, 7.0, 3.0)
    model = small(latents=latents, binary_columns=[2], forgetting=20).fit(X)
    model.partial_fit(X[-5:])
    for method in (model.transform, model.impute):
        assert np.isfinite(method([[0.1, np.nan, 7.0], [0.1, np.nan, 3.0]])).all()
    with pytest.raises(ValueError, match="the values 3 and 8, but has others"):
        model.transform([[0.1, 0.2, 7.0], [0.1, 0.2, 8.0]])
    with pytest.raises(ValueError, match="the values 3 and 8"):
        model.partial_fit([[0.1, 0.2, 7.0], [0.1, 0.2, 8.0]])


def test_forgetting_has_to_be_set_before_rows_are_known(table):
    X, _ = table
    model = small().fit(X[:30])
    with pytest.raises(ValueError, match="forgetting was 1 before"):
        model.set_params(forgetting=WINDOW).partial_fit(X[30:])
    for bad in (0.0, -2, 1.5):
        with pytest.raises(ValueError, match="forgetting"):
            small(forgetting=bad).fit(X)
