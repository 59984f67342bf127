"""The scale at a place where all rows predict: what near rows, each left out, say of it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.scaling import Coordinates
from skvbgp.gp import _posterior, _process
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.kernels import RBF, Matern
from tests.derivatives import check_mean_gradient
from tests.functions import check_draws, check_gradients_of_draws, check_same_functions
from tests.gp import test_posterior as one_scale
from tests.gp.cases import make_data, small
from tests.gp.test_coregion import make_process, make_rows
from tests.gp.test_posterior import FRAMES
from tests.oracles import gp as oracle

PROCESSES = tuple(replace(one, one_scale=False) for one in one_scale.PROCESSES)


def make_posterior(rng, processes=PROCESSES):
    """All of 40 rows predict."""
    posterior = one_scale.make_posterior(rng, 100)
    return replace(posterior, mixture=replace(posterior.mixture, processes=processes))


def make_outputs(rng):
    """Rows of three outputs that learn from each other."""
    X, _ = make_rows(rng, 40, 3)
    processes = (replace(make_process(3, gaussian=False), noise=0.05, dof=6.0),)
    coordinates = Coordinates(np.zeros(5), np.ones(5))
    mixture = Mixture(processes, np.zeros(1), 0.2)
    rows, weights = Rows().plus(X, rng.standard_normal(40)), np.full(5, 0.7)
    return NeighbourPosterior(mixture, rows, coordinates, FRAMES[1], weights, 100)


@pytest.fixture(params=["plain", "weighted", "gaps", "outputs"])
def posterior(request, rng):
    """Rows may stand for several, known variances may differ, and inputs be uncertain."""
    if request.param == "outputs":
        return make_outputs(rng)
    if request.param == "gaps":
        posterior = make_posterior(rng, tuple(replace(one, slopes=(0.7,)) for one in PROCESSES))
    else:
        posterior = make_posterior(rng)
    if request.param == "plain":
        return posterior
    inputs = rng.choice([0.0, 0.5], (40, 1)) if request.param == "gaps" else None
    noise = RowNoise(rng.uniform(0.5, 3.0, 40), rng.uniform(0.0, 1.0, 40), inputs)
    return replace(posterior, rows=Rows().plus(posterior.rows.X, posterior.rows.y, noise))


@pytest.fixture(params=[7, 100], ids=["few", "all"])
def n_near(request, monkeypatch):
    monkeypatch.setattr(_posterior, "_SCALE_ROWS", request.param)
    return min(request.param, 40)


def describe(posterior, process):
    """Scaled rows, targets, variances of their noise at scale 1, and how often each row counts."""
    X, y = posterior.rows.scaled(posterior.coordinates, posterior.target)
    known, t = posterior.rows.noise, np.full(len(y), process.noise)
    if process.coregion is not None:
        t *= X[:, 2:] @ process.coregion.factors
    if known is None:
        return X, y, t, np.ones(len(y))
    t += known.scaled(posterior.target.unit).variance
    if known.inputs is not None:
        t += known.inputs @ process.slopes
    return X, y, t, known.weight


def find_near(posterior, x):
    """All rows, the nearest first."""
    shift = (posterior.rows.X - x) / posterior.coordinates.scale * posterior.weights
    return np.argsort(np.linalg.norm(shift, axis=1), kind="stable")


def own_noise(process, x):
    """Variance of the noise of a scaled row's output."""
    return process.noise * (1.0 if process.coregion is None else x[2:] @ process.coregion.factors)


def test_errors_of_near_rows_say_the_scale_at_a_place(posterior, n_near, rng, monkeypatch):
    monkeypatch.setattr("skvbgp._core.blockwise._TILE_ROWS", 2)
    places = posterior.rows.X[:5].copy()
    places[:, :2] += 0.1 * rng.standard_normal((5, 2))
    parts = posterior.measure(places)
    for c, process in enumerate(posterior.mixture.processes):
        X, y, t, weight = describe(posterior, process)
        kernel = process.covariance
        for i, x in enumerate(posterior.coordinates.scaled(places)):
            near = find_near(posterior, places[i])[:n_near]
            k, k_own = kernel(X, x[None])[:, 0], kernel.diag(x[None])[0]
            rows = y, t, process.dof, _process._WINDOW, near, weight
            mean, variance, factor, evidence = oracle.predict_from_all(kernel(X), k, k_own, *rows)
            expected = mean, variance, factor * own_noise(process, x), evidence
            assert_allclose([part[i, c] for part in parts], expected, rtol=1e-6)


