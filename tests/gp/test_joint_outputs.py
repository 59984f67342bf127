"""Outputs that learn from each other, through the estimator."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBGPRegressor
from skvbgp.base import lengthen
from skvbgp.gp._coregion import Coregion
from skvbgp.kernels import RBF, Matern, White
from tests.gp.cases import small_outputs
from tests.joint_outputs import check_methods_agree
from tests.means import check_means
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

FIXED = {"learn_hyperparameters": False}


@pytest.fixture(scope="module")
def data():
    """Two outputs of one function, in other units, half of them missing; complete ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (70, 2))
    f = np.sin(2.0 * X[:, 0]) + np.cos(1.5 * X[:, 1])
    Y = np.column_stack([f, 10.0 - 20.0 * f + 3.0 * X[:, 0]])
    Y += [0.1, 2.0] * rng.standard_normal(Y.shape)
    return X, np.where(rng.random(Y.shape) < 0.5, np.nan, Y), Y


def make_model(kernel=None, **parameters):
    return small_outputs(kernel, **({"output_covariance": "learned"} | parameters))


@pytest.fixture(scope="module")
def exact(data):
    return make_model(max_iter=4).fit(*data[:2])


@pytest.fixture(scope="module")
def near(data):
    return make_model(n_neighbors=30).fit(*data[:2])


def log_density(model, X, Y):
    mean, std = model.predict(X, return_std=True)
    return -0.5 * (np.log(2.0 * np.pi * std**2) + ((Y - mean) / std) ** 2)


@pytest.mark.parametrize("n_neighbors", ["auto", 30])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.thorough
def test_outputs_that_learn_from_each_other_predict_better(data, n_neighbors):
    X, seen, Y = data
    missing = np.isnan(seen)
    gains = [
        log_density(
            make_model(output_covariance=how, n_neighbors=n_neighbors, max_iter=8).fit(X, seen),
            X,
            Y,
        )
        for how in ("learned", None)
    ]
    assert np.mean((gains[0] - gains[1])[missing]) > 0.1


def test_what_is_learned_is_in_the_units_of_y(data, exact):
    """The second function is about -20 times the first one."""
    covariance = exact.output_covariance_
    assert_allclose(covariance, covariance.T)
    std = np.sqrt(np.diagonal(covariance))
    assert 10.0 < std[1] / std[0] < 40.0
    assert covariance[0, 1] / std[0] / std[1] < -0.7
    assert exact.noise_variance_.shape == (2,)
    assert 0.05 < np.sqrt(exact.noise_variance_[0]) < 0.3
    assert 1.0 < np.sqrt(exact.noise_variance_[1]) < 6.0
    assert np.isscalar(exact.log_predictive_density_)
    assert exact.n_outputs_ == 2
    assert exact.n_samples_seen_ == 70
    assert len(exact.kernels_) == len(exact.kernel_posterior_) == 1
    assert exact.feature_importances_.shape == (2,)
    assert_allclose(exact.feature_importances_.sum(), 1.0)
    assert "Every output" in exact.summary()


def test_predictions_are_those_of_the_dense_model(data):
    """Of the units of y, with hyperparameters that have been learned."""
    X, seen, _ = data
    places = np.array([[0.3, -0.2], [1.0, 1.5], [-3.0, 2.5]])
    model = make_model(n_neighbors=1000).fit(X, seen)
    means, variances, own = [], [], []
    mixture, units = model._state.model.mixture, model._state.units
    every = np.vstack([X, places])
    outputs = np.tile([0, 1], len(every))
    y = np.vstack([(seen - units.mean) / units.unit, np.full((3, 2), np.nan)]).ravel()
    frame = model._state.model.frames.coordinates
    scaled = np.repeat((every - frame.offset[:2]) / frame.scale[:2], 2, axis=0)
    kept = ~np.isnan(y) | (np.arange(len(y)) >= 2 * len(X))
    weights = np.exp(mixture.log_weights)
    for process in mixture.processes:
        k = process.kernel(scaled[kept])
        noises = process.noise * process.coregion.factors
        _, mean, covariance = oracle.predict_outputs(
            k, process.coregion.B, outputs[kept], y[kept], noises
        )
        means.append(mean)
        variances.append(np.diagonal(covariance))
        own.append(noises[outputs[-6:]])
    mean = np.average(means, axis=0, weights=weights)
    variances += np.array(
        [oracle.spread_noise(one, mean, outputs[-6:], mixture.noises) for one in own]
    )
    second = np.average(variances + np.array(means) ** 2, axis=0, weights=weights)
    assert mixture.calibration == 1.0
    found, std = model.predict(places, return_std=True)
    assert_allclose(found, units.mean + units.unit * mean.reshape(3, 2), rtol=1e-5, atol=1e-4)
    assert_allclose(std**2, units.unit**2 * (second - mean**2).reshape(3, 2), rtol=1e-4)


