"""Outputs with the same hyperparameters, through the estimator."""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp.gp import _outputs
from skvbgp.gp._outputs import SharedPosterior
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.kernels import RBF, Matern, White
from tests.gp.cases import small_outputs
from tests.means import check_means
from tests.observer import Observer
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

FIXED = {"learn_hyperparameters": False}


@pytest.fixture(scope="module")
def data():
    """Three functions of one kind in other units, one of which was seen in fewer rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    Y = np.column_stack([np.sin(2.0 * X[:, 0]), np.cos(2.0 * X[:, 1]), np.sin(X @ [1.0, 2.0])])
    Y = (Y + 0.1 * rng.standard_normal(Y.shape)) * [1.0, 20.0, 3.0] + [0.0, 5.0, -1.0]
    seen = Y.copy()
    seen[::3, 2] = np.nan
    return X, seen, rng.uniform(-2.0, 2.0, (7, 2))


def make_model(kernel=None, **parameters):
    return small_outputs(kernel, **({"output_hyperparameters": "shared"} | parameters))


@pytest.fixture(scope="module")
def exact(data):
    return make_model().fit(*data[:2])


@pytest.fixture(scope="module")
def near(data):
    return make_model(n_neighbors=25).fit(*data[:2])


def draw_functions(seed, n, t, test=200):
    """Functions of one kernel at n rows and at others, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n + test, 4))
    L = np.linalg.cholesky(RBF([1.5, 1.5, 8.0, 8.0])(X) + 1e-8 * np.eye(n + test))
    Y = L @ rng.standard_normal((n + test, t)) + 0.1 * rng.standard_normal((n + test, t))
    return X[:n], Y[:n], X[n:], Y[n:]


@pytest.mark.thorough
def test_outputs_of_one_kind_help_each_other_to_their_hyperparameters():
    """With few rows of each, predictions are better than those of models of their own."""
    gains = []
    for seed in range(2):
        X, Y, places, truth = draw_functions(seed, 30, 5)
        own, shared = (
            make_model(RBF(np.ones(4)), output_hyperparameters=how, max_iter=20)
            .fit(X, Y)
            .log_predictive_density(places, truth)
            .mean()
            for how in ("own", "shared")
        )
        gains.append((shared - own) / 5)
    assert np.mean(gains) > 0.05


def test_a_unit_that_few_rows_mislead_about_is_learned():
    """The spread of a few targets is not that of the function: the scale of each is uncertain."""
    X, Y, *_ = draw_functions(0, 30, 5)
    model = make_model(RBF(np.ones(4))).fit(X, Y)
    assert all(1.0 < one.dof < 1e4 for one in model._state.outputs[0].mixture.processes)
    spreads = [output.posterior.conditionals[0].scale.spread for output in model._state.outputs]
    units = [output.frames.target.unit for output in model._state.outputs]
    assert np.ptp(np.log(spreads)) > 0.1
    assert np.ptp(np.log(np.sqrt(spreads) * units)) < np.ptp(np.log(units))


@pytest.mark.parametrize("n_neighbors", ["auto", 25])
@pytest.mark.every_nth("n_neighbors", 2)
def test_images_of_one_output_are_predicted_as_images_of_it(data, n_neighbors):
    """In other units, and with another sign, it is the same function with the same noise."""
    X, Y, T = data
    factor, shift = np.array([1.0, -40.0, 0.5]), np.array([0.0, 7.0, 3.0])
    model = make_model(n_neighbors=n_neighbors).fit(X, Y[:, :1] * factor + shift)
    mean, std = model.predict(T, return_std=True)
    assert_allclose((mean - shift) / factor, mean[:, :1] * np.ones(3), rtol=1e-6, atol=1e-8)
    assert_allclose(std / np.abs(factor), std[:, :1] * np.ones(3), rtol=1e-6)
    assert_allclose(model.noise_variance_ / factor**2, model.noise_variance_[0] * np.ones(3))
    relevance = model._state.outputs[
        0
    ].posterior.relevance  # what three copies of it say is no more certain
    assert_allclose(model.feature_importances_, relevance.mean, rtol=1e-6)
    assert_allclose(model.feature_importances_std_, relevance.std, rtol=1e-6, atol=1e-10)


