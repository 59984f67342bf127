"""Outputs that learn from each other: the model against its dense twin, and the estimators."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor
from skvbgp._core.linalg import JITTER
from skvbgp.base import _joint_learner, lengthen
from skvbgp.kernels import RBF, Constant
from skvbgp.sgpr import _start
from skvbgp.sgpr._data import Coordinates
from skvbgp.sgpr._joint_outputs import correlate
from skvbgp.sgpr._noise import HyperPrior
from tests.joint_outputs import check_methods_agree
from tests.means import check_means
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import INDEPENDENT, joint, small, ways
from tests.sgpr.problems import check_gradient, small_problem, structure_of

T = 3
every = pytest.mark.parametrize("cls", INDEPENDENT)


@pytest.fixture(autouse=True)
def together(monkeypatch):
    """Whatever is better, all outputs learn from each other; `test_apart` has the other ones."""

    def compare(common, alone, *known):
        return np.zeros(len(alone), dtype=bool)

    monkeypatch.setattr(_joint_learner, "compare_alone", compare)


@pytest.fixture(scope="module")
def data():
    """Outputs of one function and other ones, in other units; the second falls where others rise.

    Half of the values are missing.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (90, 2))
    f = np.sin(2.0 * X[:, 0]) + np.cos(1.5 * X[:, 1])
    Y = np.column_stack([f, 10.0 - 20.0 * f, 0.5 * f + 0.3 * X[:, 0]])
    Y += [0.1, 6.0, 0.05] * rng.standard_normal(Y.shape)
    return X, np.where(rng.random(Y.shape) < 0.5, np.nan, Y), Y


def learned(cls, **parameters):
    return cls(output_covariance="learned", random_state=0, **parameters)


def density(model, X, Y):
    mean, std = model.predict(X, return_std=True)
    return -0.5 * (np.log(2.0 * np.pi * std**2) + ((Y - mean) / std) ** 2)


# --- the model --------------------------------------------------------------------------------


def outputs_problem(kind):
    """The small problem, whose rows are of two outputs with white noise of other variances."""
    problem = small_problem(kind)
    rng = np.random.default_rng(5)
    n, p, coordinates = len(problem.data), problem.parameters, problem.model.coordinates
    X = np.hstack([problem.data.X, np.eye(2)[np.arange(n) % 2]])
    coordinates = Coordinates(
        *(np.append(v, [one] * 2) for v, one in zip(coordinates.parts, (0.0, 1.0), strict=True))
    )
    kernel = Constant(0.5) * RBF((1.6, 0.6, 0.9, 1.3))
    structure = structure_of(kind, kernel, 0.7)
    prior = problem.model.hyperprior
    hyperprior = HyperPrior(
        np.insert(prior.mean, 2, [0.3, 0.4]), np.insert(prior.variance, 2, [1.0, 0.8])
    )
    parameters = replace(
        p,
        nu=np.append(p.nu, [0.7, 0.9]),
        xi=np.append(p.xi, [0.05, 0.1]),
        noise_variance=np.array([0.2, 0.5]),
        noise_theta=structure.theta,
        U=np.hstack([p.U, rng.uniform(0.0, 1.0, (4, 2))]),
    )
    model = replace(
        problem.model, coordinates=coordinates, hyperprior=hyperprior, structure=structure
    )
    data = replace(problem.data, X=X, coordinates=coordinates)
    return replace(problem, model=model, parameters=parameters, data=data)


@pytest.mark.parametrize("expectation", ["closed", "common", "by row"])
@pytest.mark.parametrize("kind", ["dtc", "fitc"])
@pytest.mark.every_nth("expectation", 2)
@pytest.mark.every_nth("kind", 2)
def test_gradient_of_the_bound(kind, expectation):
    problem = outputs_problem(kind)
    check_gradient(problem, expectation)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(problem.data))
    data = replace(problem.data, weight=weight, variance=0.1 * weight)
    check_gradient(replace(problem, data=data), expectation)


