"""Several outputs: each is a model of its own, of the rows in which it was observed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF, Linear
from tests.observer import Observer

pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    Y = np.column_stack([np.sin(X[:, 0]), 10.0 * np.cos(X[:, 1])])
    Y += 0.05 * rng.standard_normal(Y.shape)
    Y[::3, 1] = np.nan
    return X, Y, rng.standard_normal((7, 2))


def make_model(**parameters):
    """Hyperparameters that stay where they are, unless it is said otherwise."""
    settings = {"kernel": RBF(), "learn_hyperparameters": False, "random_state": 0}
    return VBGPRegressor(**(settings | parameters))


def fit_alone(data, j, **parameters):
    """The model of one output, fitted to what was observed of it."""
    X, Y, _ = data
    seen = ~np.isnan(Y[:, j])
    return make_model(**parameters).fit(X[seen], Y[seen, j])


@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_every_output_is_predicted_as_alone(data, n_neighbors):
    X, Y, T = data
    model = make_model(n_neighbors=n_neighbors).fit(X, Y)
    alone = [fit_alone(data, j, n_neighbors=n_neighbors) for j in range(2)]
    mean, std = model.predict(T, return_std=True)
    mean_too, cov = model.predict(T, return_cov=True)
    quantiles = model.predict_quantiles(T, [0.2, 0.7])
    slope, slope_std = model.predict_gradient(T)
    assert_array_equal(mean_too, mean)
    for j, one in enumerate(alone):
        assert_allclose((mean[:, j], std[:, j]), one.predict(T, return_std=True), rtol=1e-12)
        assert_allclose(cov[..., j], one.predict(T, return_cov=True)[1], rtol=1e-12, atol=1e-14)
        assert_allclose(quantiles[:, j], one.predict_quantiles(T, [0.2, 0.7]), rtol=1e-12)
        expected = one.predict_gradient(T)
        assert_allclose((slope[:, j], slope_std[:, j]), expected, rtol=1e-12, atol=1e-14)
    importances = np.mean([one.feature_importances_ for one in alone], axis=0)
    assert_allclose(model.feature_importances_, importances, rtol=1e-12)


def test_learned_attributes_have_one_entry_for_each_output(data):
    X, Y, T = data
    model = make_model(learn_hyperparameters=True).fit(X, Y)
    for j in range(2):
        one = fit_alone(data, j, learn_hyperparameters=True)
        assert_allclose(model.predict(T)[:, j], one.predict(T), rtol=1e-6)
        assert_allclose(model.noise_variance_[j], one.noise_variance_, rtol=1e-6)
    assert model.noise_variance_.shape == model.log_predictive_density_.shape == (2,)
    assert len(model.kernels_) == len(model.kernel_posterior_) == model.n_outputs_ == 2
    assert model.n_samples_seen_ == 60
    assert "Output 1" in model.summary()


def test_output_covariance_is_the_variance_of_each(data):
    """That of the kernel, in squared units of each output."""
    X, Y, _ = data
    model = make_model(kernel=[2.0 * RBF(), 4.0 * RBF()]).fit(X, Y)
    assert_allclose(model.output_covariance_, np.diag(3.0 * np.nanvar(Y, axis=0)), rtol=1e-12)
    one = make_model(kernel=Linear(), normalize_y=False).fit(X, Y[:, 0])
    average = np.mean(np.diag(one.kernels_[0][1](X - X.mean(0))))
    assert_allclose(one.output_covariance_, [[average * np.var(Y[:, 0])]])


@pytest.mark.parametrize("output_covariance", [None, "learned"])
def test_gradient_of_functions_of_all_outputs(data, output_covariance):
    X, Y, T = data
    functions = make_model(output_covariance=output_covariance).fit(X, Y).sample_function(3)
    slopes = functions.gradient(T)
    for j in range(2):
        step = 1e-5 * (np.arange(2) == j)
        numerical = (functions(T + step) - functions(T - step)) / 2e-5
        assert_allclose(slopes[:, :, j], numerical, rtol=1e-5, atol=1e-5)


def test_shapes_are_those_of_scikit_learn(data):
    X, Y, T = data
    model = make_model().fit(X, Y)
    assert model.sample_y(T, 3).shape == (7, 2, 3)
    functions = model.sample_function(4)
    assert functions(T).shape == (7, 2, 4)
    assert functions.gradient(T).shape == (7, 2, 2, 4)
    low, high = model.predict_interval(T)
    assert low.shape == high.shape == model.predict_quantiles(T, 0.5).shape == (7, 2)
    column = make_model().fit(X, Y[:, :1])
    assert column.predict(T).shape == (7,)
    assert column.n_outputs_ == 1


def test_draws_have_the_moments_of_every_output(data):
    X, Y, T = data
    model = make_model().fit(X, Y)
    mean, std = model.predict(T, return_std=True)
    draws = model.sample_y(T, 4000, random_state=1)
    assert_allclose(draws.mean(axis=2), mean, atol=0.1 * std.max())
    assert_allclose(draws.std(axis=2), std, rtol=0.1)


def test_density_is_that_of_what_was_observed(data):
    X, Y, T = data
    model = make_model().fit(X, Y)
    y = np.array([[0.3, np.nan]] * 3 + [[np.nan, 2.0]] * 3 + [[0.3, 2.0]])
    known = np.nan_to_num(y)
    first, second = (fit_alone(data, j).log_predictive_density(T, known[:, j]) for j in (0, 1))
    density = model.log_predictive_density(T, y)
    assert_allclose(density, [*first[:3], *second[3:6], first[6] + second[6]], rtol=1e-10)


def test_rows_left_out_are_in_the_order_given(data):
    X, Y, _ = data
    mean, std = make_model().fit(X, Y).loo_predict()
    seen = ~np.isnan(Y)
    for j in range(2):
        expected = fit_alone(data, j).loo_predict()
        assert_allclose((mean[seen[:, j], j], std[seen[:, j], j]), expected, rtol=1e-12)
    assert_array_equal(np.isnan(mean), ~seen)


def test_stream_ends_where_a_fit_does(data):
    X, Y, T = data
    stream = make_model()
    for i in range(0, 60, 12):
        rows = slice(i, i + 12)
        y = Y[rows].copy()
        if i == 24:
            y[:, 0] = np.nan  # a chunk without one of the outputs
        stream.partial_fit(X[rows], y)
    y = Y.copy()
    y[24:36, 0] = np.nan
    whole = make_model().fit(X, y)
    assert_allclose(stream.predict(T), whole.predict(T), rtol=1e-10)
    assert_allclose(stream.loo_predict()[0], whole.loo_predict()[0], rtol=1e-10)
    assert stream.n_samples_seen_ == 60


def test_stream_learns_again(data):
    X, Y, T = data
    stream = make_model(learn_hyperparameters=True)
    for i in range(0, 60, 30):
        stream.partial_fit(X[i : i + 30], Y[i : i + 30])
    whole = make_model(learn_hyperparameters=True).fit(X, Y)
    assert_allclose(stream.predict(T), whole.predict(T), rtol=1e-6)


def test_weights_and_known_noise_are_those_of_the_rows(data):
    X, Y, T = data
    weight = np.where(np.arange(60) < 5, 0.0, 1.0)
    y_var = np.column_stack([np.full(60, 0.2), np.full(60, 3.0)])
    model = make_model().fit(X, Y, sample_weight=weight, y_var=y_var)
    few = (X[5:], Y[5:], None)
    seen = ~np.isnan(Y[5:, 1])
    alone = make_model().fit(few[0][seen], few[1][seen, 1], y_var=3.0)
    assert_allclose(model.predict(T)[:, 1], alone.predict(T), rtol=1e-12)
    std = model.predict(T, return_std=True)[1]
    wide = model.predict(T, return_std=True, y_var=[[0.2, 3.0]] * 7)[1]
    assert_allclose(wide**2 - std**2, [[0.2, 3.0]] * 7, rtol=1e-10)
    diagonal = np.einsum("iij->ij", model.predict(T, return_cov=True, y_var=y_var[:7])[1])
    assert_allclose(diagonal, wide**2, rtol=1e-10)


def test_unfit_outputs_are_refused(data):
    X, Y, _ = data
    with pytest.raises(ValueError, match="Output 1 of y has no observed value"):
        make_model().fit(X, np.column_stack([Y[:, 0], np.full(60, np.nan)]))
    with pytest.raises(ValueError, match="infinity"):
        make_model().fit(X, np.where(np.isnan(Y), np.inf, Y))
    model = make_model().fit(X, Y)
    with pytest.raises(ValueError, match="y has 1 outputs, but there were 2"):
        model.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="y_var has 3 columns, but y has 2"):
        model.fit(X, Y, y_var=np.ones((60, 3)))
    assert model.predict(X).shape == (60, 2)


def test_a_callback_may_stop_before_the_last_output(data):
    """Those that are not reached keep what they start with."""

    class Stop(Observer):
        def on_fit_task_end(self, estimator, context):
            return True

    X, Y, T = data
    model = make_model(learn_hyperparameters=True).set_callbacks(Stop()).fit(X, Y)
    assert_allclose(model.predict(T)[:, 1], fit_alone(data, 1).predict(T), rtol=1e-12)
