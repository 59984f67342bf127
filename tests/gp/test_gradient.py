"""Gradients of the function, and the relevance of the inputs that they give."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.feature_selection import RFE, SelectFromModel

from skvbgp.gp._process import Process
from skvbgp.kernels import RBF, Linear, Matern, Periodic, RationalQuadratic
from tests.derivatives import check_mean_gradient
from tests.functions import check_irrelevant, make_irrelevant
from tests.gp.cases import make_data, small

pytestmark = pytest.mark.usefixtures("quick_searches")

FIXED = {"learn_hyperparameters": False}
SMOOTH = [
    1.5 * RBF([1.0, 2.0]),
    0.7 * Matern([1.0, 2.0], nu=2.5) * RationalQuadratic([2.0, 1.0]),
    Linear([2.0, 1.0]) + Periodic([1.0, 2.0], [5.0, 4.0]) * RBF(2.0),
]


@pytest.mark.parametrize("dof", [5.0, np.inf])
@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_gradient_of_a_process_is_the_limit_of_differences(kernel, dof, rng):
    X = rng.standard_normal((12, 2))
    given = Process(kernel.bind(2), 0.05, dof).factorise(X, np.sin(2.0 * X[:, 0]))
    x, step = np.array([0.3, -0.2]), 1e-3
    mean, variance = (part[0] for part in given.gradient(x[None]))
    for i in range(2):
        ends = np.array([x + step * np.eye(2)[i], x - step * np.eye(2)[i]])
        difference = np.array([0.5, -0.5]) / step
        assert_allclose(mean[i], given.moments(ends).mean @ difference, rtol=1e-4)
        expected = difference @ given.covariance(ends) @ difference
        assert_allclose(variance[i], expected, rtol=1e-3)


@pytest.mark.parametrize("n_neighbors", ["auto", 12])
@pytest.mark.every_nth("n_neighbors", 2)
def test_mean_gradient_is_that_of_predict(n_neighbors):
    """In the user's units, of a mixture of kernels, one of them rough."""
    X, y = make_data(60)
    kernels = [Matern([2.0, 3.0], nu=0.5), RBF([2.0, 3.0])]
    model = small(kernels, n_neighbors=n_neighbors, max_iter=4).fit(X, 10.0 * y)
    places = X[:4] + 0.05
    check_mean_gradient(model, places)


@pytest.mark.parametrize("n_neighbors", ["auto", 12])
@pytest.mark.every_nth("n_neighbors", 2)
def test_places_have_the_gradients_that_each_has_alone(n_neighbors, monkeypatch):
    """However many are measured at a time."""
    X, y = make_data(40)
    model = small([Matern([2.0, 3.0]), RBF([2.0, 3.0])], n_neighbors=n_neighbors).fit(X, y)
    together = model.predict_gradient(X[:7] + 0.1)
    monkeypatch.setattr("skvbgp.gp._gradient._TILE_SIZE", 3 * X.size)
    tiles = model.predict_gradient(X[:7] + 0.1)
    alone = zip(*(model.predict_gradient(x[None] + 0.1) for x in X[:7]), strict=True)
    for found, also, expected in zip(together, tiles, map(np.concatenate, alone), strict=True):
        assert_allclose(found, expected, rtol=1e-7)
        assert_allclose(also, expected, rtol=1e-7)


@pytest.mark.parametrize("n_neighbors", ["auto", 30])
@pytest.mark.in_turn("n_neighbors")
def test_gradient_is_as_uncertain_as_it_is_wrong(n_neighbors):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (120, 1))
    y = 5.0 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(120)
    model = small(1.0 * RBF(), n_neighbors=n_neighbors, max_iter=20).fit(X, y)
    places = np.linspace(-2.8, 2.8, 60)[:, None]
    mean, std = model.predict_gradient(places)
    z = (5.0 * np.cos(places) - mean) / std
    assert 0.4 < np.sqrt(np.mean(z**2)) < 1.6
    assert np.max(np.abs(5.0 * np.cos(places) - mean)) < 2.0


def test_gradient_is_calibrated_as_the_function_is():
    X, y = make_data(40)
    posterior = small(RBF([2.0, 3.0]), n_neighbors=12).fit(X, y)._state.posterior
    wider = replace(posterior, mixture=replace(posterior.mixture, calibration=4.0))
    factor = 4.0 / posterior.mixture.calibration
    variances = [one.measure_gradient(X[:3])[1] for one in (posterior, wider)]
    assert_allclose(variances[1], factor * variances[0])


def test_rough_functions_have_no_gradient():
    X, y = make_data(30)
    model = small(1.0 * Matern([2.0, 3.0], nu=0.5), **FIXED).fit(X, y)
    mean, std = model.predict_gradient(X)
    assert np.isfinite(mean).all()
    assert np.isinf(std).all()


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 50])
def test_importance_is_the_share_in_the_variation(n_neighbors):
    X, y = make_irrelevant()
    model = small(RBF([1.0, 10.0, 0.1]), n_neighbors=n_neighbors, max_iter=12).fit(X, y)
    check_irrelevant(model)
    moved = clone(model).set_params(kernel=RBF([10.0, 1.0, 0.1])).fit(X * [10.0, 0.1, 1.0], y)
    assert_allclose(moved.feature_importances_, model.feature_importances_, atol=5e-3)


@pytest.mark.parametrize("n_neighbors", ["auto", 50])
@pytest.mark.thorough
def test_importance_is_as_uncertain_as_the_processes_differ(n_neighbors):
    """By the belief in them, which near rows have a say in; weights count as copies."""
    X, y = make_irrelevant(60)
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    fixed = RBF([1.0, 10.0, 0.1]), RBF([9.0, 10.0, 0.1]), RBF([1.0, 10.0, 0.3])
    model = small(list(fixed), n_neighbors=n_neighbors, **FIXED)
    state = model.fit(X, y, sample_weight=weight)._state
    mixture = replace(state.mixture, log_weights=np.array([0.0, -1.0, -3.0]))
    model._state = replace(state, mixture=mixture)
    posterior = model._state.posterior
    variance = model._state.frames.inputs.std**2
    belief, slopes, _ = posterior.measure_slopes(X)
    counts = weight[:, None] * belief
    shares = counts.sum(axis=0) / weight.sum()
    each = np.einsum("nc,ncd->cd", counts, slopes**2) * variance
    each /= each.sum(axis=1, keepdims=True)
    expected = np.sqrt(shares @ (each - model.feature_importances_) ** 2)
    assert_allclose(model.feature_importances_std_, expected, rtol=1e-8)
    assert model.feature_importances_std_.max() > 1e-3
    one = small(fixed[0], n_neighbors=n_neighbors, **FIXED).fit(X, y)
    assert_allclose(one.feature_importances_std_, 0.0, atol=1e-12)


@pytest.mark.thorough
def test_inputs_are_selected_by_importance():
    X, y = make_irrelevant(60)
    model = small(RBF([1.0, 10.0, 0.1]), max_iter=20)
    chosen = SelectFromModel(model, threshold=0.01).fit(X, y).get_support()
    assert_array_equal(chosen, [True, False, True])
    assert_array_equal(
        RFE(small(RBF(1.0, isotropic=True), max_iter=10), n_features_to_select=1)
        .fit(X / X.std(axis=0), y)
        .support_,
        [False, False, True],
    )


def test_importance_without_a_fit_or_without_variation():
    assert not hasattr(small(), "feature_importances_")
    X, y = make_data(20)
    model = small(**FIXED).fit(X, np.full(20, 3.0))
    assert_array_equal(model.feature_importances_, np.zeros(2))
