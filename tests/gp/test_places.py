"""Many rows at few places, of which one for each place says the same."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import invgamma

from skvbgp import VBGPRegressor
from skvbgp.gp._cells import _may_pay
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._places import gather_rows, measure_gain_by_place
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise, discount_copies
from skvbgp.gp._rows import Rows
from skvbgp.gp._stream import is_restart_due
from skvbgp.gp.search._folds import _predict
from skvbgp.gp.search._sample import PlacesSample
from skvbgp.kernels import RBF, Matern, White
from tests.derivatives import numerical_gradient
from tests.gp.cases import small

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNEL = 2.0 * Matern([0.8, 1.2], nu=2.5)
FIXED = {"learn_hyperparameters": False, "n_neighbors": 1_000}


def make_places(rng, n=450, m=20, noise=0.3, alone=2):
    """Rows (n, 2) at m places and some alone, and a wavy function of them with noise."""
    places = rng.uniform(-2.0, 2.0, (m, 2))
    X = places[rng.integers(m, size=n)]
    X[:alone] = rng.uniform(-2.0, 2.0, (alone, 2))
    return X, wave(X) + noise * rng.standard_normal(n)


def wave(X):
    return np.sin(2.0 * X[:, 0]) + np.cos(1.5 * X[:, 1])


def gather(X, y, weight=None, variance=None):
    noise = RowNoise.plain(len(y))
    if weight is not None:
        noise = replace(noise, weight=weight)
    if variance is not None:
        noise = replace(noise, variance=variance)
    found = gather_rows(X, y, noise)
    return X[found.first], found


def test_one_row_of_a_place_has_the_density_of_all(rng):
    """Term by term, whatever the function and the noise are."""
    X, y = make_places(rng)
    weight, variance = rng.uniform(0.2, 3.0, 450), np.where(X[:, 0] > 0.0, 0.1, 0.0)
    Z, found = gather(X, y, weight, variance)
    for t in (0.05, 0.4):
        error = y - wave(X)
        every = -0.5 * (np.log(2.0 * np.pi * (t + variance)) + error**2 / (t + variance))
        one = found.noise
        spread = one.spread(t)
        mine = -0.5 * (np.log(2.0 * np.pi * spread) + (found.y - wave(Z)) ** 2 / spread)
        half_log_dets, squares = one.measure_rest(t)
        mine -= half_log_dets + 0.5 * squares
        mine -= 0.5 * (one.weight - 1.0) * np.log(2.0 * np.pi)
        own = np.bincount(found.owner, weight * every)
        assert_allclose(mine, own, rtol=1e-9)


@pytest.mark.parametrize("dof", [np.inf, 7.0])
def test_evidence_is_that_of_all_rows(rng, dof):
    X, y = make_places(rng)
    weight, variance = rng.integers(1, 4, 450).astype(float), np.where(X[:, 0] > 0.0, 0.1, 0.0)
    Z, found = gather(X, y, weight, variance)
    process = Process(KERNEL, 0.2, dof)
    value, gradient = process.evidence(Z, found.y, found.noise)
    known = RowNoise(weight, variance)
    expected, of_all = process.evidence(X, y, known)
    assert_allclose(value, expected, rtol=1e-6)
    assert_allclose(gradient, of_all, rtol=1e-4, atol=1e-4)

    def evaluate(vector):
        return process.with_vector(vector).evidence(Z, found.y, found.noise)[0]

    assert_allclose(gradient, numerical_gradient(evaluate, process.vector), rtol=1e-5, atol=1e-4)


def test_rows_without_a_part_in_training_have_their_scatter(rng):
    X, y = make_places(rng)
    Z, found = gather(X, y)
    process = Process(KERNEL, 0.2, np.inf)
    known = Z[:5], found.y[:5], found.noise[:5]
    squares, _, weight = _predict(process, known, (Z[5:], found.y[5:], found.noise[5:]))
    mine = found.owner >= 5
    each = _predict(process, known, (X[mine], y[mine], None))[0]
    assert_allclose(weight @ squares, each.sum())
    half = found.noise.sharing(0.5 * found.noise.weight)
    assert_allclose(half.scatter, 0.5 * found.noise.scatter)


def test_a_row_that_is_judged_and_the_others_are_all_of_its_place(rng):
    X, y = make_places(rng, n=600)
    weight = rng.choice([0.4, 1.0, 2.0], 600)
    _, found = gather(X, y, weight)
    members, total = found.members, found.noise.weight
    assert len(members) == 600
    assert_array_equal(np.bincount(members.row), np.bincount(found.owner))
    assert_allclose(members.share.mean(), 1.0)
    assert_allclose(np.bincount(members.row, members.share), total / total.sum() * 600)
    kept = members.n_others > 0.0
    assert 0.4 < kept[total[members.row] > 2.5].mean() < 0.6
    each = members.row, members.apart, members.n_others, members.others_apart
    for i, apart, n_others, others_apart in zip(*each, strict=True):
        mine = found.owner == i
        row = np.flatnonzero(mine & np.isclose(y, found.y[i] + apart))
        assert len(row) == 1
        if n_others:
            own = min(weight[row[0]], 1.0)
            assert_allclose(n_others, total[i] - own)
            of_all = own * y[row[0]] + n_others * (found.y[i] + others_apart)
            assert_allclose(of_all, np.sum((weight * y)[mine]))


@pytest.mark.parametrize("told", [{}, {"weight": True}, {"variance": True}])
def test_predictions_are_those_of_all_rows(rng, told):
    """And so are rows that are left out, one at a time, draws and covariances."""
    X, y = make_places(rng)
    given = {}
    if "weight" in told:
        given["sample_weight"] = rng.integers(1, 4, 450)
    if "variance" in told:
        given["y_var"] = np.where(X[:, 0] > 0.0, 0.1, 0.0)
    model = VBGPRegressor(KERNEL, random_state=0, **FIXED).fit(X, y, **given)
    assert model.n_neighbors_ == 22
    weight = given.get("sample_weight", np.ones(450))
    mean = np.average(y, weights=weight)
    unit = np.sqrt(np.average((y - mean) ** 2, weights=weight))
    t = model.noise_variance_ + given.get("y_var", 0.0)
    K = KERNEL(X) * unit**2
    C_inv = np.linalg.inv(K + np.diag(t / weight))
    places = rng.uniform(-2.0, 2.0, (30, 2))
    k = KERNEL(places, X) * unit**2
    covariance = KERNEL(places) * unit**2 - k @ C_inv @ k.T
    found = model.predict(places, return_cov=True, include_noise=False)
    assert_allclose(found[0], mean + k @ C_inv @ (y - mean), atol=1e-5)
    assert_allclose(found[1], covariance, atol=1e-5)
    left_out, std = model.loo_predict()
    own = np.diagonal(C_inv)
    assert_allclose(left_out, y - C_inv @ (y - mean) / own, atol=1e-5)
    assert_allclose(std**2, 1.0 / own - t / weight + t, atol=1e-5)


def test_neighbours_reach_beyond_a_place_of_many_rows(rng):
    """Between eight places of sixty rows, from ten neighbours."""
    places = np.array([[x, z] for x in (-1.0, -0.3, 0.3, 1.0) for z in (-0.5, 0.5)])
    X = np.repeat(places, 60, axis=0)
    y = wave(X) + 0.3 * rng.standard_normal(480)
    near = VBGPRegressor(KERNEL, random_state=0, learn_hyperparameters=False, n_neighbors=10)
    every = VBGPRegressor(KERNEL, random_state=0, learn_hyperparameters=False, n_neighbors=480)
    between = np.array([[0.0, 0.0], [-0.6, 0.1]])
    for one, other in zip(
        near.fit(X, y).predict(between, True), every.fit(X, y).predict(between, True), strict=True
    ):
        assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.thorough
def test_hyperparameters_are_learned_from_places(rng):
    """The function between places is known as well as by a process of their means."""
    X, y = make_places(rng, n=1_000, m=40, noise=0.5, alone=0)
    model = VBGPRegressor(random_state=0, max_iter=10).fit(X, y)
    between = rng.uniform(-1.5, 1.5, (200, 2))
    mean, std = model.predict(between, return_std=True, include_noise=False)
    error = mean - wave(between)
    assert np.sqrt(np.mean(error**2)) < 0.3
    assert np.mean(np.abs(error) < 2.0 * std) > 0.85
    assert_allclose(model.noise_variance_, 0.25, rtol=0.2)
    assert model.n_neighbors_ == 40
    assert model._state.posterior.is_uniform  # as few rows have one scale


def test_units_of_y_do_not_matter(rng):
    X, y = make_places(rng, n=600, alone=0)
    model = small(KERNEL).fit(X, y)
    other = small(KERNEL).fit(X, 1_024.0 * y + 1_000.0)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(other.predict(X), 1_024.0 * mean + 1_000.0, rtol=1e-6)
    assert_allclose(other.predict(X, return_std=True)[1], 1_024.0 * std, rtol=1e-4)


def test_what_is_judged_is_one_row_given_the_others(rng):
    """Or given those of other places alone."""
    X, y = make_places(rng)
    Z, found = gather(X, y)
    process = Process(KERNEL, 0.2, np.inf)
    given = Z, found.y, np.random.RandomState(0), found.noise
    sample = PlacesSample(*given, members=found.members)
    parts, targets, share = sample.leave_out(Mixture.of(process), np.ones(2), 1_000, 15)
    assert_array_equal(share, found.members.share[:15])
    assert_array_equal(sample.judged_inputs[:15], Z[found.members.row[:15]])
    for j, i in enumerate(found.members.row[:15]):
        own = (found.owner == i) & np.isclose(y, targets[j])
        assert own.sum() == 1
        gone = own if found.members.n_others[j] else found.owner == i
        others = RowNoise.plain(int(np.sum(~gone)))
        given = process.factorise(X[~gone], y[~gone], others).moments(Z[i : i + 1])
        assert_allclose(parts.mean[j], given.mean, atol=1e-5)
        assert_allclose(parts.variance[j], given.variance, atol=1e-5)


def test_neighbours_of_a_stream_are_places(rng):
    """As many as there are stay neighbours, however many rows come to them."""
    X, y = make_places(rng)
    model = VBGPRegressor(KERNEL, learn_hyperparameters=False, random_state=0).fit(X, y)
    model._state = replace(model._state, k=402)
    model.partial_fit(X[:3], y[:3] + 0.1)
    assert model._state.k == 402


def test_a_stream_learns_again_when_places_are_too_many_to_be_neighbours(rng):
    """However many rows there are."""
    X, y = make_places(rng)
    model = small(KERNEL, **FIXED).fit(X, y)
    learner, state = model._learner(), replace(model._state, k=25)
    known, new = (
        Rows().plus(X[:9], y[:9]),
        Rows().plus(X[:9] + rng.uniform(1.0, 2.0, (9, 1)), y[:9]),
    )
    assert len(state.known) < 25 < len(state.rows)
    assert is_restart_due(learner, state, new)
    assert not is_restart_due(learner, state, known)
    assert not is_restart_due(learner, replace(state, k=455), new)
    assert not is_restart_due(learner, replace(state, k=10), new)


def test_places_have_no_cells(rng):
    X, y = make_places(rng)
    state = small(KERNEL, **FIXED).fit(X, y)._state
    learner = SimpleNamespace(rival_k=(64, 128), learn_hyperparameters=True, n_outputs=0)
    assert not _may_pay(learner, state)
    assert _may_pay(learner, replace(state, gathers=False))


def test_neither_order_nor_calls_matter(rng):
    X, y = make_places(rng)
    model = small(KERNEL, **FIXED).fit(X, y)
    order = rng.permutation(450)
    others = [small(KERNEL, **FIXED).fit(X[order], y[order]), small(KERNEL, **FIXED)]
    for rows in np.array_split(order, 5):
        others[1].partial_fit(X[rows], y[rows])
    others.append(pickle.loads(pickle.dumps(model)))
    for other in others:
        assert other._state.known is not other._state.rows
        for one, two in zip(
            model.predict(X + 0.1, True), other.predict(X + 0.1, True), strict=True
        ):
            assert_allclose(one, two, rtol=1e-7)


def test_a_stream_forgets_rows_of_places(rng):
    X, y = make_places(rng, n=900)
    model = small(KERNEL, forgetting=450, **FIXED)
    for rows in np.array_split(np.arange(900), 4):
        model.partial_fit(X[rows], y[rows])
    expected = small(KERNEL, **FIXED).fit(X[450:], y[450:])
    for one, other in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-6)


def test_rows_at_many_places_stay_as_they_are(rng):
    X, y = make_places(rng)
    assert gather_rows(X[:400], y[:400], None) is None
    places = rng.uniform(size=(226, 2))
    assert len(gather_rows(np.repeat(places[1:], 2, axis=0), y, None).y) == 225
    assert gather_rows(np.vstack([places, places[2:]]), y, None) is None


def test_copies_are_not_gathered(rng):
    """Most rows of a place agree, where those of others do not."""
    X, y = np.repeat(rng.uniform(size=(30, 2)), 25, axis=0), rng.standard_normal(750)
    assert len(gather_rows(X, y, RowNoise.plain(750)).y) == 30
    copies = RowNoise(np.tile([100.0] + 24 * [1.0], 30), np.zeros(750))
    assert not discount_copies(X, y, copies).can_part
    assert gather_rows(X, y, copies) is None


def test_places_whose_noise_differs_stay_as_they_are(rng):
    """While neighbours reach beyond them."""
    X = np.repeat(rng.uniform(size=(60, 2)), 20, axis=0)
    std = np.repeat(np.where(np.arange(60) % 2 == 0, 0.1, 1.0), 20)
    y = std * rng.standard_normal(1_200)
    assert gather_rows(X, y, None) is None
    assert len(gather_rows(X, y / std, None).y) == 60
    more = np.concatenate([X, X]), np.concatenate([y, y + 1e-9])
    assert len(gather_rows(*more, None).y) == 60


def test_gain_of_a_variance_for_each_place(rng):
    """By quadrature over each of them, for normal errors about the means of their places."""
    weight, std = np.array([3.0, 8.0, 30.0]), np.array([0.2, 1.0, 0.5])
    errors = [s * rng.standard_normal(int(w)) for s, w in zip(std, weight, strict=True)]
    scatter = np.array([np.sum((e - e.mean()) ** 2) for e in errors])
    dof = weight - 1.0
    pooled = scatter.sum() / dof.sum()
    gain = 0.0
    for s, d in zip(scatter, dof, strict=True):

        def ratio(v, s=s, d=d):
            density = -0.5 * (d * np.log(v / pooled) + s / v - s / pooled)
            return np.exp(density) * invgamma.pdf(v, 2.5, scale=2.5 * pooled)

        gain += np.log(quad(ratio, 0.0, np.inf, limit=200, epsrel=1e-10)[0])
    assert_allclose(measure_gain_by_place(scatter, weight), gain / dof.sum(), rtol=1e-6)
    assert (
        measure_gain_by_place(np.zeros(3), weight)
        == measure_gain_by_place(scatter, np.ones(3))
        == 0.0
    )


def test_white_noise_of_a_kernel_is_another_in_each_row(rng):
    X, y = make_places(rng)
    model = small(KERNEL + White(0.1), **FIXED).fit(X, y)
    assert model.n_neighbors_ == 450


def test_outputs_each_have_their_places(rng):
    X, y = make_places(rng)
    Y = np.column_stack([y, np.where(np.arange(450) % 9 == 0, np.nan, 2.0 - y**2)])
    model = small(RBF([1.0, 1.0]), **FIXED).fit(X, Y)
    alone = small(RBF([1.0, 1.0]), **FIXED).fit(X[~np.isnan(Y[:, 1])], Y[~np.isnan(Y[:, 1]), 1])
    assert_allclose(model.predict(X)[:, 1], alone.predict(X), rtol=1e-7)
    assert_array_equal(model.predict(X).shape, (450, 2))
