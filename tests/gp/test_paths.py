"""Draws of the function, and rows that are left out."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone

from skvbgp.gp._coregion import Coregion
from skvbgp.gp._prior_draws import PriorDraws, draw_process_features
from skvbgp.gp._process import start_process
from skvbgp.kernels import RBF, Linear, Matern, RationalQuadratic, White
from tests.functions import check_draws, check_gradients_of_draws, check_same_functions
from tests.gp.cases import make_data, small

pytestmark = pytest.mark.usefixtures("quick_searches")

FIXED = {"learn_hyperparameters": False}


KERNELS = [1.5 * RBF([2.0, 3.0]), Matern(2.0, nu=0.5) + Linear([3.0, 9.0])]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.every_nth("kernel", 2)
@pytest.mark.thorough
def test_draws_have_the_moments_of_predict(kernel, rng):
    """Jointly, near the rows and far away, and of derivatives; y_var counts as in predictions."""
    X, y = make_data(40)
    model = small(kernel, **FIXED).fit(X, 10.0 * y, y_var=rng.choice([0.0, 50.0], 40))
    places = np.vstack([X[:3] + 0.1, X[:2] + 3.0, [[9.0, 9.0]]])
    check_draws(model, places, 4000)


def test_prior_draws_where_they_are_wanted_are_those_of_everywhere(rng):
    """Sets of twenty functions, of which none, some and all are wanted at a row."""
    prior = PriorDraws.draw(start_process(RBF([1.0, 2.0]), gaussian=True), 2, 50, rng)
    X, wanted = rng.standard_normal((6, 2)), rng.uniform(size=(6, 50)) < 0.1
    wanted[:2, :20], wanted[1:4, 20:40], wanted[:, 40:] = False, False, True
    values = prior.evaluate(X, wanted)
    assert_allclose(values[wanted], prior(X)[wanted], rtol=1e-10, atol=1e-12)
    assert np.all(values[:2, :20] == 0.0) and np.all(values[1:4, 20:40] == 0.0)


@pytest.mark.parametrize("kernel", [RBF([1.0, 2.0]), RBF([1.0, 2.0]) * Linear([3.0, 9.0])])
def test_functions_of_several_outputs_are_features_times_weights(kernel, rng):
    coregion = Coregion.start(3)
    process = replace(start_process(kernel, gaussian=True), coregion=coregion)
    features = draw_process_features(process, 5, 7, np.random.RandomState(0))
    X = np.hstack([rng.standard_normal((6, 2)), np.eye(3)[[0, 1, 2, 2, 0, 1]]])
    phi = features(X)
    weights = rng.standard_normal((phi.shape[1], 4))
    assert_allclose(features.times(X, weights), phi @ weights, rtol=1e-10, atol=1e-12)


SMOOTH_AND_ROUGH = [
    RBF([1.0, 2.0]),
    Matern([1.0, 2.0], nu=0.5),
    Matern([1.0, 2.0], nu=1.5),
    Matern([1.0, 2.0], nu=2.5),
    RationalQuadratic([1.0, 2.0], alpha=0.5),
    Matern([1.0, 2.0], nu=1.5) * Matern([2.0, 4.0], nu=2.5),
    2.0 * RBF([2.0, 4.0]) * RationalQuadratic([2.0, 4.0]) + Linear([3.0, 9.0]),
]


def with_mixture(model, **changes):
    """The same fitted model with another mixture."""
    mixture = replace(model._state.mixture, **changes)
    model._state = replace(model._state, mixture=mixture)
    return model


def with_noise(model, noise):
    """The same fitted model with another variance of the noise."""
    processes = model._state.mixture.processes
    return with_mixture(model, processes=tuple(replace(one, noise=noise) for one in processes))


@pytest.mark.parametrize(
    ("n_neighbors", "noise"), [("auto", 1e-4), ("auto", 0.3), (15, 1e-4), (15, 0.3)]
)
@pytest.mark.parametrize("kernel", SMOOTH_AND_ROUGH, ids=repr)
@pytest.mark.in_turn("n_neighbors")
@pytest.mark.every_nth("kernel", 7)
def test_draws_have_the_moments_of_predict_whatever_the_kernel(kernel, n_neighbors, noise):
    """Whether waves that the rows determine decide, with much noise, or the others."""
    X, y = make_data(80)
    model = small(kernel, n_neighbors=n_neighbors, **FIXED).fit(X, y)
    places = np.vstack([X[:3] + 0.05, X[3:5] + 0.4, [[3.0, 6.0]]])
    check_draws(with_noise(model, noise), places, 1000)


@pytest.mark.thorough
def test_draws_of_a_calibrated_mixture_of_all_rows():
    X, y = make_data(60)
    kernels = [Matern([2.0, 3.0], nu=1.5), RBF([0.5, 1.0])]
    model = small(kernels, n_neighbors=100, **FIXED).fit(X, y)
    places = np.vstack([X[:3] + 0.2, X[:2] + 4.0])
    check_draws(with_mixture(model, calibration=3.0, log_weights=np.zeros(2)), places, 2000)


@pytest.mark.parametrize("n_neighbors", ["auto", 15])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.thorough
def test_draws_of_a_mixture_have_the_moments_of_predict(n_neighbors):
    """With its calibration, and an uncertain scale."""
    X, y = make_data(60)
    kernels = [Matern([2.0, 3.0], nu=0.5), RBF([2.0, 3.0])]
    model = small(kernels, n_neighbors=n_neighbors, max_iter=3).fit(X, y)
    places = np.vstack([X[:3] + 0.2, X[:2] + 4.0])
    mean, std = model.predict(places, return_std=True, include_noise=False)
    values = model.sample_function(1500)(places)
    assert_allclose((values.mean(axis=1) - mean) / std, 0.0, atol=0.08)
    assert_allclose(values.std(axis=1) / std, 1.0, atol=0.1)


@pytest.mark.parametrize("n_neighbors", ["auto", 15])
@pytest.mark.every_nth("n_neighbors", 2)
def test_a_function_is_the_same_wherever_it_is_evaluated(n_neighbors):
    X, y = make_data(40)
    check_same_functions(small(n_neighbors=n_neighbors).fit(X, y), X[:6] + 0.3, y[:6])


@pytest.mark.parametrize("n_neighbors", ["auto", 15])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.every_nth("mixed", 2)
def test_gradient_of_functions(n_neighbors, mixed):
    """Within the places that have the same neighbours, and believe in the same processes."""
    X, y = make_data(40)
    kernels = [Matern([2.0, 3.0], nu=2.5), RBF([2.0, 3.0])] if mixed else RBF([2.0, 3.0])
    options = {"n_neighbors": n_neighbors, "max_iter": 2}
    model = small(kernels, **(options if mixed else options | FIXED)).fit(X, 10.0 * y)
    check_gradients_of_draws(model, X[:3] + 0.2)


def test_a_function_goes_through_what_is_known():
    X, y = make_data(40)
    y = np.sin(X[:, 0])
    model = small(RBF([2.0, 3.0]), max_iter=30).fit(X, y)
    values = model.sample_function(20)(X)
    assert np.max(np.abs(values - y[:, None])) < 0.1


def test_functions_that_cannot_be_drawn_are_refused():
    X, y = make_data(30)
    model = small(RBF(2.0) + White(0.1), **FIXED).fit(X, y)
    with pytest.raises(ValueError, match="white noise is no function"):
        model.sample_function()
    model = small(**FIXED).fit(X, y)
    for bad in (0, 1.5, "many"):
        with pytest.raises(ValueError, match="n must be"):
            model.sample_function(bad)
    with pytest.raises(ValueError, match="features"):
        model.sample_function()(X[:, :1])


@pytest.mark.parametrize("output_covariance", [None, "learned"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.every_nth("n_outputs", 2)
def test_functions_take_and_refuse_what_predict_does(n_outputs, output_covariance):
    pd = pytest.importorskip("pandas")
    X, y = make_data(30)
    frame = pd.DataFrame(X, columns=["a", "b"])
    Y = np.column_stack([y, -y])[:, :n_outputs]
    model = small(**FIXED, output_covariance=output_covariance).fit(frame, Y)
    functions = pickle.loads(pickle.dumps(model.sample_function()))
    for call in (functions, functions.gradient):
        for bad in (frame[["b", "a"]], frame.rename(columns={"a": "c"})):
            with pytest.raises(ValueError, match="feature names"):
                call(bad)
        with pytest.raises(ValueError, match="missing entries"):
            call(frame.where(frame != frame.iloc[0]))
        assert len(call(frame)) == 30
    assert not hasattr(functions.reader, "_state") and hasattr(model, "_state")


def test_functions_take_sparse_rows():
    X, y = make_data(30)
    functions = small(**FIXED).fit(csr_array(X), y).sample_function(2)
    assert_array_equal(functions(csr_array(X)), functions(X))


# -- rows that are left out ----------------------------------------------------------------------


@pytest.mark.parametrize("n_neighbors", ["auto", 12])
def test_leaving_a_row_out_is_a_fit_without_it(n_neighbors):
    X, y = make_data(30)
    y = y - y.mean()
    model = small(1.5 * Matern([2.0, 3.0]), n_neighbors=n_neighbors, normalize_y=False, **FIXED)
    mean, std = model.fit(X, y).loo_predict()
    for i in (0, 7, 29):
        others = np.arange(30) != i
        without = clone(model).fit(X[others], y[others])
        expected, expected_std = without.predict(X[i : i + 1], return_std=True)
        unit = np.std(y) / np.std(y[others])  # of the kernel's and the noise's variance
        assert_allclose([mean[i], std[i]], [expected[0], unit * expected_std[0]], rtol=1e-7)


def test_rows_left_out_are_in_the_order_given(rng):
    """Equal rows share a prediction, those without weight have none, a stream goes on."""
    X, y = make_data(30)
    weight = np.ones(30)
    weight[[3, 20]] = 0.0, 2.0
    X[5], y[5] = X[4], y[4]
    y_var = np.where(np.arange(30) == 8, 4.0, 0.0)
    model = small(1.5 * Matern([2.0, 3.0]), **FIXED).fit(X, y, sample_weight=weight, y_var=y_var)
    mean, std = model.loo_predict()
    assert mean.shape == (30,)
    assert np.isnan([mean[3], std[3]]).all()
    assert mean[4] == mean[5]
    kept = np.arange(30) != 3
    assert np.corrcoef(mean[kept], y[kept])[0, 1] > 0.9
    assert std[8] > 2.0 > np.median(std[kept])
    more, y_more = make_data(10, seed=1)
    model.partial_fit(more, y_more, sample_weight=np.arange(10.0))
    mean, _ = model.loo_predict()
    assert mean.shape == (40,)
    assert_array_equal(np.flatnonzero(np.isnan(mean)), [3, 30])
    assert np.corrcoef(mean[31:], y_more[1:])[0, 1] > 0.9
    plain = small(1.5 * Matern([2.0, 3.0]), **FIXED).fit(more, y_more)
    plain.partial_fit(X, y, sample_weight=weight)
    mean, _ = plain.loo_predict()
    assert np.corrcoef(mean[:10], y_more)[0, 1] > 0.9
    assert np.isnan(mean[13])