def test_the_order_of_the_outputs_does_not_matter(data, exact):
    X, Y, T = data
    turned = make_model().fit(X, Y[:, ::-1])
    mean, std = exact.predict(T, return_std=True)
    assert np.all(np.abs(turned.predict(T)[:, ::-1] - mean) < 0.05 * std)


def test_predictions_are_those_of_the_dense_model(data, exact):
    """Of every output given its own rows, with the processes that all share."""
    X, Y, T = data
    mean, std = exact.predict(T, return_std=True, include_noise=False)
    for j, output in enumerate(exact._state.outputs):
        seen = ~np.isnan(Y[:, j])
        coordinates, target = output.frames.coordinates, output.frames.target
        rows, places = coordinates.scaled(X[seen]), coordinates.scaled(T)
        y, mixture = target.scaled(Y[seen, j]), output.mixture
        assert mixture.processes == exact._state.outputs[0].mixture.processes
        for i, x in enumerate(places):
            each = [
                oracle.predict_student(
                    one.kernel(rows),
                    one.kernel(rows, x[None])[:, 0],
                    one.kernel.diag(x[None])[0],
                    y,
                    one.noise,
                    one.dof,
                )
                for one in mixture.processes
            ]
            means, variances, _ = np.array(each).T
            expected = oracle.mix(mixture.log_weights, 0.0, np.zeros(len(each)), means, variances)
            assert_allclose(mean[i, j], target.original(expected[0]), rtol=1e-5, atol=1e-4)
            assert_allclose(std[i, j] ** 2, expected[1] * target.unit**2, rtol=1e-4)


def test_what_is_learned_is_one_model(data, exact):
    assert len(exact.kernels_) == len(exact.kernel_posterior_) == 1
    units = np.nanstd(data[1], axis=0)
    ratio = exact.noise_variance_ / units**2
    assert_allclose(ratio, ratio[0])
    assert np.isscalar(exact.log_predictive_density_)
    assert exact.n_neighbors_ == 60
    assert exact.n_samples_seen_ == 60
    assert exact.n_inducing_ == 0
    assert exact.output_covariance_.shape == (3, 3)
    assert_array_equal(exact.output_covariance_ > 0.0, np.eye(3, dtype=bool))
    assert_allclose(exact.feature_importances_.sum(), 1.0)
    assert "Every output" in exact.summary()


def test_density_of_rows_left_out_is_in_units_of_each(data, exact):
    """Up to the shape of the mixture, the normal density of every value given the others."""
    Y = data[1]
    mean, std = exact.loo_predict()
    assert_array_equal(np.isnan(mean), np.isnan(Y))
    density = -0.5 * (np.log(2.0 * np.pi * std**2) + ((Y - mean) / std) ** 2)
    assert_allclose(exact.log_predictive_density_, np.nanmean(density), rtol=1e-6)


@pytest.mark.parametrize("which", ["exact", "near"])
@pytest.mark.every_nth("which", 2)
def test_outputs_of_the_same_rows_are_predicted_as_without_their_twin(data, which, request):
    T, model = data[2], request.getfixturevalue(which)
    first, second, third = model._state.outputs
    assert third.twin is None
    assert (second.twin is not None) == (which == "exact")
    for output in (first, second, third):
        alone = replace(output, twin=None).posterior
        assert type(alone) is NeighbourPosterior
        for include_noise in (False, True):
            expected = alone.moments(T, include_noise)
            assert_allclose(output.posterior.moments(T, include_noise), expected, rtol=1e-12)
        check_means(output.posterior, T)
    if which == "exact":
        pairs = zip(first.posterior.conditionals, second.posterior.conditionals, strict=True)
        assert all(one.L_inv is other.L_inv for one, other in pairs)


def test_what_processes_say_of_all_outputs_is_never_there_for_all_rows(data, monkeypatch):
    X, Y, T = data
    posterior = make_model(**FIXED).fit(X, Y)._posterior()
    expected, mean = posterior.moments(T, True), posterior.predict_mean(T, True)
    sizes, measure = [], SharedPosterior._measure
    monkeypatch.setattr(_outputs, "_TILE_ROWS", 3)
    monkeypatch.setattr(
        SharedPosterior,
        "_measure",
        lambda self, X, **k: sizes.append(len(X)) or measure(self, X, **k),
    )
    assert_allclose(posterior.moments(T, True), expected, rtol=1e-12)
    assert_allclose(posterior.predict_mean(T, True), mean, rtol=1e-12)
    assert max(sizes) <= 3 and sum(sizes) == 2 * len(T)


