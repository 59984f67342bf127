"""Predictions from neighbours, against dense Gaussian processes of them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp import VBGPRegressor
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Gaps
from skvbgp.gp import _neighbours, _posterior
from skvbgp.gp._conditional import Conditional
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior, measure_twins
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.kernels import RBF, Linear, Matern
from tests.gp.cases import predict_from_neighbours
from tests.means import check_means

#: If all rows predict, they have one scale; `test_scale` has the other case.
PROCESSES = (
    Process((0.8 * RBF([1.0, 3.0])).bind(2), 0.05, 6.0, one_scale=True),
    Process((1.5 * Matern([2.0, 2.0], nu=0.5)).bind(2), 0.01, 30.0, one_scale=True),
)
FRAMES = Coordinates(np.array([1.0, -2.0]), np.array([2.0, 0.5])), Target(3.0, 1.5)
WEIGHTS = np.array([1.0, 0.5])


def make_posterior(rng, k, n=40, **options):
    X = rng.standard_normal((n, 2))
    rows = Rows().plus(X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(n))
    mixture = Mixture(PROCESSES, np.array([0.0, -0.5]), 0.2, 0.9)
    return NeighbourPosterior(mixture, rows, *FRAMES, WEIGHTS, k, **options)


def measure_place(posterior, x):
    """What each process says of one place, from its nearest rows, one by one."""
    coordinates, target = FRAMES
    distance = np.linalg.norm((posterior.rows.X - x) / coordinates.scale * WEIGHTS, axis=1)
    near = np.argsort(distance)[: posterior.k][::-1]
    known = coordinates.scaled(posterior.rows.X[near]), target.scaled(posterior.rows.y[near])
    scaled = coordinates.scaled(x[None])
    if posterior.is_exact:
        return [process.factorise(*known).moments(scaled) for process in PROCESSES]
    return predict_from_neighbours(PROCESSES, *known, scaled[0])


@pytest.mark.parametrize("k", [5, 40])
def test_a_place_is_predicted_from_its_nearest_rows(rng, monkeypatch, k):
    """Also where all rows predict some places at a time."""
    monkeypatch.setattr("skvbgp._core.blockwise._TILE_ROWS", 4)
    posterior, places = make_posterior(rng, k), rng.standard_normal((6, 2))
    parts = posterior.measure(places)
    for i, x in enumerate(places):
        for c, expected in enumerate(measure_place(posterior, x)):
            found = [part[i, c] for part in parts]
            assert_allclose(found, [float(np.squeeze(value)) for value in expected], rtol=1e-7)


@pytest.mark.parametrize("k", [5, 30, 40])
@pytest.mark.parametrize("one_scale", [False, True])
@pytest.mark.every_nth("k", 3)
def test_means_alone_need_no_variances(rng, monkeypatch, k, one_scale):
    """Where all rows predict; also rows with weights, and places of which something is missing."""
    plain, places = make_posterior(rng, k), rng.standard_normal((6, 2))
    noise = RowNoise(rng.uniform(0.5, 3.0, 40), rng.uniform(0.0, 1.0, 40))
    rows = Rows().plus(plain.rows.X, plain.rows.y, noise)
    processes = tuple(replace(process, one_scale=one_scale) for process in PROCESSES)
    mixture, gaps = replace(plain.mixture, processes=processes), Gaps.of(plain.rows.X)
    posterior = replace(plain, rows=rows, mixture=mixture, gaps=gaps)
    check_means(posterior, places)
    places[:2, 1] = np.nan
    check_means(posterior, places)
    if posterior.is_exact:
        monkeypatch.setattr(Conditional, "_measure_variance", None)
        assert np.isfinite(posterior.predict_mean(places, True)).all()


@pytest.mark.parametrize("one_scale", [False, True])
def test_twins_are_measured_together(rng, monkeypatch, one_scale):
    """Each as by itself, but for covariances and variances, which are computed once."""
    plain, places = make_posterior(rng, 40), rng.standard_normal((6, 2))
    processes = tuple(replace(process, one_scale=one_scale) for process in PROCESSES)
    mixture, gaps = replace(plain.mixture, processes=processes), Gaps.of(plain.rows.X)
    first = replace(plain, mixture=mixture, gaps=gaps)
    assert first.is_uniform == one_scale
    others = [replace(first, rows=Rows().plus(plain.rows.X, y)) for y in rng.normal(size=(2, 40))]
    twins = [TwinPosterior(**one.__getstate__(), first=first) for one in others]
    alone, seen, see = [first, *others], [], Conditional.see
    monkeypatch.setattr(Conditional, "see", lambda *a, **k: seen.append(a) or see(*a, **k))
    for with_variance in (True, False):
        expected = [one.measure(places, with_variance=with_variance) for one in alone]
        seen.clear()
        found = measure_twins([first, *twins], places, with_variance=with_variance)
        assert len(seen) == len(processes)
        assert_allclose(found, expected, rtol=1e-10)
    places[:2, 1] = np.nan
    expected = [one.measure(places) for one in alone]
    assert_allclose(measure_twins([first, *twins], places), expected, rtol=1e-10)


def test_neighbours_say_to_gradients_and_functions_what_they_say_to_predictions(rng):
    """Also where the nearest rows decide the scale, and rows have weights."""
    plain, places = make_posterior(rng, 30), rng.standard_normal((3, 2))
    noise = RowNoise(rng.uniform(0.5, 3.0, 40), rng.uniform(0.0, 1.0, 40))
    rows = Rows().plus(plain.rows.X, plain.rows.y, noise)
    for posterior in (plain, replace(plain, rows=rows)):
        parts, near = posterior.measure(places), posterior.find(places)
        for i, x in enumerate(posterior.coordinates.scaled(places)):
            for c, (given, scale) in enumerate(posterior.condition_on_near(near[i])):
                moments = given.moments(x[None], scale)
                expected = [float(np.squeeze(value)) for value in moments]
                assert_allclose([part[i, c] for part in parts], expected, rtol=1e-6)


@pytest.mark.parametrize("k", [5, 40])
def test_rows_that_are_left_out_do_not_know_themselves(rng, k):
    posterior = make_posterior(rng, k)
    index = np.array([3, 17])
    parts = posterior.leave_out(index)
    changed = Rows().plus(posterior.rows.X, posterior.rows.y + 100.0 * np.isin(range(40), index))
    others = NeighbourPosterior(posterior.mixture, changed, *FRAMES, WEIGHTS, k).leave_out(index)
    if k == 5:  # the scale of an exact process is that of all rows
        assert_allclose(parts.variance, others.variance)
        without = Rows().plus(np.delete(changed.X, 3, axis=0), np.delete(changed.y, 3))
        expected = NeighbourPosterior(posterior.mixture, without, *FRAMES, WEIGHTS, k)
        assert_allclose(others.mean[0], expected.measure(changed.X[3:4]).mean[0])
    assert_allclose(parts.mean[0, :] * 0.0, 0.0)


@pytest.mark.parametrize("with_noise", [False, True])
def test_rows_are_left_out_by_parts_of_the_matrix_of_all(rng, monkeypatch, with_noise):
    """Which only saves time."""
    posterior, index = make_posterior(rng, 8), rng.permutation(40)[:30]
    if with_noise:
        noise = RowNoise(rng.uniform(0.5, 3.0, 40), rng.uniform(0.0, 1.0, 40))
        rows = Rows().plus(posterior.rows.X, posterior.rows.y, noise)
        posterior = replace(posterior, rows=rows)
    sizes, call = [], _posterior.measure_matrices
    for module in (_posterior, _neighbours):
        monkeypatch.setattr(
            module, "measure_matrices", lambda p, X: sizes.append(X.shape) or call(p, X)
        )
    found = posterior.leave_out(index)
    assert sizes == [(1, 40, 2)]
    monkeypatch.setattr(_posterior, "_MATRIX_SIZE", 0)
    expected = posterior.leave_out(index)
    assert sizes[1:] == [(30, 9, 2)]
    for part, other in zip(found, expected, strict=True):
        assert_allclose(part, other, rtol=1e-7)


def test_equal_rows_are_left_out_one_at_a_time(rng):
    X = np.repeat(rng.standard_normal((4, 2)), 10, axis=0)
    rows = Rows().plus(X, rng.standard_normal(40))
    posterior = NeighbourPosterior(Mixture.of(PROCESSES[0]), rows, *FRAMES, WEIGHTS, 5)
    assert np.isfinite(posterior.leave_out(np.arange(40)).mean).all()


@pytest.mark.parametrize("k", [5, 40])
@pytest.mark.parametrize("include_noise", [True, False])
def test_joint_has_the_moments_of_each_row(rng, k, include_noise):
    posterior, places = make_posterior(rng, k), rng.standard_normal((8, 2))
    mean, variance = posterior.moments(places, include_noise)
    joint_mean, covariance = posterior.joint(places, include_noise)
    assert_allclose(joint_mean, mean)
    assert_allclose(np.diagonal(covariance), variance)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10


@pytest.mark.parametrize("k", [5, 40])
def test_distribution_is_the_mixture_of_the_processes(rng, k):
    """About the common mean, and as wide as the calibration says."""
    posterior, places = make_posterior(rng, k), rng.standard_normal((3, 2))
    given = posterior.distribution(places, True)
    target, mixture = FRAMES[1], posterior.mixture
    for i, x in enumerate(places):
        parts = [[float(np.squeeze(v)) for v in moments] for moments in measure_place(posterior, x)]
        means, variances, noises, evidence = np.transpose(parts)
        shares = np.exp(mixture.log_weights + mixture.temper * (evidence - evidence.max()))
        shares /= shares.sum()
        mean = shares @ means
        means = mean + np.sqrt(mixture.calibration) * (means - mean)
        stds = np.sqrt(mixture.calibration * (variances + noises))
        y = np.array([2.0, 4.0])
        densities = stats.norm(means, stds).pdf(target.scaled(y)[:, None]) @ shares / target.unit
        found = [given.log_density(np.full(3, t))[i] for t in y]
        assert_allclose(found, np.log(densities), rtol=1e-6)


def test_joint_of_an_exact_process_is_its_covariance(rng):
    rows = make_posterior(rng, 40).rows
    posterior = NeighbourPosterior(Mixture.of(PROCESSES[0]), rows, *FRAMES, WEIGHTS, 40)
    places = rng.standard_normal((5, 2))
    coordinates, target = FRAMES
    given = PROCESSES[0].factorise(coordinates.scaled(rows.X), target.scaled(rows.y))
    expected = given.covariance(coordinates.scaled(places)) * target.unit**2
    assert_allclose(posterior.joint(places, False)[1], expected, rtol=1e-6, atol=1e-9)


def test_joint_of_a_mixture_has_covariances_within_and_between_its_processes(rng):
    posterior = make_posterior(rng, 40)
    coordinates, target = FRAMES
    places = rng.standard_normal((5, 2))
    scaled = coordinates.scaled(places)
    known = coordinates.scaled(posterior.rows.X), target.scaled(posterior.rows.y)
    given = [process.factorise(*known) for process in PROCESSES]
    belief = posterior.mixture.weigh_place([one.scale for one in given])
    means = np.array([one.moments(scaled).mean for one in given])
    errors = means - belief @ means
    within = sum(b * one.covariance(scaled) for b, one in zip(belief, given, strict=True))
    between = (belief[:, None] * errors).T @ errors
    expected = posterior.mixture.calibration * (within + between) * target.unit**2
    assert_allclose(posterior.joint(places, False)[1], expected, rtol=1e-6, atol=1e-9)


def test_far_away_the_function_is_as_uncertain_as_before(rng):
    posterior = make_posterior(rng, 5)
    mean, variance = posterior.moments(np.full((1, 2), 1e3), include_noise=False)
    assert_allclose(mean, FRAMES[1].mean, atol=1e-6)
    assert variance > 0.1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_neighbors", [10, 40])
def test_straight_lines_are_as_uncertain_as_they_are_far_away(rng, n_neighbors):
    """Variances have no squares there, which are not needed."""
    X = rng.standard_normal((40, 2))
    model = VBGPRegressor(Linear(), n_neighbors=n_neighbors, learn_hyperparameters=False)
    model.fit(X, X[:, 0] + 0.1 * rng.standard_normal(40))
    near, far = (model.predict(s * X[:5], return_std=True)[1] / s for s in (1e30, 1e130))
    assert_allclose(far, near, rtol=1e-9)
    assert np.isfinite(model.predict_interval(1e130 * X)).all()


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_workers_change_nothing(rng, n_jobs):
    state, places = rng.bit_generator.state, np.linspace(-1.0, 1.0, 140).reshape(70, 2)
    expected = make_posterior(rng, 5).moments(places, True)
    rng.bit_generator.state = state
    found = make_posterior(rng, 5, n_jobs=n_jobs).moments(places, True)
    assert_array_equal(found, expected)


def test_search_structures_are_not_pickled(rng):
    posterior, places = make_posterior(rng, 5), rng.standard_normal((3, 2))
    assert all(process.covariance for process in posterior.mixture.processes)  # which is kept
    size = len(pickle.dumps(posterior))
    expected = posterior.moments(places, True)
    assert len(pickle.dumps(posterior)) == size
    assert_array_equal(pickle.loads(pickle.dumps(posterior)).moments(places, True), expected)