@pytest.mark.parametrize("which", ["exact", "near"])
@pytest.mark.every_nth("which", 2)
def test_methods_agree(data, which, request):
    X, model = data[0], request.getfixturevalue(which)
    check_methods_agree(model, X[:5] + 0.1, 2, atol=0.2, rtol=0.1)
    check_means(model._state.posterior, X[:5] + 0.1)


@pytest.mark.parametrize("which", ["exact", "near"])
def test_gradient_is_that_of_the_prediction(data, which, request):
    X, model = data[0], request.getfixturevalue(which)
    places, step = X[:3] + 0.05, 1e-5
    slope, std = model.predict_gradient(places)
    assert slope.shape == std.shape == (3, 2, 2)
    for i in range(2):
        shift = step * np.eye(2)[i]
        numeric = (model.predict(places + shift) - model.predict(places - shift)) / (2.0 * step)
        assert_allclose(slope[..., i], numeric, rtol=1e-4, atol=1e-4)


def set_coregion(model, coregion):
    """Give the outputs a covariance that has not been learned."""
    state = model._state.model
    process = replace(state.mixture.processes[0], coregion=coregion)
    state = replace(state, mixture=replace(state.mixture, processes=(process,)))
    model._state = replace(model._state, model=state)


@pytest.mark.parametrize(("n_neighbors", "atol"), [("auto", 0.15), (20, 0.25)])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.thorough
def test_draws_have_the_moments_of_all_outputs_together(data, n_neighbors, atol):
    """Near the rows and far away, in the units of y; outputs have neighbours of their own."""
    model = make_model(n_neighbors=n_neighbors, **FIXED).fit(*data[:2])
    set_coregion(model, Coregion((0.2, -1.2, 0.1), (0.0, 1.0)))
    places = np.array([[0.0, 0.0], [3.5, -3.0]])
    mean, covariance = model._state.posterior.joint_outputs(places, False)
    std = np.sqrt(np.diagonal(covariance))
    assert_allclose(model.predict(places).ravel(), mean)
    assert_allclose(model.predict(places, True, include_noise=False)[1].ravel(), std)
    functions = model.sample_function(1200)(places)
    draws = model.sample_y(places, 1200, include_noise=False)
    for values in (functions, draws):
        assert values.shape == (2, 2, 1200)
        values = values.reshape(4, -1)
        assert_allclose((values.mean(axis=1) - mean) / std, 0.0, atol=0.1)
        found = np.cov(values) / np.outer(std, std)
        assert_allclose(found, covariance / np.outer(std, std), atol=atol)
    with pytest.raises(ValueError, match="X has 3 features, but VBGPRegressor is expecting 2"):
        model.sample_function()(np.ones((2, 3)))


def test_rows_left_out_are_in_the_order_given(data):
    X, seen, _ = data
    mean, std = make_model(**FIXED).fit(X, seen).loo_predict()
    assert_array_equal(np.isnan(mean), np.isnan(seen))
    i, j = np.argwhere(~np.isnan(seen))[7]
    model = make_model(**FIXED)
    y_var = np.zeros(seen.shape)
    y_var[i, j] = 1e10  # as if it had not been observed, in the same units
    without = model.fit(X, seen, y_var=y_var)
    expected = [part[0, j] for part in without.predict(X[i : i + 1], return_std=True)]
    mean, std = model.fit(X, seen).loo_predict()
    assert_allclose([mean[i, j], std[i, j]], expected, rtol=1e-5)


