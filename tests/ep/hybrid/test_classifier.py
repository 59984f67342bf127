"""The latent-variable model as an estimator."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, silhouette_score
from sklearn.pipeline import make_pipeline

from skvbgp import HybridGPLVM, VBGPRegressor
from skvbgp.kernels import Matern


def quick(**parameters):
    return HybridGPLVM(**({"n_inducing": 10, "max_iter": 25, "random_state": 0} | parameters))


@pytest.fixture(scope="module")
def fitted(iris):
    _, holes, y = iris
    return quick().fit(holes[::2], y[::2])


def test_classes_and_entries_of_new_rows(iris, fitted):
    X, holes, y = (a[1::2] for a in iris)
    assert log_loss(y, fitted.predict_proba(holes)) < 0.4
    filled, std = fitted.impute(holes, return_std=True)
    missing = np.isnan(holes)
    assert_array_equal(filled[~missing], X[~missing])
    assert np.all(std[~missing] == 0.0) and np.all(std[missing] > 0.0)
    error = (filled - X)[missing]
    of_mean = (np.nanmean(iris[1][::2], axis=0) - X)[missing]
    assert np.mean(error**2) < 0.5 * np.mean(of_mean**2)
    assert np.mean(np.abs(error) < 1.96 * std[missing]) > 0.85
    assert np.mean(std[missing]) < 1.5 * np.sqrt(np.mean(error**2))
    assert_array_equal(fitted.impute(holes), filled)
    assert_array_equal(np.argmax(fitted.predict_proba(holes), axis=1), fitted.predict(holes))


def test_a_row_that_says_less_is_less_certain(iris, fitted):
    X = iris[0][:1]
    less = X.copy()
    less[0, 2:] = np.nan
    _, std = fitted.transform(X, return_std=True)
    _, more = fitted.transform(less, return_std=True)
    assert np.all(more >= std) and np.any(more > 1.5 * std)
    nothing = np.full((1, 4), np.nan)
    assert fitted.predict_proba(nothing).max() < fitted.predict_proba(X).max()
    filled, std = fitted.impute(nothing, return_std=True)
    assert_allclose(filled[0], np.nanmean(iris[1], axis=0), atol=0.6)
    assert np.all(std > 0.2)


def test_inverse_transform_of_the_latents(iris, fitted):
    X = iris[0]
    latents = fitted.transform(X)
    entries, std = fitted.inverse_transform(latents, return_std=True)
    assert entries.shape == std.shape == X.shape
    assert np.all(std**2 >= fitted.noise_variance_ - 1e-12)
    assert np.mean((entries - X) ** 2) < 0.3 * np.mean((X - X.mean(axis=0)) ** 2)
    assert_array_equal(fitted.inverse_transform(latents), entries)
    with pytest.raises(ValueError, match="3 columns, but there are 2"):
        fitted.inverse_transform(np.zeros((1, 3)))


def test_latents_without_a_square_are_a_clear_error(fitted):
    with pytest.raises(ValueError, match="X has an entry"):
        fitted.inverse_transform(np.full((1, 2), 1e200))


@pytest.mark.thorough
def test_binary_columns(rng):
    x = rng.standard_normal(150)
    X = np.column_stack([x + 0.1 * rng.standard_normal(150), -x, np.where(x > 0.0, 4.0, -2.0)])
    frame = pd.DataFrame(X, columns=["a", "b", "flag"])
    model = quick(binary_columns=["flag"]).fit(frame)
    assert_array_equal(np.isnan(model.noise_variance_), [False, False, True])
    new = pd.DataFrame([[2.0, -2.0, np.nan], [-2.0, 2.0, np.nan]], columns=frame.columns)
    filled, std = model.impute(new, return_std=True)
    assert filled[0, 2] > 3.0 and filled[1, 2] < -1.0
    assert np.all(filled[:, 2] <= 4.0) and np.all(filled[:, 2] >= -2.0)
    assert np.all(std[:, 2] <= 3.0)
    with pytest.raises(ValueError, match="is binary with the values -2 and 4"):
        model.transform(frame.replace(4.0, 5.0))
    by_index = quick(binary_columns=[2]).fit(X)
    assert_allclose(by_index.impute(new.to_numpy()), filled)
    with pytest.raises(ValueError, match="but has others"):
        quick(binary_columns=[0]).fit(X)


@pytest.mark.thorough
def test_likelihood_of_labels_and_binary_columns(iris):
    """A fitted model keeps its own."""
    _, holes, y = iris
    X = np.column_stack([holes, y > 0])
    logistic = quick(binary_columns=[4], max_iter=20).fit(X[::2], y[::2])
    probit = clone(logistic).set_params(likelihood="probit").fit(X[::2], y[::2])
    p = [model.predict_proba(X[1::2]) for model in (logistic, probit)]
    assert np.max(np.abs(p[0] - p[1])) > 0.01
    assert max(log_loss(y[1::2], each) for each in p) < 0.5
    probit.set_params(likelihood="logistic")
    assert_array_equal(probit.predict_proba(X[1::2]), p[1])
    X[::5, 4] = np.nan
    filled = [model.impute(X)[::5, 4] for model in (logistic, probit)]
    assert np.min(filled) > 0.0 and np.max(filled) < 1.0
    assert np.max(np.abs(filled[0] - filled[1])) > 0.01
    with pytest.raises(ValueError, match="'likelihood' parameter"):
        quick(likelihood="cauchy").fit(X, y)


def test_a_prior_weight_whose_bound_would_overflow(iris):
    _, holes, y = iris
    with pytest.raises(ValueError, match=r"'prior_weight' parameter .* range \(0.0, 1e\+100\]"):
        quick(prior_weight=1e300).fit(holes, y)
    assert np.isfinite(quick(prior_weight=1e100, max_iter=2).fit(holes, y).lower_bound_)


def test_a_constant_binary_column(rng):
    X = np.column_stack([rng.standard_normal((30, 2)), np.ones(30)])
    X[0, 2] = np.nan
    filled, std = quick(binary_columns=[2]).fit(X).impute(X, return_std=True)
    assert filled[0, 2] == 1.0 and std[0, 2] == 0.0


@pytest.mark.slow
def test_labels_pull_the_classes_apart():
    """On 500 digits 0 to 4."""
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(y < 5)[:500]
    X, y = X[rows], y[rows]
    scores = [
        silhouette_score(quick(max_iter=40).fit(X, labels).transform(X), y) for labels in (y, None)
    ]
    assert scores[0] > scores[1] + 0.1


@pytest.mark.slow
def test_relevance_switches_off_spare_latents(rng):
    x = rng.standard_normal((120, 1))
    X = x @ [[1.0, -0.8, 0.6, 0.9, -1.0]] + 0.1 * rng.standard_normal((120, 5))
    model = HybridGPLVM(3, n_inducing=15, random_state=0).fit(X)
    relevance = np.sort(model.relevance_)
    assert relevance[1] < 0.05 * relevance[2]


@pytest.mark.thorough
def test_prior_weight_trades_entries_against_labels(iris):
    _, holes, y = iris
    discriminative, generative = (
        quick(prior_weight=weight).fit(holes, y) for weight in (0.005, 5.0)
    )
    loss = [log_loss(y, m.predict_proba(holes)) for m in (discriminative, generative)]
    noise = [np.mean(m.noise_variance_) for m in (discriminative, generative)]
    assert loss[0] < loss[1] and noise[0] > noise[1]


def test_without_labels(iris):
    model = quick().fit(iris[1])
    assert not hasattr(model, "classes_")
    for method in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError, match="without labels"):
            method(iris[1])
    assert_array_equal(model.fit_transform(iris[1]), model.transform(iris[1]))


def test_rows_are_predicted_one_by_one_as_together(iris, fitted):
    holes = iris[1][:5]
    for method in (fitted.transform, fitted.predict_proba, fitted.impute):
        together = method(holes)
        one_by_one = np.concatenate([method(holes[i : i + 1]) for i in range(5)])
        assert_allclose(one_by_one, together, rtol=1e-9, atol=1e-12)


@pytest.mark.thorough
def test_results_do_not_depend_on_units_of_the_columns(iris):
    """The first 30 iterations; in later ones, L-BFGS makes much of rounding."""
    _, holes, y = iris
    factor, shift = np.array([1e3, 1e-6, 1.0, 50.0]), np.array([0.0, 1.0, -1e3, 5.0])
    scaled = holes * factor + shift
    one = quick(max_iter=30).fit(holes[::2], y[::2])
    other = quick(max_iter=30).fit(scaled[::2], y[::2])
    assert_allclose(other.predict_proba(scaled), one.predict_proba(holes), atol=1e-3)
    assert_allclose((other.impute(scaled) - shift) / factor, one.impute(holes), atol=1e-3)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_n_jobs_and_pickle_change_nothing(iris, fitted, monkeypatch, backend):
    monkeypatch.setattr("skvbgp.ep.hybrid._classifier._TASK_ROWS", 20)
    expected = fitted.predict_proba(iris[1])
    again = pickle.loads(pickle.dumps(fitted)).set_params(n_jobs=2)
    with parallel_config(backend):
        assert_array_equal(again.predict_proba(iris[1]), expected)
    refitted = clone(fitted).fit(iris[1][::2], iris[2][::2])
    assert_array_equal(refitted.predict_proba(iris[1]), expected)


@pytest.mark.thorough
def test_new_rows_in_chunks(iris):
    _, holes, y = iris
    chunks = quick().partial_fit(holes[::2], y[::2], classes=[0, 1, 2])
    first = chunks.predict_proba(holes)
    whole = clone(chunks).fit(holes[::2], y[::2])
    assert_array_equal(whole.predict_proba(holes), first)
    rest = np.arange(1, 150, 2)
    chunks.partial_fit(holes[rest[:1]], y[rest[:1]]).partial_fit(holes[rest[1:]], y[rest[1:]])
    whole.partial_fit(holes[rest], y[rest])
    assert_allclose(chunks.predict_proba(holes), whole.predict_proba(holes), atol=1e-7)
    assert_allclose(chunks.lower_bound_, whole.lower_bound_, rtol=1e-8)
    assert np.max(np.abs(chunks.predict_proba(holes) - first)) > 1e-3
    before = dict(vars(chunks))
    with pytest.raises(ValueError, match="not among the classes"):
        chunks.partial_fit(holes[:2], [0, 7])
    with pytest.raises(ValueError, match="has none"):
        chunks.partial_fit(holes[:2])
    assert vars(chunks) == before
    with pytest.raises(ValueError, match="this one has"):
        quick(max_iter=1).partial_fit(holes).partial_fit(holes, y, classes=[0, 1, 2])


@pytest.mark.thorough
@pytest.mark.parametrize("first", [20, 50, 100], ids=["few", "one class", "two classes"])
def test_rows_that_bring_news_set_the_map_again(iris, first):
    _, holes, y = iris
    first = slice(0, first)
    rest = np.setdiff1d(np.arange(150), np.arange(150)[first])
    stream = quick(max_iter=20).partial_fit(holes[first], y[first], classes=[0, 1, 2])
    few = stream.projection_
    stream.partial_fit(holes[rest], y[rest])
    assert np.max(np.abs(stream.projection_ - few)) > 1e-3
    rows = np.r_[np.arange(150)[first], rest]
    whole = quick(max_iter=20).fit(holes[rows], y[rows])
    assert_array_equal(stream.predict_proba(holes), whole.predict_proba(holes))
    learned = stream.projection_
    assert_array_equal(stream.partial_fit(holes[:5], y[:5]).projection_, learned)


@pytest.mark.thorough
@pytest.mark.parametrize("binary", [False, True])
def test_a_column_that_was_constant_varies_in_later_rows(rng, binary):
    X = rng.standard_normal((120, 2))
    X[:, 1] = X[:, 0] > 0.0 if binary else 100.0 * X[:, 0]
    X[:40, 1] = 1.0
    model = quick(binary_columns=[1] if binary else None)
    model.partial_fit(X[:40]).partial_fit(X[40:])
    imputed, std = model.impute([[0.5, np.nan]], return_std=True)
    whole = clone(model).fit(X).impute([[0.5, np.nan]], return_std=True)
    assert_array_equal([imputed, std], whole)
    if binary:
        with pytest.raises(ValueError, match="is binary"):
            model.partial_fit([[0.0, 2.0]])


def test_bound_rises(iris):
    model = quick(max_iter=100).fit(iris[1][::2])  # no sites: every round goes on
    assert np.all(np.diff(model.objective_values_) >= 0.0)
    assert len(model.objective_values_) == model.n_iter_
    assert model.lower_bound_ >= model.objective_values_[-1]  # the prior of the map is below 0


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0, np.nan], [2.0, np.nan]], None, r"Columns \[1\] of X have no entry"),
        ([[1.0, np.inf], [2.0, 3.0]], None, "infinity"),
        ([[1.0, 2.0]], None, "minimum of 2"),
        ([[1.0, 2.0], [2.0, 1.0]], [1, 1], "one class"),
        ([[1.0, 2.0], [2.0, 1.0]], [0.5, np.nan], "NaN"),
        ([["a", "b"], ["c", "d"]], None, "could not convert"),
        ([[1e200, 2.0], [-1e200, 1.0]], None, "beyond 1e153"),
    ],
)
def test_bad_input(X, y, message):
    with pytest.raises(ValueError, match=message):
        quick(max_iter=2).fit(X, y)


@pytest.mark.parametrize(
    "kind", ["constant", "duplicates", "collinear", "tiny", "huge", "one", "empty row"]
)
@pytest.mark.parametrize("latents", ["map", "free"])
@pytest.mark.in_turn("latents")
@pytest.mark.every_nth("latents", 3)
def test_degenerate_data(rng, kind, latents):
    """A correct answer, or at least a finite one without a warning of ours."""
    X = rng.standard_normal((20, 3))
    y = (X[:, 0] > 0.0).astype(int)
    if kind == "constant":
        X[:, 1] = 4.0
    elif kind == "duplicates":
        X, y = np.repeat(X[:2], 10, axis=0), np.repeat([0, 1], 10)
    elif kind == "collinear":
        X[:, 1] = 2.0 * X[:, 0]
    elif kind in ("tiny", "huge"):
        X *= {"tiny": 1e-150, "huge": 1e150}[kind]
    elif kind == "one":
        X = X[:, :1]
    else:
        X[3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick(max_iter=2, latents=latents).fit(X, y)
        holes = X[:5].copy()
        holes[0] = np.nan
        filled, std = model.impute(holes, return_std=True)
    assert np.isfinite(filled).all() and np.isfinite(std).all()
    assert np.all(std >= 0.0)
    assert np.isfinite(model.predict_proba(holes)).all()
    if kind == "constant":
        assert_allclose(filled[0, 1], 4.0, atol=1.0)


# --- in front of a regressor, and with few labels -----------------------------------------------


@pytest.mark.thorough
def test_y_is_left_out_where_it_is_no_class(iris):
    X, holes, _ = iris
    target = X[:, 2] + np.sin(X[:, 0])
    alone, other = quick().fit(holes), quick(supervised=False).fit(holes, target)
    assert_array_equal(other.transform(holes), alone.transform(holes))
    stream = quick(supervised=False).partial_fit(holes[:75], target[:75])
    stream.partial_fit(holes[75:], target[75:])
    assert_array_equal(stream.transform(holes).shape, (150, 2))
    with pytest.raises(NotFittedError, match="without labels"):
        other.predict(holes)
    with pytest.raises(ValueError, match="Unknown label type") as caught:
        quick().fit(holes, target)
    assert caught.value.__notes__ == ["If y is no class, supervised=False leaves it out."]
    regressor = make_pipeline(quick(supervised=False), VBGPRegressor(Matern(), random_state=0))
    regressor.fit(holes[::2], target[::2])
    assert regressor.score(holes[1::2], target[1::2]) > 0.7


NO_CLASSES = {
    "fractions": lambda x: x + 0.25,
    "many": lambda x: np.arange(len(x)),
    "whole and many": lambda x: np.arange(len(x), dtype=float),
    "several": lambda x: np.column_stack([np.round(x), x]),
    "not all observed": lambda x: np.where(x > 4.0, np.nan, x + 0.25),
}


@pytest.mark.parametrize("make", NO_CLASSES.values(), ids=NO_CLASSES)
@pytest.mark.every_nth("make", 4)
def test_in_front_of_another_estimator_y_is_left_out_if_it_is_no_class(iris, make):
    """The first call decides: what comes later may look like classes."""
    _, holes, _ = iris
    X, y = holes[::3], make(iris[0][::3, 2])
    latents = quick(max_iter=3)
    expected = quick(max_iter=3, supervised=False).fit(X)
    assert_array_equal(latents.fit_transform(X, y), expected.transform(X))
    latents.partial_fit(X[:5], np.zeros(5)).partial_fit(X[5:7])
    expected.partial_fit(X[:5]).partial_fit(X[5:7])
    assert_array_equal(latents.transform(X), expected.transform(X))
    with pytest.raises(NotFittedError, match="without labels"):
        latents.predict(X)
    with pytest.raises(ValueError):  # as a classifier it has use for classes alone
        quick(max_iter=3).fit(X, make(iris[0][::3, 2] + 0.5) + 0.25)


@pytest.mark.parametrize("options", [{}, {"supervised": True}, {"missing_label": -1}])
@pytest.mark.every_nth("options", 2)
def test_in_front_of_another_estimator_classes_are_classes(iris, options):
    _, holes, y = iris
    X, y = holes[::3], y[::3].astype(float)
    latents = quick(max_iter=3, **options)
    expected = quick(max_iter=3, **options).fit(X, y)
    assert_array_equal(latents.fit_transform(X, y), expected.transform(X))
    assert_array_equal(latents.predict_proba(X), expected.predict_proba(X))
    if options:
        with pytest.raises(ValueError, match="Unknown label type"):
            latents.fit_transform(X, y + 0.25)
        assert_array_equal(latents.predict_proba(X), expected.predict_proba(X))


def test_a_pipeline_of_defaults_learns_a_continuous_target(iris):
    _, holes, _ = iris
    X, y = holes[::3], iris[0][::3, 2] + np.sin(iris[0][::3, 0])
    model = make_pipeline(HybridGPLVM(max_iter=20), VBGPRegressor(Matern(), random_state=0))
    mean, std = model.fit(X, y).predict(holes[1::3], return_std=True)
    assert mean.shape == std.shape == (50,)
    assert model.score(holes[1::3], iris[0][1::3, 2] + np.sin(iris[0][1::3, 0])) > 0.5


def test_deviations_are_asked_of_the_last_step_of_a_pipeline_alone(iris):
    """With metadata routing, where the latents have a `return_std` of their own."""
    _, holes, y = iris
    latents, last = quick(supervised=False, max_iter=5), VBGPRegressor(Matern(), random_state=0)
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(latents, last).fit(holes[:60], np.arange(60.0))
        mean, std = model.predict(holes[60:70], return_std=True)
    expected = model[-1].predict(model[0].transform(holes[60:70]), return_std=True)
    assert_array_equal((mean, std), expected)


def with_gaps(y, missing):
    """Ten labels of each class, and the other rows without."""
    few = np.concatenate([np.flatnonzero(y == label)[:10] for label in range(3)])
    some = np.full(len(y), missing, dtype=float)
    some[few] = y[few]
    return some, few


@pytest.mark.thorough
@pytest.mark.parametrize("missing", [-1, np.nan])
def test_rows_without_a_label_tell_of_x(iris, missing):
    X, y = iris[0][::2], iris[2][::2]
    some, few = with_gaps(y, missing)
    model = quick(missing_label=missing).fit(X, some)
    assert_array_equal(model.classes_, [0, 1, 2])
    assert log_loss(y, model.predict_proba(X)) < 0.35
    alone = quick(missing_label=missing).fit(X[few], some[few])
    assert_array_equal(alone.projection_, quick().fit(X[few], y[few]).projection_)
    assert np.any(model.projection_ != alone.projection_)


def test_a_value_of_another_type_is_no_label(iris):
    X, y = iris[0][::2], iris[2][::2]
    plain = quick(max_iter=3).fit(X, y)
    same = quick(max_iter=3, missing_label="unknown").fit(X, y)
    assert_array_equal(same.projection_, plain.projection_)
    names = np.where(np.arange(len(y)) % 5 == 0, "unknown", np.array(["a", "b", "c"])[y])
    model = quick(max_iter=3, missing_label="unknown").fit(X, names)
    assert_array_equal(model.classes_, ["a", "b", "c"])


def test_a_stream_of_rows_with_and_without_labels(iris):
    X, y = iris[0][::2], iris[2][::2]
    some, _ = with_gaps(y, -1)
    stream = quick(missing_label=-1)
    stream.partial_fit(X[:40], some[:40], classes=[0, 1, 2])
    stream.partial_fit(X[40:], some[40:])
    stream.partial_fit(X[:3], np.full(3, -1))
    assert stream.score(X, y) > 0.8
    with pytest.raises(ValueError, match="At least two classes"):
        quick(missing_label=-1).fit(X, np.full(len(X), -1))


@pytest.mark.thorough
def test_a_stream_may_begin_without_any_label(iris):
    X, y = iris[0][::2], iris[2][::2]
    stream = quick(missing_label=-1)
    stream.partial_fit(X[::2], np.full(38, -1), classes=[0, 1, 2])
    assert_allclose(stream.predict_proba(X), 1.0 / 3.0)
    whole = quick(missing_label=-1).fit(np.vstack([X[::2], X]), np.append(np.full(38, -1), y))
    assert_array_equal(stream.partial_fit(X, y).predict_proba(X), whole.predict_proba(X))