@pytest.mark.parametrize("kind", ["dtc", "fitc"])
def test_noise_of_a_row_is_that_of_its_output(kind):
    problem = outputs_problem(kind)
    noise = problem.model.noise(problem.parameters)
    one = problem.model.noise(replace(problem.parameters, noise_variance=0.2))
    more = np.where(problem.data.X[:, 3] > 0.0, 0.3, 0.0)
    for name in ("covariance", "marginal_variance", "far_variance"):
        found, plain = (getattr(of, name)(problem.data.X) for of in (noise, one))
        assert_allclose(found, plain + more, rtol=1e-12)


@every
@pytest.mark.every_nth("cls", 2)
def test_predictions_are_those_of_coregionalisation(cls, data, monkeypatch):
    """A dense twin by what the estimator publishes, with another correlation for each pair."""
    X, seen, _ = data
    monkeypatch.setattr(_start, "_OUTPUT_NU", np.array([0.3, 0.5, 0.8]))
    Z, new = X[:7] + 0.1, X[7:12] + 0.3
    fixed = {"learn_hyperparameters": False, "hyperparameter_variance": 1e-14}
    model = joint(cls, inducing_inputs=Z, length_scale=[0.8, 1.1], **fixed).fit(X, seen)
    mean, unit = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
    covariance = model.output_covariance_
    assert_allclose(np.sign(covariance[0]), [1.0, -1.0, 1.0])
    B = covariance / np.outer(unit, unit)
    nu = np.array([0.3, 0.5, 0.8])
    expected = np.exp(-0.5 * np.add.outer(nu**2, nu**2)) * np.outer([1, -1, 1], [1, -1, 1])
    np.fill_diagonal(expected, 1.0)
    assert_allclose(B / B[0, 0], expected, rtol=1e-10)
    rows, own = np.nonzero(~np.isnan(seen))
    variances = (model.noise_variance_ / unit**2)[own]
    if cls is VBFITCRegressor:
        variances = variances + residual(model.noise_kernel_, Z, X[rows], own)
    lam = model.inverse_length_scale_mean_

    def k(A, C):
        return oracles.se(A * lam, C * lam)

    y = ((seen - mean) / unit)[rows, own]
    outputs = np.tile(np.arange(T), len(new))
    f, cov = oracles.predict_joint_outputs(
        k, B, (X[rows], own), y, (Z, np.repeat(new, T, axis=0)), outputs, variances, JITTER
    )
    found, std = model.predict(new, return_std=True, include_noise=False)
    assert_allclose(found, mean + unit * f.reshape(-1, T), rtol=1e-8)
    assert_allclose(std, unit * np.sqrt(np.diagonal(cov)).reshape(-1, T), rtol=1e-8)
    noisy = model.predict(new, return_std=True)[1]
    own_noise = model.noise_variance_ + np.zeros((len(new), 1))
    if cls is VBFITCRegressor:
        more = residual(model.noise_kernel_, Z, np.repeat(new, T, axis=0), outputs)
        own_noise = own_noise + unit**2 * more.reshape(-1, T)
    assert_allclose(noisy**2 - std**2, own_noise, rtol=1e-8)


def residual(kernel, Z, X, outputs):
    """Variances of a process for each output at its rows, which places Z leave open of it."""
    every = lengthen(Z, T)
    inverse = np.linalg.inv(
        kernel(every) + JITTER * np.mean(kernel.diag(every)) * np.eye(len(every))
    )
    variances = []
    for x, j in zip(X, outputs, strict=True):
        row = np.append(x, np.eye(T)[j])[None]
        cross = kernel(row, every) * (every[:, -T + j] == 1.0)  # other outputs say nothing
        variances.append((kernel(row) - cross @ inverse @ cross.T).item())
    return np.array(variances)


# --- what is learned ----------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
def test_outputs_that_learn_from_each_other_predict_better(cls, data):
    X, seen, Y = data
    gain = density(learned(cls).fit(X, seen), X, Y) - density(
        cls(random_state=0).fit(X, seen), X, Y
    )
    assert np.mean(gain[np.isnan(seen)]) > 0.1