@pytest.mark.parametrize("n_neighbors", ["auto", 25])
@pytest.mark.every_nth("n_neighbors", 2)
def test_outputs_are_predicted_together_as_each_alone(data, n_neighbors):
    """Whichever of them were observed in the same rows, and whatever is missing of a place."""
    X, Y, T = data
    model = make_model(n_neighbors=n_neighbors, learn_hyperparameters=False).fit(X, Y[:, [0, 2, 1]])
    outputs = model._state.outputs
    assert [one.twin is not None for one in outputs] == [False, False, n_neighbors == "auto"]
    alone = [replace(output, twin=None).posterior for output in outputs]
    gaps = np.where(np.arange(14).reshape(7, 2) == 5, np.nan, T)
    for places in (T, gaps):
        for include_noise in (False, True):
            found = model.predict(places, True, include_noise=include_noise)
            expected = [one.moments(places, include_noise) for one in alone]
            assert_allclose([found[0], found[1] ** 2], np.moveaxis(expected, 0, -1), rtol=1e-10)
        check_means(model._posterior(), places)
        quantiles = [one.distribution(places, True).quantile(0.2) for one in alone]
        found = model.predict_quantiles(places, 0.2)
        assert_allclose(found, np.transpose(quantiles), rtol=1e-9)


@pytest.mark.parametrize("which", ["exact", "near"])
@pytest.mark.thorough
def test_methods_agree(data, which, request):
    T, model = data[2], request.getfixturevalue(which)
    mean, std = model.predict(T, return_std=True)
    mean_too, covariance = model.predict(T, return_cov=True)
    assert_allclose(mean_too, mean, rtol=1e-8)
    assert_allclose(np.einsum("iij->ij", covariance), std**2, rtol=1e-8)
    assert model.sample_y(T, 2).shape == (7, 3, 2)
    functions = model.sample_function(2)
    assert functions(T).shape == (7, 3, 2)
    slopes = functions.gradient(T)[:, :, 0]
    step = 1e-5 * np.array([1.0, 0.0])
    numerical = (functions(T + step) - functions(T - step)) / 2e-5
    assert_allclose(slopes, numerical, rtol=1e-4, atol=1e-4)
    assert model.predict_gradient(T)[0].shape == (7, 3, 2)
    assert model.predict_quantiles(T, [0.1, 0.9]).shape == (7, 3, 2)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict(T), mean)
    one, again = (clone(model).fit(*data[:2]) for _ in range(2))
    assert_array_equal(again.predict(T), one.predict(T))


@pytest.mark.thorough
def test_search_over_kernels_is_shared_and_where_it_ended_a_warm_start_begins(data):
    X, Y, T = data[0][:25], data[1][:25], data[2]
    model = make_model("auto", max_iter=1, warm_start=True).fit(X, Y)
    assert_allclose(model.kernel_posterior_.sum(), 1.0)
    names = [name for name, _ in model.kernels_]
    model.fit(X, Y)
    assert {name for name, _ in model.kernels_} <= set(names)
    assert model.predict(T).shape == (7, 3)
    observed, y = model._prepare(X, Y, reset=True, sample_weight=None, y_var=None)
    starts = model._full_learner().start(observed, y, np.random.RandomState(0), model._state)
    learned = model._state.outputs[0].kernels
    for start in starts:
        assert all(process.kernel in learned for _, process in start.candidates)


@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_weights_are_repetitions(data, n_neighbors):
    X, Y, T = data
    weight = np.arange(60) % 3
    make = partial(make_model, n_neighbors=n_neighbors, max_iter=2)
    model = make().fit(X, Y, sample_weight=weight, y_var=0.01)
    rows = np.repeat(np.arange(60), weight)
    repeated = make().fit(X[rows], Y[rows], y_var=0.01)
    assert_allclose(repeated.predict(T), model.predict(T), rtol=1e-6)
    assert_allclose(repeated.log_predictive_density_, model.log_predictive_density_, rtol=1e-6)
    alone = make().fit(X, Y[:, :2], sample_weight=weight)
    twins = [output.twin for output in alone._state.outputs]
    assert (twins[1] is not None) == (n_neighbors == "auto")