def test_a_row_left_out_does_not_predict_those_that_say_its_scale(posterior, n_near):
    index = np.array([3, 17, 30])
    parts, known = posterior.leave_out(index), posterior.noise
    for c, process in enumerate(posterior.mixture.processes):
        X, y, t, weight = describe(posterior, process)
        for at, i in enumerate(index):
            near = find_near(posterior, posterior.rows.X[i])
            assert near[0] == i
            rows = y, t, process.dof, _process._WINDOW, near[1 : n_near + 1], weight
            mean, variance, factor, evidence = oracle.leave_out_of_all(
                process.covariance(X), i, *rows
            )
            if process.slopes:
                variance += factor * known.inputs[i] @ process.slopes
            noise = factor * own_noise(process, X[i])
            noise += 0.0 if known is None else known.variance[i]
            found = [part[at, c] for part in parts]
            assert_allclose(found, [mean, variance, noise, evidence], rtol=1e-5)


@pytest.mark.parametrize("include_noise", [True, False])
def test_joint_has_the_moments_of_each_row_and_the_correlations_of_one_scale(rng, include_noise):
    posterior, places = make_posterior(rng), rng.standard_normal((6, 2))
    mean, variance = posterior.moments(places, include_noise)
    joint_mean, covariance = posterior.joint(places, include_noise)
    assert_allclose(joint_mean, mean)
    assert_allclose(np.diagonal(covariance), variance)
    local = replace(posterior, mixture=Mixture.of(PROCESSES[0]))
    one = replace(posterior, mixture=Mixture.of(one_scale.PROCESSES[0]))
    found, expected = (which.joint(places, False)[1] for which in (local, one))
    stds = [np.sqrt(np.diagonal(covariance)) for covariance in (found, expected)]
    assert np.ptp(stds[0] / stds[1]) > 0.1
    assert_allclose(found / np.outer(stds[0], stds[0]), expected / np.outer(stds[1], stds[1]))


def test_covariances_are_those_of_functions_that_keep_to_a_level_of_belief(rng):
    posterior, places = make_posterior(rng), 2.0 * rng.standard_normal((6, 2))
    parts, mixture = posterior.measure(places), posterior.mixture
    belief = mixture.weigh(parts.evidence)
    assert np.ptp(belief[:, 0]) > 0.15
    covariances = [given.covariance(FRAMES[0].scaled(places)) for given in posterior.conditionals]
    for c, covariance in enumerate(covariances):
        ratio = np.sqrt(parts.variance[:, c] / np.diagonal(covariance))
        covariance *= np.outer(ratio, ratio)
    expected = oracle.covary_by_level(belief, parts.mean, covariances)
    expected *= mixture.calibration * FRAMES[1].unit ** 2
    assert_allclose(posterior.joint(places, False)[1], expected, rtol=1e-7, atol=1e-10)


def with_all_rows(kernels, **options):
    """A model of 60 rows, half of which have ten times the noise, and scales of its places."""
    X, y = make_data(60)
    y += np.where(X[:, 0] > 0.5, 2.0, 0.2) * np.random.default_rng(1).standard_normal(60)
    model = small(kernels, learn_hyperparameters=False, **options).fit(X, y)
    mixture = model._state.mixture
    processes = tuple(replace(one, dof=4.0, one_scale=False) for one in mixture.processes)
    mixture = replace(mixture, processes=processes, temper=0.2, calibration=1.5)
    model._state = replace(model._state, mixture=mixture)
    return model, np.vstack([X[:3] + 0.28, X[:2] + 4.15])


KERNELS = [Matern([2.0, 3.0], nu=1.5), RBF([0.5, 1.0])]


@pytest.fixture
def few_near(monkeypatch):
    """Which stay the same within the steps of numerical derivatives."""
    monkeypatch.setattr(_posterior, "_SCALE_ROWS", 4)


@pytest.mark.thorough
@pytest.mark.usefixtures("few_near")
def test_functions_have_the_moments_of_predictions_from_all_rows():
    model, places = with_all_rows(KERNELS)
    check_draws(model, places, 2000)