@pytest.mark.parametrize("forgetting", [1.0, 0.98, 40])
@pytest.mark.every_nth("forgetting", 3)
def test_stream_ends_where_a_fit_does(data, forgetting):
    """Chunks may be without one of the outputs, or without any value."""
    X, seen, _ = data
    seen = seen.copy()
    seen[20:30, 0] = np.nan
    seen[30:40] = np.nan
    stream = make_model(**FIXED, forgetting=forgetting)
    for i in range(0, 70, 10):
        stream.partial_fit(X[i : i + 10], seen[i : i + 10])
    weight = 0.98 ** np.arange(70)[::-1] if forgetting < 1.0 else np.ones(70)
    weight = np.where(np.arange(70) < 30, 0.0, weight) if forgetting > 1.0 else weight
    whole = make_model(**FIXED).fit(X, seen, sample_weight=weight)
    assert_allclose(stream.predict(X[:9]), whole.predict(X[:9]), rtol=1e-9)
    assert_array_equal(np.isnan(stream.loo_predict()[0]), np.isnan(seen) | (weight[:, None] == 0.0))
    assert stream.n_samples_seen_ == 70


def test_stream_learns_again(data):
    X, seen, _ = data
    stream, whole = make_model(max_iter=2), make_model(max_iter=2).fit(X, seen)
    for rows in (slice(0, 20), slice(20, 70)):
        stream.partial_fit(X[rows], seen[rows])
    assert_allclose(stream.predict(X), whole.predict(X), rtol=1e-6)
    new = X[:2] + 0.01
    before, old = stream.output_covariance_, stream.predict(new)
    y = np.array([[np.nan, 50.0], [np.nan, np.nan]])
    stream.partial_fit(new, y)  # too few to learn again
    assert_array_equal(stream.output_covariance_, before)
    assert stream.predict(new)[0, 1] > old[0, 1]
    assert stream.predict(new)[0, 0] < old[0, 0]  # of the other output, by the covariance
    assert stream.n_samples_seen_ == 72
    nothing = stream.predict(X)
    stream.partial_fit(new, np.full((2, 2), np.nan))
    assert_array_equal(stream.predict(X), nothing)
    assert stream.n_samples_seen_ == 74
    assert stream.loo_predict()[0].shape == (74, 2)


def test_weights_repeat_rows_and_known_noise_counts(data):
    X, seen, _ = data
    weight = np.where(np.arange(70) < 10, 2.0, 1.0)
    weighted = make_model(**FIXED).fit(X, seen, sample_weight=weight, y_var=[[0.01, 4.0]] * 70)
    twice = np.append(np.arange(70), np.arange(10))
    repeated = make_model(**FIXED).fit(X[twice], seen[twice], y_var=[[0.01, 4.0]] * 80)
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)
    plain = make_model(**FIXED).fit(X, seen, sample_weight=weight)
    assert np.all(weighted.loo_predict()[1][~np.isnan(seen)] > 0.0)
    assert np.abs(weighted.predict(X) - plain.predict(X)).max() > 1e-3