@pytest.mark.thorough
def test_what_is_learned_is_in_the_units_of_y(data):
    X, seen, _ = data
    model = learned(VBDTCRegressor).fit(X, seen)
    covariance = model.output_covariance_
    assert_allclose(covariance, covariance.T)
    std = np.sqrt(np.diagonal(covariance))
    assert 10.0 < std[1] / std[0] < 40.0
    assert np.all(covariance[1, [0, 2]] / std[1] / std[[0, 2]] < -0.7)
    assert covariance[0, 2] > 0.7 * std[0] * std[2]
    assert_allclose(np.sqrt(model.noise_variance_), [0.1, 6.0, 0.05], rtol=0.6)
    assert model.signal_std_mean_.shape == model.signal_std_var_.shape == (T,)
    assert_allclose(model.signal_std_mean_**2 + model.signal_std_var_, std**2)
    assert model.inverse_length_scale_mean_.shape == model.inverse_length_scale_var_.shape == (2,)
    assert model.inducing_inputs_.shape[1] == 2 + T
    assert model.n_samples_seen_ == 90
    importances = model.feature_importances_
    assert importances.shape == model.feature_importances_std_.shape == (2,)
    assert_allclose(importances.sum(), 1.0)


@pytest.mark.parametrize("slope", [pytest.param(1.0, marks=pytest.mark.thorough), -1.0])
def test_an_output_that_falls_is_turned_round(slope):
    """No row has both outputs."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, (120, 1))
    f = np.sin(2.0 * X[:, 0])
    Y = np.column_stack([f, slope * f]) + 0.05 * rng.standard_normal((120, 2))
    seen = Y.copy()
    seen[:60, 0] = seen[60:, 1] = np.nan
    model = learned(VBDTCRegressor).fit(X, seen)
    cov = model.output_covariance_
    assert slope * cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]) > 0.9
    assert np.sqrt(np.mean((model.predict(X) - Y)[np.isnan(seen)] ** 2)) < 0.1


def test_units_of_y_do_not_matter(data):
    X, seen, _ = data
    unit, origin = np.array([-1e-3, 5.0, 1e4]), np.array([3.0, -7.0, 1e5])
    a = joint(VBDTCRegressor).fit(X, seen)
    b = joint(VBDTCRegressor).fit(X, origin + unit * seen)
    for given in ({}, {"include_noise": False}):
        mean, std = a.predict(X, return_std=True, **given)
        mean_too, std_too = b.predict(X, return_std=True, **given)
        assert_allclose(mean_too, origin + unit * mean, rtol=1e-6)
        assert_allclose(std_too, np.abs(unit) * std, rtol=1e-6)
    assert_allclose(b.output_covariance_, a.output_covariance_ * np.outer(unit, unit), rtol=1e-6)
    n_seen = np.sum(~np.isnan(seen), axis=0)
    shift = float(n_seen @ np.log(np.abs(unit)))
    assert_allclose(b.lower_bound_, a.lower_bound_ - shift, rtol=1e-8)
    assert_allclose(np.add(b.lower_bounds_, shift), a.lower_bounds_, rtol=1e-8)


# --- what it says -------------------------------------------------------------------------------


@ways
@pytest.mark.every_nth("cls", 2)
def test_methods_agree(cls, solver, data):
    X, seen, _ = data
    model, places = joint(cls, solver).fit(X, seen), X[:5] + 0.1
    check_methods_agree(model, places, T, atol=0.3, rtol=0.15)
    check_means(model._posterior(), places)
    std = model.predict(places, return_std=True)[1]
    known = model.predict(places, return_std=True, y_var=[[0.1, 9.0, 0.0]] * 5)[1]
    assert_allclose(known**2 - std**2, [[0.1, 9.0, 0.0]] * 5, atol=1e-8)


@every
@pytest.mark.every_nth("cls", 2)
def test_draws_know_what_outputs_have_in_common(cls, data):
    X, seen, _ = data
    model, places = joint(cls).fit(X, seen), X[:3] + 0.2
    draws = model.sample_y(places, 4000, random_state=1, include_noise=False)
    assert draws.shape == (3, T, 4000)
    mean, std = model.predict(places, return_std=True, include_noise=False)
    assert_allclose(draws.mean(axis=2), mean, atol=6.0 * std.max() / np.sqrt(4000))
    assert_allclose(draws.std(axis=2), std, rtol=0.1)
    _, joint_cov = model._posterior().joint_outputs(places, False)
    expected = joint_cov[0, 1] / np.sqrt(joint_cov[0, 0] * joint_cov[1, 1])
    assert abs(expected) > 0.1
    assert_allclose(np.corrcoef(draws[0, 0], draws[0, 1])[0, 1], expected, atol=0.1)


@ways
@pytest.mark.every_nth("cls", 2)
def test_gradients_and_functions_are_those_of_the_prediction(cls, solver, data):
    X, seen, _ = data
    model, places = joint(cls, solver).fit(X, seen), X[:4] + 0.05
    slope, std = model.predict_gradient(places)
    assert slope.shape == std.shape == (4, T, 2)
    functions, step = model.sample_function(800, random_state=0), 1e-5
    values, slopes = functions(places), functions.gradient(places)
    assert values.shape == (4, T, 800)
    assert slopes.shape == (4, T, 2, 800)
    scale = np.nanstd(seen, axis=0)
    for i in range(2):
        shift = step * np.eye(2)[i]
        numeric = (model.predict(places + shift) - model.predict(places - shift)) / (2.0 * step)
        assert_allclose(slope[..., i] / scale, numeric / scale, atol=1e-4)
        numeric = (functions(places + shift) - functions(places - shift)) / (2.0 * step)
        assert_allclose(slopes[:, :, i] / scale[:, None], numeric / scale[:, None], atol=1e-3)
    mean, std = model.predict(places, return_std=True, include_noise=False)
    assert_allclose(values.mean(axis=2), mean, atol=6.0 * np.max(std / scale) * scale.max() / 28.0)
    assert_allclose(values.std(axis=2) / std, 1.0, atol=0.25)


@ways
@pytest.mark.every_nth("solver", 2)
def test_values_that_are_left_out(cls, solver, data):
    """Each from all others, also of its row: as by a fit in which it says next to nothing."""
    X, seen, _ = data
    model = joint(cls, solver, learn_hyperparameters=False).fit(X, seen)
    mean, std = model.loo_predict(X, seen)
    assert_array_equal(np.isnan(mean), np.isnan(seen))
    assert_array_equal(np.isnan(std), np.isnan(seen))
    for i, j in np.argwhere(~np.isnan(seen))[[10, 40]]:
        y_var = np.zeros_like(seen)
        y_var[i, j] = 1e12 * np.nanvar(seen[:, j])
        other = clone(model).fit(X, seen, y_var=y_var).predict(X[[i]], return_std=True)
        assert_allclose([mean[i, j], std[i, j]], [other[0][0, j], other[1][0, j]], rtol=1e-6)
    if solver == "exact":  # which keeps its rows
        with pytest.raises(ValueError, match="on all of these rows"):
            model.loo_predict(X, seen + 0.1)


# --- rows, streams, weights ---------------------------------------------------------------------


def predictions(model, X):
    mean, std = model.predict(X, return_std=True)
    return np.column_stack([mean, std]) / np.nanstd(mean)


@ways
@pytest.mark.every_nth("solver", 2)
def test_weights_are_repetitions(cls, solver, data):
    X, seen, _ = data
    weight = np.arange(90) % 3
    model = joint(cls, solver, learn_hyperparameters=False)
    weighted = clone(model).fit(X, seen, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(seen, weight, axis=0))
    assert_allclose(predictions(weighted, X), predictions(repeated, X), rtol=1e-8, atol=1e-9)
    assert weighted.n_samples_seen_ == 60
    assert repeated.n_samples_seen_ == 90
    loo = weighted.loo_predict(X, seen, sample_weight=weight)[0]
    assert np.isnan(loo[weight == 0]).all()


@ways
@pytest.mark.every_nth("cls", 2)
def test_stream(cls, solver, data):
    """A small first chunk begins again with all rows; later ones are added."""
    X, seen, _ = data
    model = joint(cls, solver)
    for start, stop in ((0, 12), (12, 60), (60, 61), (61, 90)):
        model.partial_fit(X[start:stop], seen[start:stop])
    assert model.n_samples_seen_ == 90
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0)
    error = (mean - data[2]) / np.nanstd(seen, axis=0)
    assert np.sqrt(np.mean(error**2)) < 1.0
    loo, _ = model.loo_predict(X, seen)  # rows that have been scaled twice are known
    assert_array_equal(np.isnan(loo), np.isnan(seen))


@every
@pytest.mark.every_nth("cls", 2)
def test_stream_without_learning_is_a_fit_to_all_rows(cls, data):
    """The second chunk is the first one again, which changes no unit."""
    X, seen, _ = data
    given = {"inducing_inputs": X[:8], "learn_hyperparameters": False}
    whole = joint(cls, **given).fit(np.tile(X, (2, 1)), np.tile(seen, (2, 1)))
    model = joint(cls, **given).partial_fit(X, seen).partial_fit(X, seen)
    assert_allclose(predictions(model, X), predictions(whole, X), rtol=1e-8, atol=1e-9)
    assert_allclose(model.lower_bound_, whole.lower_bound_, rtol=1e-8)
    unseen = np.full((5, T), np.nan)
    before = model.predict(X)
    model.partial_fit(X[:5] + 0.1, unseen)
    assert_array_equal(model.predict(X), before)
    assert model.n_samples_seen_ == 185


@every
def test_stream_that_forgets(cls, data):
    X, seen, _ = data
    model = joint(cls, forgetting=0.9, learn_hyperparameters=False)
    model.partial_fit(X[:60], seen[:60])
    before = model.predict(X, return_std=True)[1]
    model.partial_fit(X[:30], np.full((30, T), np.nan))
    assert np.mean(model.predict(X, return_std=True)[1] / before) > 1.05
    model.partial_fit(X[60:], seen[60:])
    assert model.n_samples_seen_ == 120
    assert_allclose(model._full_learner().model.forgetting ** T, 0.9)  # of values, T in a row


def test_units_of_y_count_as_much_as_rows_that_fade(data):
    X, seen, _ = data
    unit, bounds = np.array([1e-3, 5.0, 1e4]), []
    for scale in (np.ones(T), unit):
        model = joint(VBDTCRegressor, forgetting=0.9, learn_hyperparameters=False)
        model.partial_fit(X[:60], scale * seen[:60]).partial_fit(X[60:65], scale * seen[60:65])
        bounds.append(model.lower_bound_)
    counted = 0.9 ** np.arange(65)[::-1] @ ~np.isnan(seen[:65])
    assert_allclose(bounds[0] - bounds[1], counted @ np.log(unit), rtol=1e-8)


def test_without_normalisation_functions_are_around_zero(data):
    X, _, Y = data
    far, Y = np.full((1, 2), 1e3), Y + [300.0, 0.0, 0.0]
    mean = [joint(VBDTCRegressor, normalize_y=on).fit(X, Y).predict(far)[0] for on in (True, False)]
    assert_allclose(mean[0], Y.mean(axis=0), rtol=0.05)
    assert_allclose(mean[1], 0.0, atol=1e-6)


def test_correlations_are_expected_ones():
    """Over the length scales of indicators, independent normal variables."""
    nu, xi = np.array([0.3, 0.9]), np.array([0.5, 0.2])
    state = SimpleNamespace(
        model=SimpleNamespace(parameters=SimpleNamespace(nu=nu, xi=xi)),
        units=SimpleNamespace(unit=np.array([2.0, -1.0])),
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    each = [
        weights @ np.exp(-0.5 * (m + np.sqrt(v) * nodes) ** 2) / np.sqrt(2.0 * np.pi)
        for m, v in zip(nu, xi, strict=True)
    ]
    expected = -each[0] * each[1]
    assert_allclose(correlate(state), [[1.0, expected], [expected, 1.0]], rtol=1e-10)


@every
@pytest.mark.every_nth("cls", 2)
def test_a_call_that_fails_leaves_the_estimator_as_it_was(cls, data):
    X, seen, _ = data
    model = joint(cls).fit(X, seen)
    before = pickle.dumps(vars(model))
    for Y in (seen[:, :2], np.full_like(seen, np.inf), 1e200 * seen):
        with pytest.raises(ValueError):
            model.partial_fit(X, Y)
        assert pickle.dumps(vars(model)) == before
    model.set_params(output_covariance=None)
    with pytest.raises(ValueError, match="output_covariance has changed"):
        model.partial_fit(X, seen)
    assert model.predict(X).shape == (90, T)


@every
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_warm_start(cls, data):
    X, seen, _ = data
    model = joint(cls, warm_start=True, max_iter=6).fit(X, seen)
    bound, covariance = model.lower_bound_, model.output_covariance_
    again = clone(model).fit(X, seen).set_params(max_iter=1).fit(X, seen)
    assert again.lower_bound_ >= bound - 1.0
    assert_allclose(np.sign(again.output_covariance_), np.sign(covariance))
    model.set_params(output_covariance=None)
    with pytest.raises(ValueError, match="output_covariance has changed"):
        model.fit(X, seen)
    model.set_params(warm_start=False).fit(X, seen)
    assert isinstance(model.inducing_inputs_, list)


@every
@pytest.mark.every_nth("cls", 2)
def test_one_output_is_a_model_of_its_own(cls, data):
    X, _, Y = data
    a, b = joint(cls).fit(X, Y[:, :1]), small(cls).fit(X, Y[:, 0])
    assert_array_equal(a.predict(X), b.predict(X))
    assert_allclose(a.output_covariance_, [[a.signal_std_mean_**2 + a.signal_std_var_]])
    apart = small(cls).fit(X, Y)
    expected = np.diag(apart.signal_std_mean_**2 + apart.signal_std_var_)
    assert_allclose(apart.output_covariance_, expected)


@every
@pytest.mark.every_nth("cls", 2)
def test_gaps_and_categories_of_inputs(cls, data):
    X, seen, _ = data
    table = np.column_stack([X, np.arange(90) % 3])
    gaps = table.copy()
    gaps[::7, 0] = np.nan
    model = joint(cls, categorical_features=[2]).fit(gaps, seen)
    mean, std = model.predict(gaps, return_std=True)
    assert mean.shape == (90, T)
    whole = joint(cls, categorical_features=[2]).fit(table, seen)
    whole_std = whole.predict(table, return_std=True)[1]
    assert np.mean(std[::7] / whole_std[::7]) > 1.02
    assert whole.feature_importances_.shape == (3,)
    assert_allclose(whole.feature_importances_.sum(), 1.0)
    slope, _ = whole.predict_gradient(table[:4])
    assert slope.shape == (4, T, 3)
    assert np.isnan(slope[..., 2]).all()
    assert whole.inverse_length_scale_mean_.shape == (3,)
    draws = whole.sample_y(gaps[:7], 5)
    assert draws.shape == (7, T, 5)


# --- what is refused ----------------------------------------------------------------------------


def test_what_cannot_be(data):
    X, seen, _ = data
    with pytest.raises(ValueError, match='noise_kernel: with output_covariance="learned"'):
        joint(VBFITCRegressor, noise_kernel=RBF()).fit(X, seen)
    with pytest.raises(ValueError, match="Output 1 of y has no observed value"):
        joint(VBDTCRegressor).fit(X, np.where([True, False, True], seen, np.nan))
    with pytest.raises(ValueError, match="Output 0 of y has no observed value"):
        joint(VBDTCRegressor).fit(X, np.full_like(seen, np.nan))
    with pytest.raises(ValueError, match="inducing_inputs has 3 columns, but X has 2"):
        joint(VBDTCRegressor, inducing_inputs=np.zeros((4, 3))).fit(X, seen)
    model = joint(VBDTCRegressor, warm_start=True).fit(X, seen)
    with pytest.raises(ValueError, match="X has 1 features, but the fit before had 2"):
        model.fit(X[:, :1], seen)
    with pytest.raises(ValueError, match="'output_covariance' parameter"):
        joint(VBDTCRegressor, output_covariance="full").fit(X, seen)


def test_dask_collections_are_refused(data):
    array = pytest.importorskip("dask.array")
    X, _, Y = data
    with pytest.raises(TypeError, match="output_covariance needs rows in memory"):
        joint(VBDTCRegressor).fit(
            array.from_array(X, chunks=30), array.from_array(Y[:, 0], chunks=30)
        )
