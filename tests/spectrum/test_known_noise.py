"""Known variances of rows' noise: they add to the learned ones, in training and in prediction."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp.base._exact_process import ExactRows, log_density
from skvbgp.kernels import RBF
from skvbgp.spectrum import SVBSSGPRegressor
from skvbgp.spectrum._block_model import SharedRows, evidence_gradient
from skvbgp.spectrum._bound import (
    expected_own_error,
    expected_squared_error,
    newton_step,
    sum_statistics,
)
from skvbgp.spectrum._features import features
from skvbgp.spectrum._gaussian import Gaussian, Prior, Structure
from skvbgp.spectrum._neighbours import Neighbours
from skvbgp.spectrum._rows import BlockedRows, Rows
from tests.derivatives import numerical_gradient
from tests.spectrum.cases import HYPER, POSTERIORS, D, M, condition, given_all, make_data, small
from tests.spectrum.test_bound import unit_frame
from tests.weights import assert_same, draw_weights

pytestmark = pytest.mark.usefixtures("quick_searches")

WEIGHT = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 1.0, 0.01, 1.2, 5.0, 0.5, 1.7, 0.9])
VARIANCE = np.array([0.0, 0.3, 2.0, 0.05, 0.0, 1.0, 40.0, 0.01, 0.6, 0.2, 0.0, 3.0])

sizes = pytest.mark.parametrize("n", [4, 12])  # fewer and more rows than features
weights = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["rows", "weighted"])


def known(rng, weight=None):
    return Rows(rng.standard_normal((12, D)), rng.standard_normal(12), weight, VARIANCE)


def dense_evidence(rows, R, signal_variance, noise_variance):
    """Of rows with noise of their own, each as often as it counts; densely."""
    Phi, own, w = features(rows.X, R), noise_variance + rows.variance, rows.counts
    C = signal_variance / M * Phi @ Phi.T + np.diag(own / w)
    value = -0.5 * (np.linalg.slogdet(2.0 * np.pi * C)[1] + rows.y @ np.linalg.solve(C, rows.y))
    return value - 0.5 * np.sum((w - 1.0) * np.log(2.0 * np.pi * own) + np.log(w))


# -- the parts of the model --------------------------------------------------------------------


@sizes
@weights
def test_evidence_of_a_block_and_its_gradients(rng, R, n, weight):
    rows = known(rng, weight).take(slice(n))
    found = evidence_gradient(rows, R, 1.3, 0.2)
    assert_allclose(found.value, dense_evidence(rows, R, 1.3, 0.2), rtol=1e-9)
    expected = numerical_gradient(lambda R: dense_evidence(rows, R, 1.3, 0.2), R)
    assert_allclose(found.R, expected, rtol=1e-6, atol=1e-8)
    expected = numerical_gradient(
        lambda logs: dense_evidence(rows, R, *np.exp(logs)), np.log([1.3, 0.2])
    )
    assert_allclose(found[2:], expected, rtol=1e-6, atol=1e-8)


@sizes
@weights
@pytest.mark.parametrize("kind", [SharedRows, Neighbours])
def test_local_conditional(rng, R, n, weight, kind):
    rows, X_new = known(rng, weight).take(slice(n)), rng.standard_normal((5, D))
    local = given_all(kind, rows)
    scale, Phi, Phi_known = HYPER.signal_variance / M, features(X_new, R), features(rows.X, R)
    own = (HYPER.local_noise_variance + rows.variance) / rows.counts
    H = scale * Phi @ Phi_known.T @ np.linalg.inv(scale * Phi_known @ Phi_known.T + np.diag(own))
    mean, covariance = condition(local, Phi, R, full=True)
    assert_allclose(mean, H @ rows.y, rtol=1e-8)
    expected = scale * (Phi @ Phi.T - H @ Phi_known @ Phi.T)
    assert_allclose(covariance, expected, rtol=1e-7, atol=1e-10)
    assert_allclose(condition(local, Phi, R, full=False)[1], np.diag(expected), rtol=1e-7)


@weights
def test_the_posterior_of_weights_is_that_of_the_linear_model(rng, R, weight):
    """Given certain frequencies, by one step of size one."""
    rows, structure = known(rng, weight), Structure(M, D, "point")
    prior = Prior.of(structure, np.ones(D), 1.3)
    alpha = np.concatenate([R.ravel(), rng.standard_normal(2 * M)])
    q = Gaussian(structure, alpha, prior.precisions)
    information = sum_statistics(structure, alpha[None], rows.as_weighted(0.5))
    q = newton_step(q, prior, information, 0.5, 1.0, moves_frequencies=False)
    Phi, own = features(rows.X, R), (0.5 + rows.variance) / rows.counts
    precision = M / 1.3 * np.eye(2 * M) + Phi.T @ (Phi / own[:, None])
    expected = np.linalg.solve(precision, Phi.T @ (rows.y / own))
    assert_allclose(q.mean[structure.weights], expected, rtol=1e-8)


@weights
@pytest.mark.every_nth("weight", 2)
def test_steps_of_the_noise_raise_the_likelihood(rng, R, weight):
    rows, structure = known(rng, weight), Structure(M, D, "point")
    alphas = np.concatenate([R.ravel(), 0.3 * rng.standard_normal(2 * M)])[None]
    error = rows.y - features(rows.X, R) @ alphas[0, structure.weights]
    total = rows.counts.sum()

    def value(log_noise):
        own = np.exp(log_noise[0]) + rows.variance
        return -0.5 * rows.counts @ (np.log(own) + error**2 / own)

    log_noise = np.array([1.0])
    values = [value(log_noise)]
    for _ in range(500):
        noise = expected_own_error(structure, alphas, rows, np.exp(log_noise[0])) / total
        log_noise = np.log([noise])
        values.append(value(log_noise))
    assert np.all(np.diff(values) > -1e-12)
    assert_allclose(numerical_gradient(value, log_noise), 0.0, atol=1e-4)
    plain = Rows(rows.X, rows.y, weight)
    squared = expected_squared_error(structure, alphas, plain)
    assert_allclose(expected_own_error(structure, alphas, plain, 0.4), squared)


@sizes
@pytest.mark.parametrize("kind", [SharedRows, Neighbours])
def test_a_row_of_which_next_to_nothing_is_known_is_left_out(rng, R, n, kind):
    rows, X_new = known(rng, WEIGHT).take(slice(n)), rng.standard_normal((5, D))
    bad = np.arange(n) % 3 == 0
    told = Rows(rows.X, rows.y, rows.weight, np.where(bad, 1e13, rows.variance))
    kept, structure = rows.take(~bad), Structure(M, D, "joint")
    found, expected = (evidence_gradient(one, R, 1.3, 0.2) for one in (told, kept))
    assert_allclose(found.R, expected.R, rtol=1e-8, atol=1e-9)
    assert_allclose(found[2:], expected[2:], rtol=1e-8, atol=1e-9)
    alphas = np.concatenate([R.ravel(), rng.standard_normal(2 * M)])[None]
    sums = (sum_statistics(structure, alphas, one.as_weighted(0.5)) for one in (told, kept))
    for one, other in zip(*sums, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)

    def given(rows):
        return condition(given_all(kind, rows), features(X_new, R), R, full=True)

    for one, other in zip(given(told), given(kept), strict=True):
        assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_the_start_knows_the_noise(rng):
    rows, kernel = known(rng, WEIGHT), RBF(np.ones(D))
    x = np.array([0.2, 0.1, -0.3, -0.7])
    exact = ExactRows(rows.X, rows.y, rows.weight, rows.variance)
    value, gradient = log_density(x, kernel, exact)
    assert_allclose(
        gradient, numerical_gradient(lambda x: log_density(x, kernel, exact)[0], x), rtol=1e-6
    )
    own = np.exp(-0.7) + VARIANCE
    C = np.exp(0.2) * kernel.with_theta(x[1:3])(rows.X) + np.diag(own / WEIGHT)
    expected = -0.5 * (np.linalg.slogdet(2.0 * np.pi * C)[1] + rows.y @ np.linalg.solve(C, rows.y))
    expected -= 0.5 * np.sum((WEIGHT - 1.0) * np.log(2.0 * np.pi * own) + np.log(WEIGHT))
    expected -= 0.5 * np.sum((x[1:3] - kernel.theta) ** 2) / 0.5
    assert_allclose(value, expected, rtol=1e-9)


def test_blocks_keep_the_noise_of_their_rows(rng):
    X, y = rng.standard_normal((600, 2)), np.arange(600.0)
    rows = BlockedRows.of(Rows(X[:40], y[:40], None, y[:40]), *unit_frame(2), 4)
    for start in range(40, 600, 40):
        new = slice(start, start + 40)
        rows = rows.add(Rows(X[new], y[new], None, y[new] if start % 80 else None))
    found = rows.all_rows
    told = (np.arange(600) < 40) | (np.arange(600) // 40 % 2 == 1)
    assert_array_equal(found.variance[np.argsort(found.y)], np.where(told, y, 0.0))


# -- the estimator -----------------------------------------------------------------------------


FIXED = {"learn_hyperparameters": False, "noise_variance": 0.3, "signal_variance": 2.0}


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("n_neighbors", [None, 9])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.every_nth("gamma", 3)
def test_what_all_rows_share_is_a_learned_variance(posterior, gamma, n_neighbors):
    X, y = make_data(40)
    options = {"posterior": posterior, "gamma": gamma, "n_neighbors": n_neighbors}
    told = small(**options, **FIXED).fit(X, y, y_var=0.4)
    expected = small(**options, **(FIXED | {"noise_variance": 0.7})).fit(X, y)
    assert_allclose(told.lower_bound_, expected.lower_bound_, rtol=1e-8)
    found = told.predict(X + 0.1, return_std=True, y_var=0.4)
    for one, other in zip(found, expected.predict(X + 0.1, return_std=True), strict=True):
        assert_allclose(one, other, rtol=1e-7)


@pytest.mark.parametrize("objective", ["blocks", "bound"])
@pytest.mark.every_nth("objective", 2)
def test_a_weight_is_so_many_copies_to_training(objective, rng, unmerged):
    X, y = make_data(40)
    y_var = rng.choice([0.0, 0.5], 40)
    weight, copies = draw_weights(rng, 40)
    model = small(4, n_blocks=1, n_neighbors=None, objective=objective)
    expected = clone(model).fit(X[copies], y[copies], y_var=y_var[copies])
    model.fit(X, y, sample_weight=weight, y_var=y_var)
    assert_same(model, expected, X + 0.1, rtol=1e-6)
    assert_allclose(model.noise_variance_, expected.noise_variance_, rtol=1e-6)
    assert_allclose(model.lower_bounds_, expected.lower_bounds_, rtol=1e-6)


def test_a_stream_of_few_rows_keeps_their_noise():
    """It begins again with all of them."""
    X, y = make_data(48)
    y_var = np.append(np.repeat([0.5, 3.0, 1.5], 8), np.zeros(24))
    model = small(warm_start=True).fit(X[:16], y[:16], y_var=y_var[:16])
    model.partial_fit(X[16:24], y[16:24], y_var=y_var[16:24]).partial_fit(X[24:], y[24:])
    expected = small().fit(X, y, y_var=y_var)
    assert_allclose(model.predict(X), expected.predict(X), atol=1e-6 * y.std())
    assert_allclose(model.lower_bound_, expected.lower_bound_, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 0.1), ({"objective": "bound"}, 0.1), ({"objective": "bound", "solver": "adam"}, 0.4)],
)
@pytest.mark.parametrize("n_calls", [1, 3])
@pytest.mark.in_turn("n_calls")
def test_what_is_known_is_not_learned(options, most, n_calls):
    """Rows of two qualities: the learned noise is that of the good ones.

    Adam is slow on the bound, and leaves some of the function to the noise.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 1))
    y_var = np.where(rng.uniform(size=300) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + np.sqrt(0.01 + y_var) * rng.standard_normal(300)
    model = SVBSSGPRegressor(8, max_iter=60, random_state=0, **options)
    told, plain = clone(model), clone(model)
    for rows in np.split(np.arange(300), n_calls):
        told.partial_fit(X[rows], y[rows], y_var=y_var[rows])
        plain.partial_fit(X[rows], y[rows])
    assert told.noise_variance_ < most < 0.5 < plain.noise_variance_
    assert told.local_noise_variance_ < 0.1 < 0.25 < plain.local_noise_variance_
    places = np.linspace(-3.0, 3.0, 50)[:, None]
    errors = [np.mean((m.predict(places) - np.sin(places[:, 0])) ** 2) for m in (told, plain)]
    assert errors[0] < 0.6 * errors[1]


def test_bounds_of_passes_know_the_noise_as_that_of_the_end_does(rng):
    X, y = make_data()
    y += 3.0 * rng.standard_normal(60)
    model = small(objective="bound").fit(X, y, y_var=9.0)
    assert_allclose(model.lower_bounds_[-1], model.lower_bound_, rtol=0.2)
