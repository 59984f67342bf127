"""Latents of rows on their own: those of training rows, and those that new rows get."""

import pickle

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss

from skvbgp import HybridGPLVM
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.hybrid._free_posterior import FreePosterior, RowBound
from skvbgp.ep.hybrid._objective import ColumnSites, solve
from tests.derivatives import numerical_gradient
from tests.ep.hybrid.problems import small_problem
from tests.oracles import ep, hybrid

TILTED = {"logistic": ep.tilted_logistic, "probit": ep.tilted_probit}


def solved(likelihood="logistic"):
    """A posterior with training latents, and the data it knows."""
    columns, data, p, X = small_problem(free=True, likelihood=likelihood)
    solution = solve(data, p, ColumnSites.vague(data.t), 1e-7)
    bound, inducing = solution.bound, solution.features.inducing
    model = FreePosterior(columns, p, data.likelihood, inducing, bound.mean, bound.covariance)
    return model, data, X


def row_bound(model, data, *, labels):
    """Of the training rows, as if they were new."""
    t = data.t if labels else data.t[:, :1]
    weight = np.array([0.5, 2.0, 1.5, 3.0])[: data.n_continuous + t.shape[1]]
    return RowBound(model, data.Y, data.seen, t, weight), t, weight


def some_latents(rng, n):
    return Inputs(rng.standard_normal((n, 2)), rng.uniform(0.1, 0.8, (n, 2)))


