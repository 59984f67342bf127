"""The search for the kernel of correlated noise, on rows whose kernel is known."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp import VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.kernels import RBF, Matern
from skvbgp.sgpr import _kernel_search
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._kernel_search import (
    Judges,
    Scores,
    judge,
    leave_one_out,
    leave_out,
    scan_left_out,
)
from tests.sgpr.cases import BLOCKED, SOLVERS, assert_same_model, make_data, small

pytestmark = pytest.mark.usefixtures("quick_block_start")
quick = pytest.mark.usefixtures("quick_searches")
ROUGH = Matern([3.0, 9.0], nu=0.5).bind(2)
blocked = pytest.mark.parametrize("cls", BLOCKED)


def draw_rows(kernel, n=200, noise=1e-2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(n))
    return X, L @ rng.standard_normal(n)


def make_chunk(n, n_blocks):
    """Data of n rows in equal blocks, each row with its number as y."""
    frame = Coordinates(np.zeros(1), np.ones(1)), Target(0.0, 1.0)
    blocks = np.array_split(np.arange(n), n_blocks)
    return Data(np.zeros((n, 1)), np.arange(float(n)), *frame, blocks=blocks)


def kind(model):
    """The form of the learned kernel: classes and roughness, without values."""
    return [
        (type(part).__name__, getattr(part, "nu", None)) for part in model.noise_kernel_.kernels
    ]


@pytest.mark.parametrize("known", [0.0, np.array([0.0, 0.4, 2.0, 0.1, 30.0, 0.0])])
def test_rows_that_are_left_out_one_at_a_time(rng, known):
    """Against the conditional normal of each, given copies of the others."""
    X, y = rng.uniform(-1.0, 1.0, (6, 2)), rng.standard_normal(6)
    K, noise, weight = (0.8 * RBF(0.7))(X), 0.3 + known, np.array([1, 2, 1, 3, 1, 1])
    own, expected = noise * np.ones(6), []
    for i in range(6):
        rest = np.repeat(np.delete(np.arange(6), i), np.delete(weight, i))
        gain = np.linalg.solve(K[np.ix_(rest, rest)] + np.diag(own[rest]), K[rest, i])
        variance = K[i, i] + own[i] - gain @ K[rest, i]
        error = y[i] - gain @ y[rest]
        expected.append(-0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance))
    assert_allclose(leave_one_out(K, noise, weight, y), expected, rtol=1e-10)
    if np.ndim(known) == 0:
        at_two = scan_left_out(K, np.array([noise, 2.0]), weight, y)
        assert_allclose(at_two[0], expected, rtol=1e-10)
        assert_allclose(at_two[1], leave_one_out(K, 2.0, weight, y), rtol=1e-10)


def test_a_score_may_take_more_noise_but_not_less(rng):
    """Rows that are equal and have different targets contradict any kernel without noise."""
    X = np.repeat(rng.uniform(-1.0, 1.0, (10, 2)), 2, axis=0)
    y = rng.standard_normal(20)
    kernel, everything = (1.0 * RBF(1.0)).bind(2), np.ones(20, dtype=bool)
    frame = Coordinates(np.zeros(2), np.ones(2)), Target(0.0, 1.0)
    judges = [Judges(X, Data(X, y, *frame).rows(slice(None)), everything)]
    at = {v: leave_one_out(kernel(X), v, np.ones(20), y).mean() for v in (1e-6, 0.1, 5.0)}
    assert_allclose(judge(kernel, 1e-6, judges).mean, at[0.1])
    assert at[0.1] > at[1e-6] + 100.0
    assert_allclose(judge(kernel, 5.0, judges).mean, at[5.0])


def test_a_lead_is_more_than_chance(rng):
    weight = np.array([1.0, 2.0, 1.0, 3.0, 2.0])
    plain, noisy = np.zeros(5), rng.standard_normal(5)
    assert not Scores(plain, weight).leads(Scores(plain, weight))
    assert Scores(plain + 0.1, weight).leads(Scores(plain, weight))
    repeated = np.repeat(noisy, weight.astype(int))
    error = repeated.std() / 3.0  # of the mean of nine rows
    for lead, expected in ((1.01 * error, True), (0.99 * error, False)):
        better = noisy - repeated.mean() + lead
        assert Scores(better, weight).leads(Scores(plain, weight)) is expected


@quick
@blocked
@pytest.mark.every_nth("cls", 2)
def test_the_default_stays_where_no_kernel_leads(cls, monkeypatch):
    monkeypatch.setattr(Scores, "leads", lambda *_: False)
    X, y = make_data(60)
    model, default = (small(cls, noise_kernel=kernel).fit(X, y) for kernel in ("auto", None))
    assert_same_model(default, model, X)


@pytest.mark.parametrize("n_blocks, n_judges", [(1, 1), (3, 3), (4, 2), (5, 3), (40, 8)])
def test_kernels_are_not_judged_by_rows_that_they_know(n_blocks, n_judges):
    fitted, judges = leave_out(make_chunk(400, n_blocks), np.random.RandomState(0))
    known = np.concatenate([rows.y for rows in fitted])
    judging = np.concatenate([judge.rows.y[judge.out] for judge in judges])
    assert len(judges) == n_judges
    assert len(np.intersect1d(known, judging)) == 0
    assert len(judging) >= 0.2 * len(known)


@pytest.mark.thorough
@pytest.mark.parametrize("solver", ["exact", "collapsed"])
def test_the_kernel_of_rough_rows_is_found(solver):
    X, y = draw_rows(ROUGH)
    options = {"n_inducing": 500 if solver == "exact" else 20, "max_iter": 2, "solver": solver}
    model = VBPICRegressor(noise_kernel="auto", n_blocks=2, random_state=0, **options)
    assert ("Matern", 0.5) in kind(model.fit(X, y))


@pytest.mark.thorough
def test_the_kernel_of_rough_rows_predicts_better_than_the_default():
    X, y = draw_rows(ROUGH, 330, noise=1e-3)
    known, new = slice(250), slice(250, None)
    scores = []
    for kernel in (None, "auto"):
        model = VBPICRegressor(noise_kernel=kernel, max_iter=15, random_state=0)
        model.fit(X[known], y[known])
        scores.append(model.log_predictive_density(X[new], y[new]).mean())
    assert scores[1] > scores[0] + 0.02


@pytest.mark.thorough
def test_the_kernel_of_smooth_rows_is_smooth():
    X, y = draw_rows((1.0 * RBF([1.0, 2.0])).bind(2))
    model = VBPICRegressor(20, noise_kernel="auto", n_blocks=2, max_iter=2, random_state=0)
    assert ("Matern", 0.5) not in kind(model.fit(X, y))


@pytest.mark.thorough
@quick
@blocked
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.in_turn("cls")
def test_a_fit_repeats_and_survives_pickling_and_cloning(cls, solver):
    X, y = make_data()
    model = small(cls, solver, noise_kernel="auto").fit(X, y)
    assert model.noise_kernel == "auto"
    for other in (pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        assert_same_model(model, other, X)
        assert_allclose(other.noise_kernel_(X), model.noise_kernel_(X), rtol=1e-10)


@quick
@blocked
@pytest.mark.in_turn("cls")
def test_a_weight_is_a_repetition(cls, rng):
    X, y = make_data()
    weight = rng.integers(0, 3, len(y))
    model = small(cls, noise_kernel="auto")
    expected = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    weighted = model.fit(X, y, sample_weight=weight)
    assert kind(weighted) == kind(expected)
    assert_same_model(expected, weighted, X, rtol=1e-8)


@quick
@blocked
@pytest.mark.in_turn("cls")
@pytest.mark.thorough
def test_the_search_knows_the_noise_of_rows(cls):
    """Rows whose noise is huge do not decide, and leave the model of the others finite."""
    X, y = make_data(60)
    bad = np.arange(60) % 3 == 0
    model = small(cls, noise_kernel="auto")
    told = clone(model).fit(X, y + 50.0 * bad * np.sin(1e3 * X[:, 0]), y_var=1e4 * bad)
    plain = clone(model).fit(X, y + 50.0 * bad * np.sin(1e3 * X[:, 0]))
    errors = [np.mean((m.predict(X[~bad]) - y[~bad]) ** 2) for m in (told, plain)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.thorough
@quick
@blocked
@pytest.mark.in_turn("cls")
def test_streams_and_warm_starts_keep_the_kernel(cls, monkeypatch):
    X, y = make_data(120)
    model = small(cls, noise_kernel="auto").fit(X[:60], y[:60])
    before = kind(model)
    monkeypatch.setattr(_kernel_search, "try_kernels", None)  # a search would fail
    assert kind(model.partial_fit(X[60:], y[60:])) == before
    assert kind(model.set_params(warm_start=True).fit(X, y)) == before


@pytest.mark.thorough
@quick
@blocked
def test_too_few_rows_have_the_default_kernel(cls):
    X, y = make_data(31)
    model, default = (small(cls, noise_kernel=kernel).fit(X, y) for kernel in ("auto", None))
    assert_same_model(default, model, X)
    rest = make_data(60, seed=1)
    both = [np.concatenate(parts) for parts in zip((X, y), rest, strict=True)]
    expected = small(cls, noise_kernel="auto").fit(*both)
    assert kind(model.partial_fit(*rest)) == kind(expected)


@quick
@blocked
@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("scale", 2)
@pytest.mark.thorough
def test_units_do_not_matter(cls, scale):
    X, y = make_data(60)
    unit = scale * np.array([1.0, 3.0])
    model = small(cls, noise_kernel="auto").fit(X, y)
    other = small(cls, noise_kernel="auto").fit(X * unit, 7.0 * y - 2.0)
    assert kind(other) == kind(model)
    assert_allclose(other.noise_kernel_(X * unit), 49.0 * model.noise_kernel_(X), rtol=1e-3)


def test_independent_noise_has_the_default_kernel():
    """All kernels of the search are the same noise there."""
    X, y = make_data()
    auto, default = (small(VBFITCRegressor, noise_kernel=k).fit(X, y) for k in ("auto", None))
    assert_same_model(default, auto, X)
    rest = make_data(seed=1)
    assert_same_model(default.partial_fit(*rest), auto.partial_fit(*rest), X)


@blocked
@pytest.mark.every_nth("cls", 2)
def test_a_kernel_is_learned_or_given(cls):
    X, y = make_data()
    model, default = (
        small(cls, noise_kernel=kernel, learn_hyperparameters=False).fit(X, y)
        for kernel in ("auto", None)
    )
    assert_same_model(default, model, X)
    with pytest.raises(TypeError, match="kernel"):
        model.set_params(noise_kernel="automatic").fit(X, y)


@pytest.mark.thorough
def test_vbpic_leaves_kernel_and_inducing_inputs_to_the_data_by_default():
    """With half of the rows as inducing inputs, little is left from which noise is learned."""
    X, y = make_data(700, d=3)
    X_new, y_new = make_data(300, d=3, seed=1)
    options = {"max_iter": 10, "random_state": 0}
    model = VBPICRegressor(**options).fit(X[:600], y[:600])
    assert len(model.inducing_inputs_) == 600 // 16
    many = VBPICRegressor(300, **options).fit(X[:600], y[:600])
    densities = [m.log_predictive_density(X_new, y_new).mean() for m in (model, many)]
    assert densities[0] > densities[1]
    model.partial_fit(X[600:], y[600:])
    assert len(model.inducing_inputs_) == 700 // 16
    kernels = [cls().noise_kernel for cls in (VBPICRegressor, VBPITCRegressor, VBFITCRegressor)]
    assert kernels == ["auto", None, None]  # it is judged by what VBPIC predicts


@quick
def test_a_search_that_fails_changes_nothing(monkeypatch):
    X, y = make_data()
    model = small(VBPITCRegressor, noise_kernel=0.5 * RBF(1.0)).fit(X, y)
    before = model.predict(X)
    monkeypatch.setattr(_kernel_search, "try_kernels", None)
    with pytest.raises(TypeError):
        model.set_params(noise_kernel="auto").fit(X, y)
    assert_allclose(model.predict(X), before)