def test_an_output_without_noise_keeps_none_beside_a_noisy_one():
    """However far their noises are apart."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (40, 1))
    f = np.sin(2.0 * X[:, 0])
    Y = np.column_stack([f, f + 0.5 * rng.standard_normal(40)])
    noise = make_model(RBF(), max_iter=60).fit(X, Y).noise_variance_
    assert 0.1 < noise[1] < 0.5
    assert noise[0] < 1e-7 * noise[1]


@pytest.mark.thorough
def test_known_noise_is_taken_out_of_the_learned_one(data):
    """In the units of y, for each output."""
    X, seen, _ = data
    noisy = seen + np.random.default_rng(1).standard_normal(seen.shape) * [0.5, 0.0]
    blind = make_model(max_iter=8).fit(X, noisy)
    told = make_model(max_iter=8).fit(X, noisy, y_var=[[0.25, 0.0]] * 70)
    assert told.noise_variance_[0] < 0.4 * blind.noise_variance_[0]
    assert told.noise_variance_[1] > 0.5 * blind.noise_variance_[1]


def test_missing_inputs(data):
    X, seen = data[0][:40], data[1][:40]
    gaps = X.copy()
    gaps[::5, 1] = np.nan
    model = make_model(max_iter=2).fit(gaps, seen)
    std = model.predict(np.array([[0.0, 0.0], [0.0, np.nan]]), return_std=True)[1]
    assert np.all(std[1] > std[0])
    assert model.predict(gaps).shape == (40, 2)


def test_what_is_missing_does_not_depend_on_the_output(data):
    """An input has one value for all outputs, whichever of them were observed."""
    X, seen = data[0].copy(), data[1].copy()
    X[:, 1] += 0.5 * X[:, 0]
    seen[X[:, 0] > 0.5, 0] = np.nan
    X[::5, 1] = np.nan
    model = make_model(**FIXED).fit(X, seen)
    places = lengthen(np.array([[0.3, np.nan]]), 2)
    filled, variance = model._state.model.frames.gaps.fill(places)
    assert_array_equal(filled[0, :2], filled[1, :2])
    assert_array_equal(filled[:, 2:], np.eye(2))
    assert_array_equal(variance > 0.0, np.isnan(places))


def test_categories(data):
    X, Y = data[0][:40], data[2][:40]
    typed = np.column_stack([X, np.arange(40) % 3])
    model = make_model(Matern(nu=2.5), categorical_features=[2], max_iter=2)
    model.fit(typed, Y + 3.0 * (typed[:, 2:] == 1.0))
    assert model.feature_importances_.shape == (3,)
    assert np.all(model.feature_importances_ > 0.0)
    slope, _ = model.predict_gradient(typed[:2])
    assert slope.shape == (2, 2, 3)
    assert_array_equal(np.isnan(slope[0, 0]), [False, False, True])
    assert model.sample_function(2)(typed[:4]).shape == (4, 2, 2)


@pytest.mark.thorough
def test_search_over_kernels_is_shared(data):
    X, seen = data[0][:25], data[1][:25]
    model = VBGPRegressor(output_covariance="learned", max_iter=1, random_state=0).fit(X, seen)
    assert_allclose(model.kernel_posterior_.sum(), 1.0)
    assert all(isinstance(name, str) for name, _ in model.kernels_)
    warm = model.set_params(warm_start=True).fit(X, seen)
    assert warm.predict(X).shape == (25, 2)


def test_states_on_the_way_are_complete(data):
    """What callbacks see predicts, and has the public attributes."""
    X, seen = data[0][:30], data[1][:30]
    model = make_model([("rough", Matern(nu=0.5)), ("smooth", RBF())], max_iter=1)
    rows, y = model._prepare(X, seen, reset=True, sample_weight=None, y_var=None)
    learner, states = model._full_learner(), []
    start = learner.start(rows, y, np.random.RandomState(0), None)
    learner.train(start, rows, y, lambda make: bool(states.append(make())))
    assert 2 <= len(states) <= learner.max_passes(y)
    for state in states:
        assert learner.attributes(state)["noise_variance_"].shape == (2,)
        assert state.covariance.shape == (2, 2)
        assert learner.posterior(state).moments(X, True)[0].shape == (30, 2)


def test_of_one_output_it_changes_nothing(data):
    X, _, Y = data
    plain = make_model(output_covariance=None).fit(X, Y[:, 0])
    for y in (Y[:, 0], Y[:, :1]):
        model = make_model().fit(X, y)
        assert_array_equal(model.predict(X), plain.predict(X))
        assert_array_equal(model.output_covariance_, plain.output_covariance_)
        assert model.output_covariance_.shape == (1, 1)


def test_unfit_calls_are_refused(data):
    X, seen, _ = data
    with pytest.raises(ValueError, match="Output 1 of y has no observed value"):
        make_model().fit(X, np.column_stack([seen[:, 0], np.full(70, np.nan)]))
    with pytest.raises(ValueError, match="output_covariance"):
        make_model(output_covariance="full").fit(X, seen)
    with pytest.raises(ValueError, match="without White"):
        make_model(RBF() + White(0.1)).fit(X, seen, sample_weight=np.full(70, 2.0))
    model = make_model(**FIXED, warm_start=True).fit(X, seen)
    mean = model.predict(X)
    model.set_params(output_covariance=None)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="output_covariance has changed"):
            method(X, seen)
    assert_array_equal(model.predict(X), mean)
    seen = np.where(np.arange(70)[:, None] < 60, seen, np.nan)
    window = make_model(forgetting=10).fit(X, seen)
    mean = window.predict(X)
    for n, message in ((2, "not forgotten are missing"), (12, "Output 0 of y has no observed")):
        with pytest.raises(ValueError, match=message):
            window.partial_fit(X[:n], np.full((n, 2), np.nan))
    assert window.n_samples_seen_ == 70
    assert_array_equal(window.predict(X), mean)


def test_white_noise_in_the_kernel(data):
    X, seen, _ = data
    model = make_model(RBF([1.0, 1.0]) + White(0.01)).fit(X, seen, y_var=0.01)
    assert model.predict(X).shape == (70, 2)
    assert_array_equal(np.isnan(model.loo_predict()[0]), np.isnan(seen))