def flat(latents):
    return np.hstack([latents.mean, np.log(latents.variance)])


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("likelihood", ["logistic", "probit"])
@pytest.mark.every_nth("likelihood", 2)
def test_bound_of_a_row_is_the_literal_one(rng, likelihood, labels):
    """Up to its constant: differences between two places."""
    model, data, _ = solved(likelihood)
    bound, t, weight = row_bound(model, data, labels=labels)
    y = np.where(data.seen, data.Y, np.nan)
    n, beta = len(y), np.exp(model.parameters.log_precision)
    values, expected = [], []
    for latents in (some_latents(rng, n), some_latents(rng, n)):
        values.append(bound(flat(latents), np.arange(n))[0])
        f = model.moments(latents)
        expected.append(
            [
                hybrid.row_bound(
                    y[i],
                    t[i],
                    f.mean[i],
                    f.variance[i],
                    beta,
                    TILTED[likelihood],
                    weight,
                    latents.mean[i],
                    latents.variance[i],
                )
                for i in range(n)
            ]
        )
    assert_allclose(np.subtract(*values), np.subtract(*expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.every_nth("labels", 2)
def test_gradient_of_the_bound_of_a_row(rng, labels):
    model, data, _ = solved()
    bound, _, _ = row_bound(model, data, labels=labels)
    rows = np.array([0, 3, 4])  # with missing entries
    x = flat(some_latents(rng, 3))
    expected = numerical_gradient(lambda x: bound(x, rows)[0].sum(), x)
    assert_allclose(bound(x, rows)[1], expected, atol=1e-7)


def test_search_goes_from_the_best_training_row_to_a_stationary_point():
    model, data, _ = solved()
    bound, _, _ = row_bound(model, data, labels=True)
    n, known = len(data.Y), model.training_latents
    end, gradient = bound(flat(bound.maximise()), np.arange(n))
    assert_allclose(gradient, 0.0, atol=2e-5)
    for i in range(n):
        same = flat(known.rows(np.full(n, i)))
        assert np.all(bound(same, np.arange(n))[0] <= end + 1e-9)


def test_rows_of_a_stream_have_latents_by_the_weights_of_training():
    """Of which the objective has ``prior_weight`` for the prior, and a row's bound one."""
    model, data, _ = solved()
    n = len(data.Y)
    joined = model.extend(data).recognition.latents_of_rows
    bound = RowBound(model, data.Y, data.seen, data.t, data.weight / 0.3)
    _, gradient = bound(flat(joined.rows(np.arange(n, 2 * n))), np.arange(n))
    assert_allclose(gradient, 0.0, atol=2e-5)


def test_a_row_without_entries_has_the_prior():
    model, _, _ = solved()
    latents = model.latents(np.full((2, 3), np.nan))
    assert_allclose(latents.mean, 0.0, atol=1e-4)
    assert_allclose(latents.variance, 1.0, atol=1e-4)


# --- the estimator ------------------------------------------------------------------------------


def quick(**parameters):
    given = {"latents": "free", "prior_weight": 1.0, "n_inducing": 10, "max_iter": 60}
    return HybridGPLVM(**(given | {"random_state": 0} | parameters))


@pytest.fixture(scope="module")
def fitted(iris):
    _, holes, y = iris
    return quick().fit(holes[::2], y[::2])


@pytest.mark.thorough
def test_classes_and_entries_of_new_rows(iris, fitted):
    X, holes, y = (a[1::6] for a in iris)
    assert fitted.projection_ is None
    assert log_loss(y, fitted.predict_proba(holes)) < 0.35
    filled, std = fitted.impute(holes, return_std=True)
    missing = np.isnan(holes)
    error = (filled - X)[missing]
    of_mean = (np.nanmean(iris[1][::2], axis=0) - X)[missing]
    assert np.mean(error**2) < 0.5 * np.mean(of_mean**2)
    assert np.mean(np.abs(error) < 1.96 * std[missing]) > 0.85


def test_rows_are_predicted_one_by_one_as_together(iris, fitted):
    holes = iris[1][:2]
    for method in (fitted.transform, fitted.impute):
        one_by_one = np.concatenate([method(holes[i : i + 1]) for i in range(2)])
        assert_allclose(one_by_one, method(holes), rtol=1e-7, atol=1e-7)


@pytest.mark.thorough
def test_n_jobs_and_pickle_change_nothing(iris, fitted, monkeypatch):
    monkeypatch.setattr("skvbgp.ep.hybrid._classifier._TASK_ROWS", 4)
    expected = fitted.predict_proba(iris[1][:6])
    again = pickle.loads(pickle.dumps(fitted)).set_params(n_jobs=2)
    with parallel_config("threading"):
        assert_array_equal(again.predict_proba(iris[1][:6]), expected)


@pytest.mark.thorough
def test_new_rows_join_the_latents_that_are_there(iris):
    _, holes, y = iris
    first, rest = np.arange(0, 150, 3), np.arange(1, 150, 10)
    model = quick(max_iter=30).partial_fit(holes[first], y[first], classes=[0, 1, 2])
    before = model._state.posterior.training_latents
    unlabelled = model.transform(holes[rest])
    model.partial_fit(holes[rest], y[rest])
    after = model._state.posterior.training_latents
    assert_array_equal(after.mean[:50], before.mean)
    assert len(after) == 65
    assert np.max(np.abs(after.mean[50:] - unlabelled)) > 1e-3  # labels count
    assert log_loss(y[2::10], model.predict_proba(holes[2::10])) < 0.4
    kept = dict(vars(model))
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(holes[:2], [0, 7])
    assert vars(model) == kept


def test_few_rows_are_fitted_again_with_the_next(iris):
    _, holes, y = iris
    stream = quick(max_iter=3).partial_fit(holes[:20], y[:20], classes=[0, 1, 2])
    stream.partial_fit(holes[20::4], y[20::4])
    rows = np.r_[0:20, 20:150:4]
    whole = quick(max_iter=3).fit(holes[rows], y[rows])
    assert_array_equal(stream.transform(holes[:5]), whole.transform(holes[:5]))


@pytest.mark.thorough
def test_without_labels(iris):
    model = quick(max_iter=30).fit(iris[1])
    assert np.all(np.diff(model.objective_values_) >= 0.0)
    assert_allclose(model.lower_bound_, model.objective_values_[-1], rtol=1e-9)
    new = model.partial_fit(iris[0][:40]).transform(iris[0][:3])
    assert new.shape == (3, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [1e10, 1e120])
@pytest.mark.filterwarnings("error")
def test_a_row_far_away_has_latents_among_the_others(iris, fitted, scale):
    mean, std = fitted.transform([[scale, 3.0, 4.0, -scale]], return_std=True)
    latents = fitted.transform(iris[0][::15])
    assert np.max(np.abs(mean)) < 3.0 * np.max(np.abs(latents))
    assert np.all(np.isfinite(std))


def test_binary_columns(rng):
    x = rng.standard_normal(100)
    X = np.column_stack([x + 0.1 * rng.standard_normal(100), -x, np.where(x > 0.0, 4.0, -2.0)])
    model = quick(binary_columns=[2]).fit(X)
    filled = model.impute([[2.0, -2.0, np.nan], [-2.0, 2.0, np.nan]])
    assert filled[0, 2] > 3.0 and filled[1, 2] < -1.0


@pytest.mark.thorough
def test_most_latents_of_long_training_are_not_tried(iris, fitted, monkeypatch):
    """Where there are many training rows, some of them are enough to start from."""
    expected = fitted.transform(iris[0][1::10])
    monkeypatch.setattr("skvbgp.ep.hybrid._free_posterior._N_STARTS", 10)
    few = fitted.transform(iris[0][1::10])
    assert np.median(np.max(np.abs(few - expected), axis=1)) < 1e-3
