"""Places of a cell, which are predicted from the same rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.partition import balanced_partition
from skvbgp.gp import _cells, _posterior, _process
from skvbgp.gp._cells import CellPosterior, Cells
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.kernels import RBF, Matern
from tests.derivatives import check_mean_gradient
from tests.functions import check_draws, check_gradients_of_draws, check_same_functions
from tests.gp import test_posterior as neighbours
from tests.gp.cases import make_data, small
from tests.gp.test_scale import PROCESSES, check_places_and_rows_one_by_one, describe
from tests.means import check_means
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

N, K, SIZE, NEAR = 60, 8, 25, 7


def with_cells(posterior, n_cells=4, size=SIZE):
    """The same posterior with cells of its rows."""
    located = posterior.coordinates.scaled(posterior.rows.X) * posterior.weights
    cells = Cells(balanced_partition(located, n_cells)[0], size)
    return CellPosterior(**posterior.__getstate__(), cells=cells)


def make_posterior(rng, kind="plain"):
    """Of 60 rows, 8 of which predict a place without cells."""
    slopes = (0.7,) if kind == "gaps" else ()
    processes = tuple(replace(one, slopes=slopes) for one in PROCESSES)
    posterior = neighbours.make_posterior(rng, K, N)
    posterior = replace(posterior, mixture=replace(posterior.mixture, processes=processes))
    if kind != "plain":
        inputs = rng.choice([0.0, 0.5], (N, 1)) if kind == "gaps" else None
        noise = RowNoise(rng.uniform(0.5, 3.0, N), rng.uniform(0.0, 1.0, N), inputs)
        rows = Rows().plus(posterior.rows.X, posterior.rows.y, noise)
        posterior = replace(posterior, rows=rows)
    return with_cells(posterior)


@pytest.fixture(autouse=True)
def few_near(monkeypatch):
    """Which stay the same within the steps of numerical derivatives."""
    monkeypatch.setattr(_posterior, "_SCALE_ROWS", NEAR)


def measure_distances(posterior, x):
    """Of all rows from a place."""
    shift = (posterior.rows.X - x) / posterior.coordinates.scale * posterior.weights
    return np.linalg.norm(shift, axis=1)


def find_known(posterior, x):
    """The rows that predict the cell of a place."""
    located = posterior.coordinates.scaled(x[None]) * posterior.weights
    partition = posterior.cells.partition
    mean = partition.centers[partition.lookup(located)[0]]
    all_located = posterior.coordinates.scaled(posterior.rows.X) * posterior.weights
    return np.argsort(np.linalg.norm(all_located - mean, axis=1))[:SIZE]


@pytest.mark.parametrize("kind", ["plain", "weighted", "gaps"])
@pytest.mark.every_nth("kind", 3)
def test_the_rows_around_a_cell_predict_its_places(kind, rng):
    posterior = make_posterior(rng, kind)
    places = posterior.rows.X[:10] + 0.05 * rng.standard_normal((10, 2))
    parts, n_inside = posterior.measure(places), 0
    for c, process in enumerate(posterior.mixture.processes):
        X, y, t, weight = describe(posterior, process)
        for i, x in enumerate(posterior.coordinates.scaled(places)):
            known, distance = (
                find_known(posterior, places[i]),
                measure_distances(posterior, places[i]),
            )
            if np.argmin(distance) not in known:
                continue
            n_inside += 1
            near = np.argsort(distance[known])[:NEAR]
            K, k = process.covariance(X[known]), process.covariance(X[known], x[None])[:, 0]
            k_own, window = process.covariance.diag(x[None])[0], _process._WINDOW
            rows = y[known], t[known], process.dof, window, near, weight[known]
            mean, variance, factor, evidence = oracle.predict_from_all(K, k, k_own, *rows)
            expected = mean, variance, factor * process.noise, evidence
            found = [part[i, c] for part in parts]
            assert_allclose(found[0], mean, rtol=1e-6)
            assert_allclose(found, expected, rtol=1e-5)  # scales are in single precision
    assert n_inside > 10
    check_means(posterior, places)


@pytest.mark.parametrize("kind", ["plain", "gaps"])
def test_a_row_is_left_out_of_its_cell(kind, rng):
    posterior, index = make_posterior(rng, kind), np.arange(0, N, 7)
    parts, known_noise = posterior.leave_out(index), posterior.noise
    for c, process in enumerate(posterior.mixture.processes):
        X, y, t, weight = describe(posterior, process)
        for at, i in enumerate(index):
            known = find_known(posterior, posterior.rows.X[i])
            (own,) = np.flatnonzero(known == i)
            near = np.argsort(measure_distances(posterior, posterior.rows.X[i])[known])
            rows = y[known], t[known], process.dof, _process._WINDOW, near[1 : NEAR + 1]
            mean, variance, factor, evidence = oracle.leave_out_of_all(
                process.covariance(X[known]), own, *rows, weight[known]
            )
            noise = factor * process.noise
            if kind == "gaps":
                variance += factor * known_noise.inputs[i] @ process.slopes
                noise += known_noise.variance[i]
            found = [part[at, c] for part in parts]
            assert_allclose(found, [mean, variance, noise, evidence], rtol=1e-5, atol=1e-6)


def test_a_place_whose_nearest_row_is_not_of_the_cell_has_neighbours(rng):
    """As of rows that come later, where none had been."""
    posterior = make_posterior(rng)
    far = np.array([[40.0, 40.0], [40.5, 40.0]])
    rows = posterior.rows.plus(far, np.array([1.0, -1.0]))
    posterior = replace(posterior, rows=rows)
    places = np.vstack([far + 0.01, posterior.rows.X[:3]])
    found, expected = posterior.measure(places), posterior.neighbours.measure(places)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one[:2], other[:2], rtol=1e-10)
    assert not np.allclose(found.mean[2:], expected.mean[2:], rtol=1e-6)
    found, expected = (
        one.leave_out(np.array([60, 61])) for one in (posterior, posterior.neighbours)
    )
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-10)
    assert "conditionals" not in vars(posterior.neighbours)  # which would know all rows


def test_places_are_predicted_one_by_one_as_together_whatever_the_order_of_the_rows(rng):
    check_places_and_rows_one_by_one(make_posterior(rng), rng, rtol=1e-5)


def test_cells_go_on_where_their_rows_are_the_same(rng):
    before = make_posterior(rng)
    near = before.rows.X[0]
    places = before.rows.X[:20]
    before.measure(places)
    rows = before.rows.plus(near[None] + 0.01, np.array([5.0]))
    posterior = replace(before, rows=rows)
    posterior.go_on(before)
    for found, part in zip(
        posterior.measure(places), replace(posterior).measure(places), strict=True
    ):
        assert_allclose(found, part, rtol=1e-10)
    kept = [posterior._recall(c).posterior is before._recall(c).posterior for c in range(4)]
    changed = [N in posterior._find_rows(c) for c in range(4)]
    assert_array_equal(kept, ~np.array(changed))
    assert any(kept) and any(changed)
    other = replace(before, mixture=Mixture.of(PROCESSES[1]))
    other.go_on(before)
    assert other._recent is not before._recent


@pytest.mark.parametrize("change", ["forgotten", "weighted"])
def test_known_rows_that_change_are_not_taken_for_the_same(rng, change):
    """The first one is forgotten, so that all others have another number, or counts more."""
    before = make_posterior(rng, "weighted")
    before.leave_out(np.arange(N))
    X, y, noise = before.rows.X, before.rows.y, before.rows.noise
    if change == "forgotten":
        rows = Rows().plus(X[1:], y[1:], noise[1:])
    else:
        weight = np.append(noise.weight[0] + 1.0, noise.weight[1:])
        rows = Rows().plus(X, y, replace(noise, weight=weight))
    posterior = replace(before, rows=rows)
    posterior.go_on(before)
    index = np.arange(len(rows))
    for found, part in zip(
        posterior.leave_out(index), replace(posterior).leave_out(index), strict=True
    ):
        assert_allclose(found, part, rtol=1e-8)


def test_joint_has_the_moments_of_each_row(rng):
    posterior, places = make_posterior(rng), rng.standard_normal((6, 2))
    mean, variance = posterior.moments(places, True)
    joint_mean, covariance = posterior.joint(places, True)
    assert_allclose(joint_mean, mean)
    assert_allclose(np.diagonal(covariance), variance)
    assert np.linalg.eigvalsh(covariance).min() > 0.0


# -- models --------------------------------------------------------------------------------------


def with_model(kernels):
    """A model of 60 rows, half of which have ten times the noise, with cells."""
    X, y = make_data(N)
    y += np.where(X[:, 0] > 0.5, 2.0, 0.2) * np.random.default_rng(1).standard_normal(N)
    model = small(kernels, n_neighbors=K, learn_hyperparameters=False).fit(X, y)
    state = model._state
    processes = tuple(replace(one, dof=4.0) for one in state.mixture.processes)
    mixture = replace(state.mixture, processes=processes, temper=0.2, calibration=1.5)
    cells = with_cells(state.posterior).cells
    model._state = replace(state, mixture=mixture, cells=cells)
    return model, np.vstack([X[:3] + 0.28, X[:2] + 4.15, X[7:9] - 0.12])


KERNELS = [Matern([2.0, 3.0], nu=2.5), RBF([0.5, 1.0])]


@pytest.mark.thorough
def test_functions_have_the_moments_of_predictions():
    model, places = with_model(KERNELS)
    assert isinstance(model._state.posterior, CellPosterior)
    check_draws(model, places, 2000, jointly=False)


def test_functions_are_the_same_wherever_they_are_evaluated():
    model, places = with_model(KERNELS)
    check_gradients_of_draws(model, places)
    check_same_functions(model, places, np.zeros(len(places)))


def test_functions_are_those_of_cells_that_are_factorised_with_inverses(monkeypatch):
    """By the same rows, found by trees."""
    model, places = with_model(KERNELS)
    functions = model.sample_function(30)
    values, slopes = functions(places), functions.gradient(places)

    def condition(posterior):
        vars(posterior).pop("_neighbourhoods", None)
        _ = posterior.conditionals

    monkeypatch.setattr(_posterior.NeighbourPosterior, "factorise_in_blocks", condition)
    expected = with_model(KERNELS)[0].sample_function(30)
    assert_allclose(values, expected(places), rtol=1e-5, atol=1e-6)
    assert_allclose(slopes, expected.gradient(places), rtol=1e-4, atol=1e-5)


def test_what_cells_correct_in_functions_is_kept_and_not_pickled(monkeypatch):
    model, places = with_model(KERNELS)
    functions = model.sample_function(30)
    values = functions(places)
    empty = pickle.loads(pickle.dumps(functions))

    def fail(posterior):
        raise AssertionError("Factorised again.")

    with monkeypatch.context() as patch:
        patch.setattr(_posterior.NeighbourPosterior, "factorise_in_blocks", fail)
        assert_array_equal(functions(places), values)
        assert np.isfinite(functions.gradient(places)).all()
        with pytest.raises(AssertionError, match="again"):
            empty(places)
    assert_allclose(empty(places), values, rtol=1e-10)


def test_gradient_is_that_of_predictions():
    check_mean_gradient(*with_model(KERNELS))


def test_few_rows_all_predict():
    model, places = with_model(KERNELS)
    state = model._state
    state = replace(state, rows=Rows().plus(state.rows.X[:SIZE], state.rows.y[:SIZE]))
    assert type(state.posterior) is not CellPosterior and state.posterior.is_exact


@pytest.fixture
def learned(monkeypatch):
    """Rows of a smooth function without noise: the more neighbours, the better."""
    monkeypatch.setattr("skvbgp.gp.search._many_rows._TRIED_WITH_ALL", ())
    monkeypatch.setattr("skvbgp.gp._learner._COUNTS", (8, 16))
    for name, value in {"_LEAST_ROWS": 100, "_LEAST_SIZE": 60, "_OWN_ROWS": 20}.items():
        monkeypatch.setattr(_cells, name, value)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 3))
    return X, np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + np.cos(X[:, 2])


def test_cells_are_chosen_where_they_predict_better(learned):
    X, y = learned
    model = small(RBF([1.0, 1.0, 1.0]), max_iter=8).fit(X[:200], y[:200])
    assert model.n_neighbors_ == 4 * 16
    state = model._state
    located = state.posterior._locate(X[:200])
    assert_array_equal(np.bincount(state.cells.partition.lookup(located)), 20)
    density = np.mean(model.log_predictive_density(X[200:], y[200:]))
    assert abs(model.log_predictive_density_ - density) < 0.3
    near = replace(state, cells=None)
    errors = [np.abs(y[200:] - one.posterior.moments(X[200:], True)[0]) for one in (state, near)]
    assert np.mean(errors[0]) < 0.7 * np.mean(errors[1])
    mean, std = model.predict(X[200:], return_std=True)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X[200:]), mean)
    assert np.mean(np.abs(y[200:] - mean) < 2.0 * std) > 0.85
    assert np.all(std > 0.0)
    model.partial_fit(X[200:220], y[200:220])  # known at once, with the cells as they are
    assert model._state.cells is state.cells
    assert np.mean(np.abs(y[200:220] - model.predict(X[200:220]))) < 0.2 * np.mean(errors[0][:20])
    left, _ = model.loo_predict()
    assert left.shape == (220,) and np.mean(np.abs(left - np.append(y[:200], y[200:220]))) < 0.1


def test_what_leaves_cells_out(learned, monkeypatch):
    X, y = learned
    monkeypatch.setattr(_cells, "_LEAST_GAIN", -np.inf)
    given = small(RBF([1.0, 1.0, 1.0]), n_neighbors=16, max_iter=1)
    assert given.fit(X[:120], y[:120]).n_neighbors_ == 16
    assert small(RBF([1.0, 1.0, 1.0]), max_iter=1).fit(X[:90], y[:90]).n_neighbors_ == 16


@pytest.mark.thorough
def test_outputs_that_learn_from_each_other_and_sums_have_no_cells(learned, monkeypatch):
    X, y = learned
    monkeypatch.setattr(_cells, "_LEAST_GAIN", -np.inf)
    Y = np.column_stack([y, np.cos(y)])
    joint = small(RBF([1.0, 1.0, 1.0]), output_covariance="learned", max_iter=1)
    assert joint.fit(X[:120], Y[:120]).n_neighbors_ <= 16
    parts = small(RBF([1.0, 1.0, 1.0]), n_inducing=10, max_iter=1).fit(X[:120], y[:120])
    assert parts.n_inducing_ == 10 and parts.n_neighbors_ <= 16


@pytest.mark.thorough
def test_how_many_cells_there_are_and_how_many_rows_predict_their_places(learned, monkeypatch):
    """At least so many rows; fewer cells if factors of so many took too long."""
    X, y = learned
    monkeypatch.setattr(_cells, "_LEAST_GAIN", -np.inf)
    monkeypatch.setattr("skvbgp.gp.search._many_rows._LEAST_COUNT_RISE", 100.0)
    model = small(RBF([1.0, 1.0, 1.0]), max_iter=1)
    state = model.fit(X[:200], y[:200])._state
    assert (state.k, model.n_neighbors_, state.cells.partition.n_blocks) == (8, 60, 10)
    monkeypatch.setattr(_cells, "_MOST_WORK", 4 * 60**3)
    assert model.fit(X[:200], y[:200])._state.cells.partition.n_blocks == 4
    monkeypatch.setattr(_cells, "_MOST_ROWS", 190)
    assert model.fit(X[:200], y[:200]).n_neighbors_ == 8


def test_what_cells_have_to_gain_rises_with_their_work(learned, monkeypatch):
    """Some rows of every cell are judged; two processes take twice the work of one."""
    X, y = learned
    judged = []

    def judge(state, rows, index):
        judged.append(index)
        return (0.0, 0.0) if state.cells is None else (0.5, 0.5)

    model = small(RBF([1.0, 1.0, 1.0]), max_iter=2).fit(X[:200], y[:200])
    changes = {"judge_state": judge, "_MOST_WORK": 10 * 64**3, "_JUDGED_NEIGHBOURS": 6 * 16}
    for name, value in changes.items():
        monkeypatch.setattr(_cells, name, value)
    one = replace(model._state, cells=None)
    assert one.k == 16
    two = replace(one, mixture=Mixture.equal(2 * one.mixture.processes))
    cases = [(0.49, one, True), (0.51, one, False), (0.24, two, True), (0.26, two, False)]
    for least, state, is_worth_it in cases:
        monkeypatch.setattr(_cells, "_LEAST_GAIN", least)
        found = _cells.try_cells(model._learner(), state, np.random.RandomState(0))
        assert (found.cells is not None) == is_worth_it
    assert_array_equal(judged[0], judged[1])
    assert len(np.unique(judged[0])) == 10 * 6


def test_cells_that_gain_nothing_leave_everything_as_it_is(learned, monkeypatch):
    X, y = learned
    monkeypatch.setattr(_cells, "_LEAST_GAIN", np.inf)
    model = small(RBF([1.0, 1.0, 1.0]), max_iter=1).fit(X[:200], y[:200])
    assert model.n_neighbors_ == 16
    monkeypatch.setattr(_cells, "_LEAST_ROWS", 200)
    again = small(RBF([1.0, 1.0, 1.0]), max_iter=1).fit(X[:200], y[:200])
    assert_array_equal(again.predict(X), model.predict(X))  # judged or not
