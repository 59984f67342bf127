"""Weights of rows: a weight is so many copies, zero leaves out, and fractions count as such.

Bounds of fractions are in ``test_known_noise``.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp import VBKSRegressor
from skvbgp.base import Targets
from skvbgp.kernel_selection import series_kernels
from skvbgp.kernel_selection._bound import (
    collapsed_bound,
    log_evidence,
    parameters,
    total_statistics,
)
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernel_selection._series import _whiten_level
from skvbgp.kernel_selection._start import draw_sample
from skvbgp.kernel_selection._targets import make_targets
from skvbgp.kernels._pairs import Pairs
from tests.kernel_selection.cases import INSTANCES, KERNELS, make_series, small
from tests.kernel_selection.problems import kernel_at, make_rows
from tests.kernel_selection.test_bound import matrices
from tests.oracles import kernel_selection as oracle
from tests.weights import (
    assert_same,
    check_streams_of_copies,
    draw_weights,
)

TIMES = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 4.0, 2.0, 1.0, 1.0, 2.0, 1.0, 3.0])
COPIES = np.repeat(np.arange(12), TIMES.astype(int))
NAMES = ["SE", "PER * (SE + LIN)"]

kernels = pytest.mark.parametrize("name", NAMES)


# -- the parts of the model --------------------------------------------------------------------


@kernels
def test_evidence_is_that_of_literal_copies(name):
    kernel, x = kernel_at(name)
    X, y, _ = make_rows()
    value, gradient = log_evidence(kernel, x, Pairs(X), Targets(y, TIMES))
    fitted, noise = parameters(kernel, x)
    expected = oracle.log_evidence(fitted(X[COPIES]), noise, y[COPIES])
    assert_allclose(value, expected, rtol=1e-10)
    assert_allclose(
        gradient, log_evidence(kernel, x, Pairs(X[COPIES]), Targets(y[COPIES]))[1], rtol=1e-8
    )


@kernels
def test_bound_is_that_of_literal_copies(name):
    kernel, x = kernel_at(name)
    X, y, Z = make_rows()
    value, gradient = collapsed_bound(kernel, x[None], Z, X, Targets(y, TIMES))
    expected = oracle.titsias_bound(*matrices(kernel, x, X[COPIES], Z), y[COPIES])
    assert_allclose(value, expected, rtol=1e-9)
    repeated = collapsed_bound(kernel, x[None], Z, X[COPIES], Targets(y[COPIES]))
    assert_allclose(gradient, repeated[1], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("i", range(4))
def test_targets_and_their_jacobian_are_those_of_literal_copies(i):
    y = make_rows()[1]
    once, repeated = Targets(y, TIMES), Targets(y[COPIES])
    target, expected = (
        make_targets(["identity", "log"], targets, normalize=True)[i]
        for targets in (once, repeated)
    )
    for name, value in vars(expected).items():
        assert_allclose(getattr(target, name), value, rtol=1e-12, atol=1e-15)
    assert_allclose(target.log_jacobian(once), expected.log_jacobian(repeated), rtol=1e-12)
    half = Targets(y, np.full(12, 0.5))
    assert_allclose(target.log_jacobian(half), 0.5 * target.log_jacobian(Targets(y)))


def test_periods_are_those_of_literal_copies():
    X, y, _ = make_rows()
    scales, copied = (
        DataScales.of(X[rows], targets)
        for rows, targets in ((slice(None), Targets(y, TIMES)), (COPIES, Targets(y[COPIES])))
    )
    assert_allclose(scales.periods, copied.periods, rtol=1e-10)
    assert_allclose(scales.extent, copied.extent)
    assert_allclose(scales.spacing, copied.spacing)


def test_an_outlier_of_little_weight_hides_no_period():
    X, y = make_series(80)
    weight = np.ones(80)
    y[[10, 30, 60]], weight[[10, 30, 60]] = [200.0, -300.0, 250.0], 1e-6
    unweighted, weighted = (DataScales.of(X, Targets(y, w)) for w in (None, weight))
    assert abs(unweighted.periods[0, 0] - 1.5) > 0.1
    assert_allclose(weighted.periods[0, 0], 1.5, rtol=0.05)
    assert weighted.noise < 1e-3 * unweighted.noise


def test_the_level_of_a_series_is_that_of_literal_copies(rng):
    z, y = np.arange(12.0), rng.standard_normal(12)
    waves = rng.standard_normal((12, 2))
    products = []
    for rows, weight in ((slice(None), TIMES), (COPIES, np.ones(len(COPIES)))):
        L, whitened = _whiten_level(z[rows], y[rows], weight)
        F = solve_triangular(L, waves[rows], lower=True)
        products.append((F.T @ F, F.T @ whitened, whitened @ whitened))
    for one, other in zip(*products, strict=True):
        assert_allclose(one, other, rtol=1e-9)


def test_kernels_of_a_series_do_not_know_a_weight_from_copies(rng):
    t = np.arange(40.0)
    y = np.sin(2.0 * np.pi * t / 8.0) + 0.1 * rng.standard_normal(40)
    weight, copies = draw_weights(rng, 40)
    listed = series_kernels(t[:, None], y, weight)
    assert repr(listed) == repr(series_kernels(t[copies, None], y[copies]))
    assert repr(listed) != repr(series_kernels(t[:, None], y))
    with pytest.raises(ValueError, match="sample_weight"):
        series_kernels(t[:, None], y, -1.0)


# -- the estimator -----------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"kernels": KERNELS[:1]},
        {"transforms": ["identity", "log"]},
        {"hyperparameter_posterior": "gaussian", "kernels": KERNELS[:1]},
    ],
    ids=["one kernel", "log", "gaussian"],
)
def test_a_weight_is_so_many_copies(options, rng, monkeypatch, unmerged):
    """At fixed hyperparameters: those of a fit, after which rows are added to sums."""
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    # the belief is where a search ends: it is to end at the optimum
    monkeypatch.setattr("skvbgp.kernel_selection._belief._TOL", 0.0)
    monkeypatch.setattr("skvbgp.kernel_selection._belief._MAX_ITER", 5_000)
    X, y = make_series(70)
    y = np.exp(0.3 * y)
    weight, copies = draw_weights(rng, 30)
    weight, copies = np.append(np.full(4, 0.5), weight), np.append([0, 2], copies + 4)
    rows = np.append([36, 36, 37, 37], np.arange(40, 70))  # halves of two rows, twice
    models = [small(max_iter=2, **options).fit(X[:36], y[:36]) for _ in range(2)]
    models[0].partial_fit(X[rows], y[rows], sample_weight=weight)
    models[1].partial_fit(X[rows][copies], y[rows][copies])
    for parts in zip(*(model.estimators_ for model in models), strict=True):
        for one, other in zip(*(part.predict(X, True) for part in parts), strict=True):
            assert_allclose(one, other, rtol=1e-8)
    assert_allclose(*(model.local_lower_bounds_ for model in models), rtol=1e-8)
    assert_same(*models, X, rtol=1e-8 if len(models[0].kernels_) == 1 else 1e-6)


def test_rows_seen_are_those_with_all_copies(monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_series(70)
    model = small(max_iter=2, kernels=KERNELS[:1]).fit(X[:36], y[:36])
    assert model.partial_fit(X[[40, 40, 41]], y[[40, 40, 41]]).n_samples_seen_ == 39


def test_inducing_inputs_are_weighted_means(monkeypatch):
    """Of a training and of the search for starts, which both have the weighted mean as origin."""
    for name in ("_COARSE_INDUCING", "_SCREENING_INDUCING"):
        monkeypatch.setattr(f"skvbgp.kernel_selection._start.{name}", 1)
    X, y = make_series(60)
    targets, learner = Targets(y, np.linspace(0.01, 1.0, 60)), small(n_inducing=1)._learner()
    state = learner.start(X, targets, np.random.RandomState(0), None)
    sample = draw_sample(state, X, targets, every_row=True)
    for Z in (state.Z, sample.Z_coarse, sample.Z_climb):
        assert_allclose(Z, [[0.0]], atol=1e-10)


def test_statistics_of_chunks_of_weighted_rows(monkeypatch):
    kernel, x = kernel_at("SE")
    X, y, Z = make_rows()
    frame = Frame(np.zeros(1), np.ones(1), make_targets(["log"], Targets(y), normalize=True)[1])
    rows = [(X, Targets(y, TIMES)), (X[COPIES], Targets(y[COPIES]))]
    monkeypatch.setattr("skvbgp.kernel_selection._bound._CHUNK_ROWS", 5)
    totals = [total_statistics(*some, frame, Z, kernel, x[None]) for some in rows]
    for one, other in zip(*totals, strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"n_inducing": None},
        {"transforms": ["identity", "log"]},
        {"batch_size": 16, "max_iter": 2},
        {"hyperparameter_posterior": "gaussian", "kernels": KERNELS[:1]},
        {
            "kernels": "auto",
            "transforms": ["identity"],
            "n_inducing": None,
            "n_trained": 1,
            "top_k": 2,
        },
    ],
    ids=["exact", "log", "batches", "gaussian", "series"],
)
@pytest.mark.usefixtures("quick_searches")
def test_training_cannot_tell_a_weight_from_copies(options, rng):
    """Wherever rows are picked, and in streams: equal rows of all calls are one row."""
    X, y = make_series(40)
    model, bounds = small(**{"max_iter": 3, **options}), ("local_lower_bounds_", "lower_bound_")
    model, weight = check_streams_of_copies(model, [X, X + 5.0, X], y, rng, bounds)
    assert len(model._state.rows[0]) == 2 * np.count_nonzero(weight)


def test_weights_of_one_are_none_and_zero_leaves_out():
    X, y = make_series(60)
    weight = np.append(np.ones(50), np.zeros(10))
    model, expected = small().fit(X, y, sample_weight=weight), small().fit(X[:50], y[:50])
    assert_array_equal(model.predict(X), expected.predict(X))
    model.partial_fit(X[40:] + 20.0, y[40:], sample_weight=weight[40:])
    expected.partial_fit(X[40:50] + 20.0, y[40:50])
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model.lower_bound_ == expected.lower_bound_
    assert model.n_samples_seen_ == 60


def test_rows_of_little_weight_are_believed_less():
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0.0, 10.0, 120))[:, None]
    std = np.where(rng.uniform(size=120) < 0.5, 0.1, 2.0)
    y = np.sin(X[:, 0]) + std * rng.standard_normal(120)
    models = [small(n_inducing=None).fit(X, y, sample_weight=w) for w in (None, 0.01 / std**2)]
    errors = [np.sqrt(np.mean((m.predict(X) - np.sin(X[:, 0])) ** 2)) for m in models]
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("estimator", INSTANCES[1:], ids=["batches", "gaussian"])
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("estimator", 2)
@pytest.mark.thorough
def test_scikit_learns_check_of_other_settings(estimator):
    check_sample_weight_equivalence_on_dense_data("VBKSRegressor", clone(estimator))


@pytest.mark.slow
def test_scikit_learns_check_of_the_default_model():
    check_sample_weight_equivalence_on_dense_data("VBKSRegressor", VBKSRegressor(depth=1))