def test_known_noise_is_in_units_of_each(data):
    """The values of three rows are worth nothing: it is a fit without them."""
    X, Y, T = data
    useless = np.isin(np.arange(60), [3, 4, 5])
    y_var = np.where(useless[:, None], 1e10, 0.0) * np.array([1.0, 400.0, 9.0])
    model = make_model(normalize_y=False, **FIXED).fit(X, Y, y_var=y_var)
    without = make_model(normalize_y=False, **FIXED).fit(X[~useless], Y[~useless])
    assert_allclose(model.predict(T), without.predict(T), rtol=1e-5, atol=1e-5)
    learned = make_model().fit(X, Y[:, :2], y_var=0.04 * np.array([[1.0, 400.0]] * 60))
    noise = learned.noise_variance_ / np.std(Y[:, :2], axis=0) ** 2
    assert_allclose(noise[0], noise[1])
    uneven = make_model(**FIXED).fit(X, Y[:, :2], y_var=np.array([[1.0, 4.0]] * 60))
    assert uneven._state.outputs[1].twin is None


@pytest.mark.parametrize("learn_hyperparameters", [False, True])
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_stream_ends_where_a_fit_does(data, learn_hyperparameters):
    X, Y, T = data
    y = Y.copy()
    y[24:36, 0] = np.nan  # chunks without one of the outputs
    stream = make_model(learn_hyperparameters=learn_hyperparameters)
    for chunk in np.split(np.arange(60), [8, 9, 24, 36, 58] if not learn_hyperparameters else [30]):
        stream.partial_fit(X[chunk], y[chunk])
    whole = make_model(learn_hyperparameters=learn_hyperparameters).fit(X, y)
    assert_allclose(stream.predict(T), whole.predict(T), rtol=1e-6, atol=1e-8)
    assert_allclose(stream.loo_predict()[0], whole.loo_predict()[0], rtol=1e-6, atol=1e-8)
    assert stream.n_samples_seen_ == 60


def test_units_of_inputs_are_those_of_all_values(data):
    """Learned or not, of whichever output they are, and with a stream as with a fit."""
    X, Y, T = data
    X = X * [1.0, 30.0]
    y = Y.copy()
    y[X[:, 0] > 0.0, 0] = np.nan  # one of the outputs was seen at one side only
    observed = np.concatenate([X[~np.isnan(column)] for column in y.T])
    for settings in (FIXED, {}):
        model = make_model(max_iter=1, **settings).fit(X, y)
        frames = [output.frames for output in model._state.outputs]
        for frame in frames:
            assert_allclose(frame.inputs.std, observed.std(axis=0))
            assert_array_equal(frame.coordinates.scale, frames[0].coordinates.scale)
    whole, stream = make_model("auto", **FIXED).fit(X, y), make_model("auto", **FIXED)
    stream.partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    assert_allclose(stream.predict(T), whole.predict(T), rtol=1e-8)


def test_new_rows_are_known_at_once_and_hyperparameters_stay(data):
    X, Y, T = data
    model = make_model().fit(X[:50], Y[:50])
    kernel, before = model.kernels_[0][1], model.predict(T)
    model.partial_fit(X[50:], Y[50:])
    assert model.kernels_[0][1] == kernel
    assert np.all(np.any(model.predict(T) != before, axis=0))
    twins = [output.twin for output in model._state.outputs]
    assert twins[1] is model._state.outputs[0]
    stays = model.predict(T)
    model.partial_fit(X[:2] + 0.1, np.array([[1.0, np.nan, np.nan]] * 2))
    assert np.all(np.any(model.predict(T) != stays, axis=0) == [True, False, False])
    assert all(output.twin is None for output in model._state.outputs)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(X[:2], np.full((2, 3), np.inf))
    assert model.n_samples_seen_ == 62


@pytest.mark.parametrize("forgetting", [0.98, 20])
@pytest.mark.every_nth("forgetting", 2)
def test_streams_forget(data, forgetting):
    X, Y, T = data
    stream = make_model(forgetting=forgetting, max_iter=2)
    for i in range(0, 60, 15):
        stream.partial_fit(X[i : i + 15], Y[i : i + 15])
    assert stream.predict(T).shape == (7, 3)
    assert stream._state.outputs[1].twin is not None