@pytest.mark.usefixtures("few_near")
def test_functions_are_the_same_wherever_they_are_evaluated():
    model, places = with_all_rows(KERNELS)
    check_gradients_of_draws(model, places)
    check_same_functions(model, places, np.zeros(5))


@pytest.mark.usefixtures("few_near")
def test_gradient_is_that_of_predictions_from_all_rows():
    """Its variance has the factor that the function's has at the place."""
    model, places = with_all_rows(KERNELS)
    check_mean_gradient(model, places)
    posterior = with_all_rows(KERNELS[0])[0]._state.posterior
    (process,) = posterior.mixture.processes
    one = replace(posterior, mixture=Mixture.of(replace(process, one_scale=True)))
    variances = [which.moments(places, include_noise=False)[1] for which in (posterior, one)]
    factor = variances[0] / variances[1]
    assert np.ptp(factor) > 0.2
    found, plain = (which.measure_gradient(places)[1] for which in (posterior, one))
    assert_allclose(found, plain * factor[:, None], rtol=1e-6)


def check_places_and_rows_one_by_one(posterior, rng, rtol=1e-9):
    """Places are predicted one by one as together, and whatever the order of the rows.

    All but means may be off by more.
    """
    places, n = rng.standard_normal((12, 2)), len(posterior.rows)
    expected = posterior.measure(places)
    one_by_one = [posterior.measure(x[None]) for x in places]
    for found, part in zip(zip(*one_by_one, strict=True), expected, strict=True):
        assert_allclose(np.concatenate(found), part, rtol=1e-10)
    order = rng.permutation(n)
    rows = Rows().plus(posterior.rows.X[order[:5]], posterior.rows.y[order[:5]])
    for i in order[5:]:
        rows = rows.plus(posterior.rows.X[[i]], posterior.rows.y[[i]])
    streamed = replace(posterior, rows=rows)
    for found, part in zip(streamed.measure(places), expected, strict=True):
        assert_allclose(found, part, rtol=1e-9 if part is expected.mean else rtol)
    left = streamed.leave_out(np.argsort(order))
    for found, part in zip(left, posterior.leave_out(np.arange(n)), strict=True):
        assert_allclose(found, part, rtol=max(rtol, 1e-7))


def test_places_are_predicted_one_by_one_as_together_whatever_the_order_of_the_rows(rng):
    check_places_and_rows_one_by_one(make_posterior(rng), rng)


def test_an_output_of_the_same_rows_has_scales_of_its_own(rng):
    first = make_posterior(rng)
    rows = Rows().plus(first.rows.X, rng.standard_normal(40) * np.exp(first.rows.X[:, 0]))
    alone = replace(first, rows=rows)
    twin = TwinPosterior(**{**alone.__getstate__(), "first": first})
    places, index = rng.standard_normal((4, 2)), np.array([2, 9])
    for found, expected in zip(twin.measure(places), alone.measure(places), strict=True):
        assert_allclose(found, expected, rtol=1e-10)
    for found, expected in zip(twin.leave_out(index), alone.leave_out(index), strict=True):
        assert_allclose(found, expected, rtol=1e-10)
    assert twin.conditionals[0].L_inv is first.conditionals[0].L_inv


@pytest.mark.parametrize("n", [1, 2])
def test_a_row_without_others_has_the_scale_that_was_expected(rng, n):
    posterior = make_posterior(rng)
    posterior = replace(posterior, rows=Rows().plus(posterior.rows.X[:n], posterior.rows.y[:n]))
    parts = posterior.leave_out(np.arange(n))
    if n == 1:
        expected = [process.dof / (process.dof - 2.0) * process.noise for process in PROCESSES]
        assert_allclose(parts.noise[0], expected)
    assert all(np.isfinite(part).all() for part in parts)
    assert all(np.isfinite(part).all() for part in posterior.measure(rng.standard_normal((2, 2))))


def test_the_scale_follows_the_near_rows():
    """Noise of two sizes."""
    model, _ = with_all_rows(KERNELS)
    X = model._state.rows.X
    spread = model._state.posterior.measure(X).noise
    rough = X[:, 0] > 0.5
    assert np.all(np.median(spread[rough], axis=0) > 1.5 * np.median(spread[~rough], axis=0))
