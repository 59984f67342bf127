"""The choice between a kernel that has been found and the default, for predictions of new rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from skvbgp import VBPICRegressor, VBPITCRegressor
from skvbgp.base import RowSaysMoreError, Targets
from skvbgp.kernels import Matern
from skvbgp.sgpr import _kernel_search, _learner
from skvbgp.sgpr._kernel_search import Scores, choose_for_new_rows, judge_by_new_rows
from skvbgp.sgpr._sharded import gather_data
from tests.sgpr.cases import SOLVERS, assert_same_model, make_data, small

pytestmark = pytest.mark.usefixtures("quick_block_start")
quick = pytest.mark.usefixtures("quick_searches")


def see(model, X, y, known):
    """Data of the rows that a model has been fitted to, in its blocks, and its own rule."""
    state, learner = model._state, model._learner()
    data = gather_data(X, Targets(y, variance=known), state.model.coordinates, state.target)
    blocks = state.blocks.group(state.model.coordinates.scaled(X))
    return state, replace(data, blocks=blocks), learner._rule_of_predictions(state)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.every_nth("solver", 3)
def test_rows_judge_by_what_is_predicted_from_the_others(rng, solver):
    X, y = make_data()
    known = rng.uniform(0.0, 2.0, len(y))
    model = small(VBPITCRegressor, solver, noise_kernel=Matern(nu=0.5)).fit(X, y, y_var=known)
    scores = judge_by_new_rows(*see(model, X, y, known))
    expected = norm.logpdf(y, *model.loo_predict(X, y, y_var=known))
    on_own_scale = scores.log_density - np.log(model._state.target.unit)
    assert_allclose(np.sort(on_own_scale), np.sort(expected), rtol=1e-8)
    assert_allclose(scores.weight, 1.0)


@pytest.mark.parametrize(("lead", "is_kept"), [(0.3, True), (0.1, False), (-0.3, False)])
def test_what_was_found_has_to_lead_by_more_than_chance(rng, monkeypatch, lead, is_kept):
    """By two standard errors, which are .1 here."""
    noise = rng.standard_normal(100)
    noise = (noise - noise.mean()) / noise.std()
    scores = {"found": Scores(lead + noise, np.ones(100)), "default": Scores(0 * noise, noise**2)}
    monkeypatch.setattr(_kernel_search, "judge_by_new_rows", lambda state, *_: scores[state])
    chosen = choose_for_new_rows("found", "default", None, None)
    assert chosen == ("found" if is_kept else "default")


def test_what_cannot_be_judged_is_not_taken_and_other_errors_are_errors(monkeypatch):
    def judge(error):
        def fail(*_):
            raise error

        monkeypatch.setattr(_kernel_search, "judge_by_new_rows", fail)
        return choose_for_new_rows("found", "default", None, None)

    assert judge(RowSaysMoreError("drowned")) == "default"
    with pytest.raises(ValueError, match="shapes"):
        judge(ValueError("shapes"))


@quick
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.every_nth("solver", 3)
def test_the_default_is_that_of_a_model_without_a_search(monkeypatch, solver):
    X, y = make_data(40)
    monkeypatch.setattr(Scores, "leads", lambda scores, other, n_errors=1.0: n_errors == 1.0)
    auto, default = (
        small(VBPITCRegressor, solver, noise_kernel=kernel).fit(X, y) for kernel in ("auto", None)
    )
    assert_same_model(default, auto, X)


@quick
@pytest.mark.parametrize("cls", [VBPICRegressor, VBPITCRegressor])
@pytest.mark.every_nth("cls", 2)
def test_who_predicts_with_the_block_has_no_second_training(monkeypatch, cls):
    X, y = make_data(40)
    tried = []
    monkeypatch.setattr(Scores, "leads", lambda *_: True)
    monkeypatch.setattr(
        _learner, "choose_for_new_rows", lambda *states: tried.append(states) or states[0]
    )
    model = small(cls, noise_kernel="auto").fit(X, y)
    assert len(tried) == (cls is VBPITCRegressor)
    model.set_params(warm_start=True).fit(X, y)  # the fit before has chosen
    assert len(tried) == (cls is VBPITCRegressor)
    learner = model._learner()
    trainings = learner.max_passes(y) / replace(learner, local=True).max_passes(y)
    assert trainings == (2 if cls is VBPITCRegressor else 1)


@pytest.mark.thorough
def test_a_kernel_that_explains_blocks_only_is_not_taken():
    """What is found predicts new rows worse by .03, though its bound is higher."""
    X, y = make_data(700, d=3)
    known, new = slice(300), slice(300, None)
    options = {"n_inducing": 30, "solver": "collapsed", "max_iter": 20, "random_state": 0}
    density = {}
    for kernel in (None, "auto"):
        model = VBPITCRegressor(noise_kernel=kernel, **options).fit(X[known], y[known])
        density[kernel] = model.log_predictive_density(X[new], y[new]).mean()
    assert density["auto"] >= density[None] - 0.01