def test_outputs_of_few_rows_and_of_many(data):
    """Where one of them has more rows than neighbours, all have their processes."""
    X, Y, T = data
    y = Y.copy()
    y[15:, 0] = np.nan
    model = make_model(n_neighbors=20).fit(X, y)
    assert model.n_neighbors_ == 20
    mean, std = model.predict(T, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0.0)
    grown = make_model(n_neighbors=20, max_iter=4).fit(X[:20], Y[:20])
    assert len(grown._state.outputs[0].mixture.processes) > 1  # draws
    grown.partial_fit(X[20:22], Y[20:22])
    assert len(grown._state.outputs[0].mixture.processes) == 1


@pytest.mark.thorough
def test_missing_entries_and_categories(data):
    """A gap is one of all outputs, whichever of them was seen in its row."""
    X, Y, T = data
    gaps, y = X.copy(), Y.copy()
    gaps[:4, 1] = np.nan
    y[:4, 0] = np.nan  # this output has no row with a gap
    model = make_model(max_iter=3).fit(gaps, y)
    assert all(len(one.slopes) == 1 for one in model._state.outputs[0].mixture.processes)
    hidden = np.array([[0.0, 0.0], [0.0, np.nan]])
    std = model.predict(hidden, return_std=True)[1]
    assert np.all(std[1] > std[0])
    assert model.partial_fit(gaps[:3], Y[:3]).predict(gaps).shape == (60, 3)
    typed = np.column_stack([X, np.arange(60) % 3])
    model = make_model(Matern(nu=2.5), categorical_features=[2], max_iter=2)
    model.fit(typed, Y + 3.0 * (typed[:, 2:] == 1.0))
    assert model.feature_importances_.shape == (3,)
    assert np.all(model.feature_importances_ > 0.0)


@pytest.mark.thorough
def test_states_on_the_way_are_complete(data):
    X, Y, T = data
    kernels = [("rough", Matern(nu=0.5)), ("smooth", RBF())]
    for n_neighbors in ("auto", 25):
        model = make_model(kernels, max_iter=1, n_neighbors=n_neighbors)
        observed, y = model._prepare(X, Y, reset=True, sample_weight=None, y_var=None)
        learner, states = model._full_learner(), []
        start = learner.start(observed, y, np.random.RandomState(0), None)
        learner.train(start, observed, y, lambda make, s=states: bool(s.append(make())))
        assert 2 <= len(states) <= learner.max_passes(y)
        for state in states:
            assert learner.attributes(state)["noise_variance_"].shape == (3,)
            assert learner.posterior(state).moments(T, True)[0].shape == (7, 3)


def test_a_callback_may_stop_after_the_first_kernel(data):
    class Stop(Observer):
        def on_fit_task_end(self, estimator, context):
            return True

    X, Y, T = data
    model = make_model([RBF(), Matern()]).set_callbacks(Stop()).fit(X, Y)
    assert model.n_iter_ == 1
    assert model.predict(T).shape == (7, 3)


def test_of_one_output_it_changes_nothing(data):
    X, Y, T = data
    plain = make_model(output_hyperparameters="own").fit(X, Y[:, 0])
    for y in (Y[:, 0], Y[:, :1]):
        model = make_model().fit(X, y)
        assert_array_equal(model.predict(T), plain.predict(T))
    model.set_params(output_hyperparameters="own").partial_fit(X[:1] + 0.1, [0.0])
    assert model.n_samples_seen_ == 61


def test_unfit_calls_are_refused(data):
    X, Y, T = data
    with pytest.raises(ValueError, match="output_hyperparameters"):
        make_model(output_hyperparameters="common").fit(X, Y)
    with pytest.raises(ValueError, match='output_hyperparameters="shared" is for'):
        make_model(output_covariance="learned").fit(X, Y)
    with pytest.raises(ValueError, match="Output 1 of y has no observed value"):
        make_model().fit(X, np.column_stack([Y[:, 0], np.full(60, np.nan)]))
    with pytest.raises(ValueError, match="without White"):
        make_model(RBF() + White(0.1)).fit(X, Y, sample_weight=np.full(60, 2.0))
    model = make_model(**FIXED, warm_start=True).fit(X, Y)
    mean = model.predict(T)
    model.set_params(output_hyperparameters="own")
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="output_hyperparameters has changed"):
            method(X, Y)
    assert_array_equal(model.predict(T), mean)
