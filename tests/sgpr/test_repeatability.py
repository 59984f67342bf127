"""Warm starts, seeds and workers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBFITCRegressor, VBPITCRegressor
from skvbgp.sgpr._learner import SparseLearner
from tests.sgpr.cases import (
    BLOCKED,
    GIVEN,
    INDEPENDENT,
    SOLVERS,
    attributes,
    every,
    make_data,
    quick_for,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")


@every
def test_warm_start_goes_on_from_the_fit_before(cls):
    X, y = make_data()
    model = small(cls, psi="closed_form").fit(X, y)
    before, bound = attributes(model), model.lower_bound_
    expected = model.predict(X, return_std=True)
    model.set_params(warm_start=True, learn_hyperparameters=False).fit(X, y)
    for name, value in before.items():
        assert_array_equal(getattr(model, name), value, err_msg=name)
    if cls in INDEPENDENT:  # blocks are formed anew, in inputs scaled by the learned nu
        assert_allclose(model.lower_bound_, bound, rtol=1e-10)
        for mine, theirs in zip(model.predict(X, return_std=True), expected, strict=True):
            assert_allclose(mine, theirs, rtol=1e-10)
    assert model.n_samples_seen_ == len(X)
    assert model.n_iter_ == 1
    assert model.lower_bounds_ == [model.lower_bound_]


@quick_for(VBFITCRegressor, VBPITCRegressor)
def test_warm_start_improves(cls):
    X, y = make_data()
    model = small(cls, max_iter=2, warm_start=True).fit(X, y)
    bounds = [model.lower_bound_] + [model.fit(X, y).lower_bound_ for _ in range(3)]
    assert np.all(np.diff(bounds) > 0.0)
    assert len(model.lower_bounds_) == model.n_iter_ == 2
    cold = small(cls, max_iter=2).fit(X, y)
    assert bounds[-1] > cold.lower_bound_ + 1.0


@every
def test_what_a_start_learns_from_y_is_left_out_of_a_warm_start_alone(cls, monkeypatch):
    X, y = make_data()
    starts = []

    def spy(self, state, data, rng, smooth):
        starts.append(state)
        return state.parameters

    monkeypatch.setattr(SparseLearner, "_improve_start", spy)
    model = small(cls, "stochastic", max_iter=1, warm_start=True).fit(X, y)
    assert len(starts) == 1
    model.fit(X, y)
    assert len(starts) == 1
    model.set_params(warm_start=False).fit(X, y)
    assert len(starts) == 2
    few = small(cls, "stochastic", max_iter=1, warm_start=True)
    few.partial_fit(X[:5], y[:5]).partial_fit(X[5:], y[5:])  # starts again with all rows
    assert len(starts) == 4


@every
def test_inducing_inputs_are_chosen_again_after_an_exact_fit(cls):
    """Its own are all rows or, with a noise kernel, a quarter of them, of the noise alone."""
    X, y = make_data(60)
    model = small(cls, "exact", warm_start=True).fit(X[:20], y[:20])
    nu = model.inverse_length_scale_mean_
    model.set_params(solver="collapsed", n_inducing=30, learn_hyperparameters=False).fit(X, y)
    assert len(model.inducing_inputs_) == 30
    assert_array_equal(model.inverse_length_scale_mean_, nu)
    model = small(cls, "exact", warm_start=True).fit(X[:20], y[:20])
    given = {"inducing_inputs": X[:7], "learn_hyperparameters": False}
    model.set_params(solver="collapsed", **given).fit(X, y)
    assert_allclose(model.inducing_inputs_, X[:7])


@every
def test_warm_start_after_a_stream(cls):
    """New targets of another mean and scale have come in between."""
    X, y = make_data(60)
    y = np.where(np.arange(60) < 30, y, 5.0 * y + 40.0)
    parameters = {**GIVEN, "inducing_inputs": X[::5], "learn_hyperparameters": False}
    streamed = small(cls, warm_start=True, **parameters)
    streamed.partial_fit(X[:30], y[:30]).partial_fit(X[30:], y[30:]).fit(X, y)
    expected = small(cls, **parameters).fit(X, y)
    assert streamed.n_samples_seen_ == 60
    for mine, theirs in zip(streamed.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=1e-8)


@every
def test_stream_after_a_warm_start_on_other_data(cls):
    """The rows of the first fit no longer count, not even in the mean of y."""
    X, y = make_data(60)
    y = np.where(np.arange(60) < 20, 100.0, 0.0) + y
    parameters = {**GIVEN, "inducing_inputs": X[::5], "learn_hyperparameters": False}
    model = small(cls, warm_start=True, **parameters).fit(X[:20], y[:20])
    model.fit(X[20:40], y[20:40]).partial_fit(X[40:], y[40:])
    expected = small(cls, **parameters)
    expected.partial_fit(X[20:40], y[20:40]).partial_fit(X[40:], y[40:])
    for mine, theirs in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=1e-8)


@every
def test_warm_start_with_other_features_is_a_clear_error(cls):
    X, y = make_data()
    model = small(cls, warm_start=True).fit(X, y)
    expected = model.predict(X)
    with pytest.raises(ValueError, match="features"):
        model.fit(make_data(40, 3)[0], y)
    assert_array_equal(model.predict(X), expected)


@every
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", [int, np.random.RandomState])
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("seed", 2)
def test_random_state(cls, solver, seed):
    X, y = make_data()
    first = small(cls, solver, random_state=5).fit(X, y)
    again = small(cls, solver, random_state=seed(5)).fit(X, y)
    assert_array_equal(again.predict(X), first.predict(X))
    assert again.lower_bounds_ == first.lower_bounds_
    other = small(cls, solver, random_state=6).fit(X, y)
    assert np.all(other.predict(X) != first.predict(X))
    generator = np.random.RandomState(5)
    model = small(cls, solver, random_state=generator)
    assert np.all(model.fit(X, y).predict(X) != model.fit(X, y).predict(X))


@pytest.mark.thorough
@every
def test_number_of_workers_changes_nothing(cls):
    X, y = make_data(600)  # several tasks in the pass that ends a fit
    parameters = {"n_inducing": 4, "max_iter": 1, "batch_size": 300, "psi": "sampled"}
    if cls in BLOCKED:
        parameters["n_blocks"] = 20
    alone = small(cls, "stochastic", **parameters).fit(X, y)
    together = small(cls, "stochastic", n_jobs=2, **parameters).fit(X, y)
    assert together.lower_bound_ == alone.lower_bound_
    X_new = X[:50]
    for mine, theirs in zip(together.predict(X_new, True), alone.predict(X_new, True), strict=True):
        assert_array_equal(mine, theirs)
