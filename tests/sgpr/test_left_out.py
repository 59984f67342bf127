"""loo_predict: each row from the others, at the hyperparameters of all."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skvbgp import VBDTCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp._core.linalg import JITTER
from skvbgp._core.partition import group_rows
from skvbgp.base import Targets
from skvbgp.kernels import RBF
from skvbgp.sgpr import _settings
from skvbgp.sgpr._blocks import BlockRows, Division
from skvbgp.sgpr._bound import Shared
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._memory import Memory, remember
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws
from skvbgp.sgpr._sharded import gather_data
from tests.oracles import sgpr as oracles
from tests.row_keepers import check_others_are_not_left_out
from tests.sgpr.cases import GIVEN, INDEPENDENT, REGRESSORS, make_data, small
from tests.sgpr.problems import KINDS, small_problem, state_of

pytestmark = pytest.mark.usefixtures("quick_block_start")

every = pytest.mark.parametrize("cls", REGRESSORS)
independent = pytest.mark.parametrize("cls", INDEPENDENT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.every_nth("kind", 2)
def test_twin(kind):
    problem = small_problem(kind)
    remembered, data = state_of(problem).remembered, problem.data
    mean, variance = remembered.predict(ClosedForm(), data, data.blocks)
    known = *problem.scaled, problem.Z, *problem.theta, problem.C, JITTER
    expected_mean, expected_variance = oracles.leave_one_out(*known)
    assert_allclose(mean, expected_mean, atol=1e-9)
    assert_allclose(variance, expected_variance, atol=1e-9)


def leave_out_by_brute_force(model, X, targets, i):
    """Mean and standard deviation of an observation at row i of what the model makes of the others.

    All that is not made of the rows is held: hyperparameters, inducing inputs, frames and blocks.
    """
    state, learner = model._state, model._learner()
    memory, blocks = state.memory, state.blocks
    if isinstance(memory, Mixture):
        kept = np.flatnonzero(np.any(state.kept_rows[0] != X[i], axis=1))
        members = [np.arange(len(state.kept_rows[0]))[group] for group in memory.groups]
        groups = tuple(np.flatnonzero(np.isin(kept, group)) for group in members)
        memory = replace(memory, rows=memory.rows.take(kept), groups=groups)
    else:
        others = np.delete(np.arange(len(X)), i)
        data = gather_data(X[others], targets[others], state.model.coordinates, state.target)
        if blocks is not None:
            labels = blocks.lookup(state.model.coordinates.scaled(X[others]))
            index = group_rows(labels, blocks.partition.n_blocks)
            data = replace(data, blocks=index)
            if isinstance(blocks, BlockRows):
                parts = zip(*((X[others][b], targets[others][b]) for b in index), strict=True)
                blocks = BlockRows(blocks.partition, blocks.unit, *parts)
        memory = remember(Shared(state.model, state.parameters), data, state.draw_rule, n_jobs=None)
    rest = replace(state, memory=memory, blocks=blocks, reference=state.target)
    mean, variance = learner.posterior(rest).moments(X[i : i + 1], True)
    if targets.variance is not None:
        variance = variance + targets.variance[i]
    return mean[0], np.sqrt(variance[0])


def check_brute_force(model, X, y, weight=None, y_var=None):
    mean, std = model.fit(X, y, sample_weight=weight, y_var=y_var).loo_predict(
        X, y, sample_weight=weight, y_var=y_var
    )
    targets = Targets(y, weight, variance=y_var)
    for i in (0, 7, len(y) - 1):
        expected = leave_out_by_brute_force(model, X, targets, i)
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)
    if isinstance(model._state.memory, Memory) and isinstance(model._state.blocks, Division):
        if not isinstance(model._state.blocks, BlockRows):
            return  # all rows are needed
    alone = model.loo_predict(
        X[7:9],
        y[7:9],
        sample_weight=None if weight is None else weight[7:9],
        y_var=None if y_var is None else y_var[7:9],
    )
    assert_allclose(alone, [mean[7:9], std[7:9]], rtol=1e-9)


@every
@pytest.mark.parametrize("solver", ["exact", "collapsed", "stochastic"])
@pytest.mark.parametrize("psi", ["closed_form", "sampled"])
@pytest.mark.in_turn("psi")
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("solver", 2)
def test_as_the_others_alone(cls, solver, psi):
    check_brute_force(small(cls, solver, psi=psi), *make_data())


@pytest.mark.parametrize("limit", ["_CLOSED_FORM_EXPONENTIALS", "_CLOSED_FORM_INDUCING"])
def test_rows_are_remembered_by_draws_and_predicted_in_closed_form(limit, monkeypatch):
    """And the other way round."""
    monkeypatch.setattr(_settings, limit, 0)
    model = small(VBDTCRegressor)
    check_brute_force(model, *make_data())
    rule = model._state.draw_rule
    assert isinstance(rule, CommonDraws if limit == "_CLOSED_FORM_EXPONENTIALS" else ClosedForm)


@every
@pytest.mark.parametrize("solver", ["exact", "collapsed"])
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("solver", 2)
def test_weights_and_known_noise(cls, solver, rng):
    X, y = make_data()
    weight, y_var = rng.uniform(0.2, 3.0, len(y)), rng.uniform(0.0, 2.0, len(y))
    check_brute_force(small(cls, solver), X, y, weight, y_var)


@independent
def test_as_a_fit_without_the_row(cls):
    """By what is public: with all that is given, and next to no uncertainty of it."""
    X, y = make_data(30)
    y = y - y.mean()
    model = cls(
        inducing_inputs=X[::3] + 0.1,
        learn_hyperparameters=False,
        normalize_y=False,
        **GIVEN | {"hyperparameter_variance": 1e-13},
    )
    if cls is not VBDTCRegressor:
        model.set_params(noise_kernel=0.4 * RBF([1.5, 2.5]))
    mean, std = model.fit(X, y).loo_predict(X, y)
    for i in (0, 7, 29):
        others = np.arange(30) != i
        expected = clone(model).fit(X[others], y[others]).predict(X[i : i + 1], return_std=True)
        assert_allclose([mean[i], std[i]], np.ravel(expected), atol=1e-8)


@every
@pytest.mark.parametrize("solver", ["exact", "collapsed"])
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("solver", 2)
def test_rows_in_the_order_given(cls, solver):
    """Equal rows share a prediction, and are left out together; those without weight have none."""
    X, y = make_data()
    X[5], y[5] = X[4], y[4]
    weight = np.ones(len(y))
    weight[[3, 20]] = 0.0, 2.0
    model = small(cls, solver).fit(X, y, sample_weight=weight)
    mean, std = model.loo_predict(X, y, sample_weight=weight)
    assert mean.shape == std.shape == (40,)
    assert_array_equal(np.flatnonzero(np.isnan(mean)), [3])
    assert mean[4] == mean[5]
    copies = np.append(np.delete(np.arange(40), 3), 20)
    again = np.stack(model.loo_predict(X[copies], y[copies]))
    assert_allclose(again, np.stack([mean, std])[:, copies], rtol=1e-9)
    merged = np.delete(np.arange(40), [3, 4])
    targets = Targets(y[merged], np.where(merged == 5, 2.0, weight[merged]))
    expected = leave_out_by_brute_force(model, X[merged], targets, 3)
    assert_allclose([mean[5], std[5]], expected, atol=1e-8)


@independent
def test_a_stream_whose_hyperparameters_stay(cls):
    X, y = make_data()
    fixed = {"inducing_inputs": X[::4] + 0.1, "learn_hyperparameters": False}
    model = cls(**fixed, **GIVEN).fit(X[:33], 5.0 * y[:33]).partial_fit(X[33:], y[33:])
    y = np.append(5.0 * y[:33], y[33:])
    mean, std = model.loo_predict(X, y)
    for i in (0, 39):
        expected = leave_out_by_brute_force(model, X, Targets(y), i)
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)


def test_blocks_of_a_stream():
    X, y = make_data()
    order = np.argsort(X[:, 0])
    X, y = X[order], y[order]
    fixed = {"inducing_inputs": X[::4] + 0.1, "learn_hyperparameters": False, "n_blocks": 1}
    model = VBPICRegressor(**fixed, **GIVEN).fit(X[:20] - 3.0, y[:20]).partial_fit(X[20:], y[20:])
    X = np.concatenate([X[:20] - 3.0, X[20:]])
    mean, std = model.loo_predict(X, y)
    for i in (0, 25):
        expected = leave_out_by_brute_force(model, X, Targets(y), i)
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)


def test_a_stream_that_learns():
    """Of what was remembered at other hyperparameters, a row takes away about what it has said."""
    X, y = make_data(120)
    model = small(VBDTCRegressor, max_iter=20).fit(X[:80], y[:80])
    model.partial_fit(X[80:], y[80:])
    mean, std = model.loo_predict(X, y)
    for i in (0, 30, 60, 90):
        expected, _ = leave_out_by_brute_force(model, X, Targets(y), i)
        assert abs(mean[i] - expected) < std[i]


@every
@pytest.mark.every_nth("cls", 2)
def test_several_outputs(cls):
    X, y = make_data()
    Y = np.column_stack([y, y**2])
    Y[:5, 1] = np.nan
    mean, std = small(cls).fit(X, Y).loo_predict(X, Y)
    assert mean.shape == std.shape == (40, 2)
    assert_array_equal(np.isnan(mean), np.isnan(Y))
    alone = small(cls).fit(X[5:], Y[5:, 1]).loo_predict(X[5:], Y[5:, 1])
    assert_allclose([mean[5:, 1], std[5:, 1]], alone, rtol=1e-9)


def test_rows_that_are_left_out_are_harder(rng):
    """Residuals of rows that a model has seen say less of its errors than these."""
    X, y = make_data(30)
    model = small(VBDTCRegressor, n_inducing=25, max_iter=20).fit(X, y)
    mean, std = model.loo_predict(X, y)
    seen, seen_std = model.predict(X, return_std=True)
    assert np.mean((mean - y) ** 2) > 1.2 * np.mean((seen - y) ** 2)
    assert np.all(std > seen_std)


# -- bad input -----------------------------------------------------------------------------------


@every
@pytest.mark.every_nth("cls", 2)
def test_what_cannot_be_is_refused(cls):
    X, y = make_data()
    with pytest.raises(NotFittedError):
        cls().loo_predict(X, y)
    model = small(cls).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="features"):
        model.loo_predict(X[:, :1], y)
    with pytest.raises(ValueError, match="inconsistent"):
        model.loo_predict(X, y[1:])
    with pytest.raises(ValueError, match="2 outputs"):
        model.loo_predict(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="NaN"):
        model.loo_predict(X, np.where(y > y[0], np.nan, y))
    with pytest.raises(ValueError, match="sample_weight"):
        model.loo_predict(X, y, sample_weight=-1.0)
    with pytest.raises(ValueError, match="y_var"):
        model.loo_predict(X, y, y_var=y[:3])
    assert vars(model) == before


@every
@pytest.mark.every_nth("cls", 2)
def test_rows_that_the_model_has_not_seen(cls):
    """Where it keeps rows."""
    X, y = make_data()
    exact = small(cls, "exact").fit(X, y)
    check_others_are_not_left_out(exact, X, y)
    with pytest.raises(ValueError, match="new to it"):
        exact.loo_predict(X, y, y_var=2.0)


@independent
def test_rows_that_would_say_too_much(cls):
    X, y = make_data()
    fixed = {"inducing_inputs": X, "learn_hyperparameters": False}
    model = cls(**fixed, **GIVEN | {"noise_variance": 1e-4}).fit(X[:20], y[:20])
    with pytest.raises(ValueError, match="more than all that the model knows"):
        model.loo_predict(X, y)


@pytest.mark.parametrize("solver", ["collapsed", "stochastic"])
@pytest.mark.every_nth("solver", 2)
def test_blocks_that_keep_their_rows(solver):
    X, y = make_data()
    model = small(VBPICRegressor, solver).fit(X, y)
    check_others_are_not_left_out(model, X, y)


def test_blocks_without_rows_need_all_of_them():
    X, y = make_data()
    model = small(VBPITCRegressor).fit(X, y)
    with pytest.raises(ValueError, match="give all rows of the fit"):
        model.loo_predict(X[1:], y[1:])
    model.partial_fit(X + 5.0, y)
    with pytest.raises(ValueError, match="known of a single fit"):
        model.loo_predict(X, y)


@pytest.mark.parametrize("place", range(4))
def test_collections_are_refused(place):
    array = pytest.importorskip("dask.array")
    X, y = make_data()
    model = small(VBDTCRegressor).fit(X, y)
    given = [X, y, np.ones(40), np.ones(40)]
    given[place] = array.from_array(given[place], chunks=20)
    with pytest.raises(TypeError, match="loo_predict needs rows in memory"):
        model.loo_predict(*given)
