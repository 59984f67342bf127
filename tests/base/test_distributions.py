"""What every regressor says of whole distributions."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_regressor
from sklearn.utils._param_validation import InvalidParameterError

from skvbgp import DecoupledGPRegressor, EPDTCClassifier, HybridGPLVM, SVBSSGPRegressor
from skvbgp._core.mixture import NormalMixture
from skvbgp.base._learner import predict_distribution
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.gp.cases import REGRESSORS as GP
from tests.kernel_selection.cases import INSTANCES as KERNEL_SELECTION
from tests.sgpr.cases import INSTANCES as SGPR
from tests.sgpr.cases import make_data
from tests.spectrum.cases import INSTANCES as SPECTRUM

#: One of each class and of each kind of posterior.
REGRESSORS = [*GP, *SGPR[:2], SGPR[3], SGPR[6], *SGPR[-3:-1], DECOUPLED[0], SPECTRUM[0]]
REGRESSORS += [KERNEL_SELECTION[0], KERNEL_SELECTION[-1]]
ROWS = 30


def test_every_class_is_among_them():
    every = [*GP, *SGPR, *DECOUPLED, *KERNEL_SELECTION, *SPECTRUM]
    assert {type(e) for e in REGRESSORS} == {type(e) for e in every if is_regressor(e)}


@pytest.fixture(scope="module", params=REGRESSORS, ids=repr)
def fitted(request):
    """A model of few rows, and places between them and beyond."""
    X, y = make_data(ROWS + 8)
    model = clone(request.param).set_params(max_iter=2)
    return model.fit(X[:ROWS], y[:ROWS]), np.vstack([X[ROWS:], X[:1] + 20.0])


@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.every_nth("include_noise", 2)
def test_distributions_have_the_moments_of_predict(fitted, include_noise):
    model, places = fitted
    mean, std = model.predict(places, return_std=True, include_noise=include_noise)
    posterior = model._learner().posterior(model._state)
    given = predict_distribution(posterior, places, include_noise)
    assert isinstance(given, NormalMixture)
    second = np.sum(given.weights * (given.std**2 + given.mean**2), axis=1)
    assert_allclose(given.expectation(), mean, rtol=1e-9)
    assert_allclose(np.sqrt(second - mean**2), std, rtol=1e-5)


def test_quantiles_invert_the_distribution_function(fitted):
    """That is, the integral of the density."""
    model, places = fitted
    p, x = [0.02, 0.5, 0.99], places[:1]
    (quantiles,) = model.predict_quantiles(x, p)
    mean, std = model.predict(x, return_std=True)
    for probability, end in zip(p, quantiles, strict=True):
        grid = np.linspace(mean[0] - 12.0 * std[0], end, 401)
        density = np.exp(model.log_predictive_density(np.tile(x, (401, 1)), grid))
        area = 0.5 * np.sum((density[1:] + density[:-1]) * np.diff(grid))
        assert_allclose(area, probability, atol=3e-4)


def test_intervals_are_quantiles_and_rows_do_not_matter_to_each_other(fitted):
    model, places = fitted
    places = places[-4:]
    y = model.predict(places) + 0.1
    lower, upper = model.predict_interval(places, 0.8)
    values = model.predict_quantiles(places, [0.1, 0.5, 0.9], include_noise=True)
    assert_allclose(np.column_stack([lower, upper]), values[:, [0, 2]], rtol=1e-12)
    assert np.all((values[:, 0] < values[:, 1]) & (values[:, 1] < values[:, 2]))
    assert_allclose(model.predict_quantiles(places, 0.1), lower)
    one_by_one = [model.predict_quantiles(x[None], 0.1)[0] for x in places]
    assert_allclose(one_by_one, lower, rtol=1e-10)
    densities = [
        model.log_predictive_density(x[None], [t])[0] for x, t in zip(places, y, strict=True)
    ]
    assert_allclose(densities, model.log_predictive_density(places, y), rtol=1e-8)


def test_draws_ask_one_posterior(monkeypatch):
    model = SVBSSGPRegressor(3, max_iter=2, random_state=0).fit(*make_data(20))
    posterior, made = model._posterior(), []
    monkeypatch.setattr(model, "_posterior", lambda: made.append(posterior) or posterior)
    assert model.sample_y(make_data(4)[0], 2).shape == (4, 2)
    assert len(made) == 1


def test_known_noise_adds_to_the_diagonal_of_covariances():
    model = SVBSSGPRegressor(3, max_iter=2, random_state=0).fit(*make_data(20))
    places, y_var = make_data(4)[0], np.array([0.0, 1.0, 4.0, 9.0])
    (_, plain), (_, cov) = (model.predict(places, return_cov=True, y_var=v) for v in (None, y_var))
    assert_allclose(cov - plain, np.diag(y_var), atol=1e-12)


@pytest.mark.parametrize("bad", [0.0, 1.0, np.nan, [0.5, 2.0], [], [[0.5]], "median"])
@pytest.mark.every_nth("bad", 2)
def test_what_is_no_probability_is_refused(fitted, bad):
    model, places = fitted
    with pytest.raises(ValueError, match="quantiles must"):
        model.predict_quantiles(places, bad)
    with pytest.raises(ValueError, match="coverage must"):
        model.predict_interval(places, bad)
    with pytest.raises(ValueError, match="coverage must"):
        model.predict_interval(places, 1.0 - 1e-16)


def test_density_of_targets_that_do_not_fit_is_refused(fitted):
    model, places = fitted
    with pytest.raises(ValueError, match="inconsistent"):
        model.log_predictive_density(places, [1.0])
    with pytest.raises(ValueError, match="NaN"):
        model.log_predictive_density(places, np.full(len(places), np.nan))


def test_attributes_are_those_of_the_last_fit(rng):
    X = rng.standard_normal((20, 3))
    y = (X[:, 0] > 0.0).astype(int)
    counts = DecoupledGPRegressor(max_iter=2, random_state=0).fit(X, y)
    assert hasattr(counts, "noise_variance_")
    counts.set_params(likelihood="poisson").fit(X, y)
    assert not hasattr(counts, "noise_variance_") and hasattr(counts, "n_iter_")
    latents = HybridGPLVM(1, max_iter=2, random_state=0).fit(X, y)
    assert hasattr(latents, "classes_")
    assert not hasattr(latents.fit(X), "classes_")


def test_parameters_of_a_classifier_that_change_after_fit_are_checked(rng):
    X = rng.standard_normal((30, 2))
    model = EPDTCClassifier(5, max_iter=2, random_state=0).fit(X, X[:, 0] > 0.0)
    model.set_params(n_jobs="many")
    for call in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(InvalidParameterError, match="n_jobs"):
            call(X)


@pytest.mark.parametrize("bad", [{"gamma": 7}, {"n_neighbors": 0}, {"n_samples": 0}])
@pytest.mark.every_nth("bad", 3)
def test_parameters_that_change_after_fit_are_checked(bad, rng):
    X = rng.standard_normal((30, 2))
    model = SVBSSGPRegressor(max_iter=2, random_state=0).fit(X, X[:, 0])
    model.set_params(**bad)
    calls = [model.predict, model.predict_interval]
    calls += [
        partial(call, y=X[:, 0]) for call in (model.log_predictive_density, model.loo_predict)
    ]
    for call in calls:
        with pytest.raises(InvalidParameterError, match=next(iter(bad))):
            call(X)


def test_one_component_for_each_draw_or_kernel():
    """Where there are several, they are what the density is made of."""
    X, y = make_data(ROWS)
    for regressor, K in [(GP[0], 2), (SGPR[0], 2), (SGPR[-1], 2), (SPECTRUM[0], 4)]:
        model = clone(regressor).set_params(max_iter=2).fit(X, y)
        posterior = model._learner().posterior(model._state)
        assert posterior.distribution(X, True).mean.shape[1] >= K


def test_components_of_a_spectrum_are_its_draws():
    """Each is what a mixture of this draw alone says."""
    X, y = make_data(ROWS)
    model = clone(SPECTRUM[0]).set_params(max_iter=2).fit(X, y)
    posterior = model._learner().posterior(model._state)
    given, mixture = posterior.distribution(X, True), posterior._mixture
    for k, draw in enumerate(mixture.draws):
        posterior._mixture = mixture._replace(draws=[draw])
        mean, variance = posterior.moments(X, True)
        assert_allclose(given.mean[:, k], mean)
        assert_allclose(given.std[:, k], np.sqrt(variance))


def test_components_of_a_block_are_its_draws():
    X, y = make_data(ROWS)
    model = clone(SGPR[-2]).set_params(max_iter=2).fit(X, y)
    posterior = model._learner().posterior(model._state)
    given, conditional = posterior.distribution(X, True), posterior._conditional
    draws = conditional.Lambda, conditional._sigma_f
    for k in range(posterior.n_samples):
        conditional.Lambda, conditional._sigma_f = ([part[k]] for part in draws)
        conditional._cache = type(conditional._cache)(10**6)
        mean, variance = posterior.moments(X, True)
        assert_allclose(given.mean[:, k], mean)
        assert_allclose(given.std[:, k], np.sqrt(variance))
