"""Data and parameters that a user may come with: a correct answer or a clear error."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import EPDTCClassifier
from skvbgp.kernels import RBF, Linear, Matern
from tests.ep.cases import make_labels
from tests.ep.problems import APPROXIMATIONS

X, Y = make_labels(40, d=3)
MISSING, _ = make_labels(40, d=3, missing=0.3)


def quiet_fit(X, y, **parameters):
    """A fitted model, no warning on the way and probabilities in order."""
    model = EPDTCClassifier(**{"n_inducing": 12, "max_iter": 6, "random_state": 0, **parameters})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = model.fit(X, y).predict_proba(X)
    assert np.all((p >= 0.0) & (p <= 1.0))
    assert_allclose(p.sum(axis=1), 1.0)
    return model


@pytest.mark.parametrize("data", [X, MISSING], ids=["complete", "missing"])
@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
@pytest.mark.every_nth("scale", 2)
@pytest.mark.every_nth("data", 2)
def test_scale_of_x_does_not_matter(data, scale):
    a, b = quiet_fit(data, Y), quiet_fit(data * scale, Y)
    assert_allclose(b.predict_proba(data * scale), a.predict_proba(data), atol=1e-3)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_spread_without_a_square(scale):
    with pytest.raises(ValueError, match="spread of X"):
        quiet_fit(X * scale, Y)


def test_offset_of_x_does_not_matter():
    a, b = quiet_fit(X, Y), quiet_fit(X + 1e7, Y)
    assert_allclose(b.predict_proba(X + 1e7), a.predict_proba(X), atol=1e-2)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (X[:2], [0, 1]),
        (np.ones((10, 2)), np.arange(10) % 2),
        (np.column_stack([X, np.full(40, 7.0)]), Y),
        (np.hstack([X, X]), Y),
        (np.repeat(X[:5], 8, axis=0), np.arange(40) % 2),
        (np.repeat(X, 3, axis=0), np.repeat(Y, 3)),
        (np.vstack([X[:-1], [[1e10, 0.0, 0.0]]]), Y),
        (X, (X[:, 0] > 0.0).astype(int)),
        (X, (np.arange(40) == 0).astype(int)),
        (np.where(np.arange(40)[:, None] == 3, np.nan, X), Y),
        (np.where((np.arange(40)[:, None] > 0) & (np.arange(3) == 1), np.nan, X), Y),
    ],
    ids=[
        "two rows",
        "constant",
        "constant column",
        "collinear",
        "contradictory duplicates",
        "duplicates",
        "outlier",
        "separable",
        "one of a class",
        "row of missing entries",
        "column with one entry",
    ],
)
@pytest.mark.every_nth("approximation", 2)
@pytest.mark.every_nth("X", 3)
def test_degenerate_data(X, y, approximation):
    quiet_fit(X, y, approximation=approximation)


def test_constant_inputs_predict_the_base_rate():
    y = (np.arange(40) < 30).astype(int)
    p = quiet_fit(np.ones((40, 2)), y).predict_proba(np.ones((1, 2)))
    assert_allclose(p[0, 1], 0.75, atol=0.03)


def test_more_inducing_inputs_than_rows():
    model = quiet_fit(X, Y, n_inducing=1000)
    assert model.inducing_inputs_.shape == (40, 3)
    assert_allclose(np.sort(model.inducing_inputs_, axis=0), np.sort(X, axis=0))


def test_inducing_inputs_that_coincide_or_are_far_away():
    quiet_fit(X, Y, inducing_inputs=np.repeat(X[:3], 4, axis=0))
    p = quiet_fit(X, Y, inducing_inputs=X[:3] + 1e8, max_iter=2).predict_proba(X)
    assert_allclose(p, 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": 3}, "kernel must be"),
        ({"kernel": RBF([1.0, 2.0])}, "2 entries, but the inputs have 3"),
        ({"inducing_inputs": X[:4, :2]}, "inducing_inputs has 2 columns, but X has 3"),
        ({"inducing_inputs": MISSING[:9]}, "inducing_inputs contains NaN"),
        ({"inducing_inputs": "abc"}, "inducing_inputs"),
        ({"inducing_inputs": []}, "inducing_inputs must have the shape"),
        ({"damping": 1.0}, "damping"),
        ({"schedule": "random"}, "schedule"),
        ({"multi_class": "one_vs_one"}, "multi_class"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        EPDTCClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize("kernel", [Matern(), Linear() + 1.0], ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_kernels_without_expectations(kernel):
    model = quiet_fit(X, Y, kernel=kernel)
    for use in (lambda: model.predict(MISSING), lambda: quiet_fit(MISSING, Y, kernel=kernel)):
        with pytest.raises(ValueError, match="squared-exponential"):
            use()


@pytest.mark.parametrize(
    ("X_var", "message"),
    [
        (X[:3] ** 2, r"X_var has shape \(3, 3\), but X has \(40, 3\)"),
        (0.1, r"X_var has shape \(\), but X has \(40, 3\)"),
        (-(X**2), "must not be negative"),
        (np.full_like(X, np.nan), "X_var contains NaN"),
        (np.full_like(X, np.inf), "X_var contains infinity"),
    ],
)
@pytest.mark.every_nth("X_var", 2)
def test_bad_variances(X_var, message):
    model = quiet_fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, X_var=X_var)
    with pytest.raises(ValueError, match=message):
        model.predict_proba(X, X_var=X_var)


def test_variances_are_of_the_columns_of_x_in_their_order():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = quiet_fit(frame, Y)
    p = model.predict_proba(frame, X_var=frame**2)
    assert_allclose(model.predict_proba(frame, X_var=X**2), p)
    with pytest.raises(ValueError, match="in the same order"):
        model.predict_proba(frame, X_var=frame[["b", "a", "c"]] ** 2)


@pytest.mark.parametrize("ignored", [np.nan, np.inf, -1.0])
@pytest.mark.every_nth("ignored", 2)
def test_variances_of_missing_entries_are_ignored(ignored):
    variance = np.full_like(X, 0.1)
    models = [
        EPDTCClassifier(n_inducing=12, max_iter=2, random_state=0).fit(MISSING, Y, X_var=X_var)
        for X_var in (variance, np.where(np.isnan(MISSING), ignored, variance).tolist())
    ]
    p = [
        models[0].predict_proba(MISSING, X_var=variance),
        models[1].predict_proba(MISSING, X_var=np.where(np.isnan(MISSING), ignored, variance)),
    ]
    assert_allclose(p[0], p[1], atol=1e-12)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.where(X > 1.0, np.inf, X), Y, "infinity"),
        (np.full_like(X, np.nan), Y, "All entries of X are missing"),
        (X, np.zeros(40), "one class"),
        (X[:1], [0], "one class"),
        (X[:0], Y[:0], "0 sample"),
        (X.astype(str), np.where(Y, np.nan, 0.0), "NaN"),
        (np.full((40, 3), "a"), Y, "could not convert"),
        (X, X[:, 0], "Unknown label type"),
    ],
)
def test_bad_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        EPDTCClassifier().fit(X, y)
