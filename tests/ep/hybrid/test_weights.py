"""Weights of rows: a weight is so many copies, zero leaves out, and fractions count as such."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_ndtr
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp import HybridGPLVM, VBGPRegressor
from skvbgp.ep._likelihoods import LIKELIHOODS
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Sites
from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._objective import (
    ColumnSites,
    HybridObjective,
    HybridSolution,
    solve,
    split_copies,
)
from skvbgp.ep.hybrid._recognition import Recognition, RowLatents
from skvbgp.kernels import Matern
from tests.derivatives import assert_slopes
from tests.ep.cases import INSTANCES, make_labels
from tests.ep.hybrid.problems import JITTER, dense_arguments, small_problem
from tests.oracles import ep, hybrid
from tests.weights import check_refused, draw_weights

TIMES = np.array([1, 3, 2, 1, 4, 1, 2])
COPIES = np.repeat(np.arange(7), TIMES)
FRACTIONS = np.array([0.3, 2.0, 1.0, 0.05, 3.5, 0.7, 1.2])
TOL = 1e-11

each = pytest.mark.parametrize("free", [False, True], ids=["map", "free"])


def repeat(data, p):
    """The data and parameters of literal copies."""
    rows = data.rows
    of_row = np.full(len(rows.mean), -1)
    of_row[rows.incomplete] = np.arange(len(rows.incomplete))
    incomplete = np.flatnonzero(of_row[COPIES] >= 0)
    copied = replace(
        rows,
        mean=rows.mean[COPIES],
        incomplete=incomplete,
        covariance=rows.covariance[of_row[COPIES][incomplete]],
    )
    data = replace(
        data, rows=copied, Y=data.Y[COPIES], seen=data.seen[COPIES], t=data.t[COPIES], counts=None
    )
    if isinstance(p.recognition, RowLatents):
        p = replace(p, recognition=RowLatents(p.recognition.latents_of_rows.rows(COPIES)))
    return data, p


# -- the bound ---------------------------------------------------------------------------------


@pytest.mark.thorough
@each
@pytest.mark.parametrize("likelihood", ["logistic", "probit"])
def test_bound_is_the_dense_one_of_literal_copies(likelihood, free):
    _, data, p, _ = small_problem(likelihood=likelihood, free=free)
    tilted = {"logistic": ep.tilted_logistic, "probit": ep.tilted_probit}[likelihood]
    copied, q = repeat(data, p)
    columns = []
    for j in range(4):
        mu, s, *of_column = dense_arguments(copied, q, j)
        if j < 2:
            seen, values = copied.seen[:, j], copied.Y[:, j]
        else:
            seen, values = copied.t[:, j - 2] != 0.0, copied.t[:, j - 2]
        given = values[seen], mu[seen], s[seen], *of_column
        if j < 2:
            beta = np.exp(p.log_precision[j])
            columns.append(hybrid.gplvm_column(*given, beta, JITTER))
        else:
            columns.append(hybrid.discrete_column(*given, tilted, JITTER)[0])
    expected = data.weight @ columns - data.prior_weight * hybrid.kl_to_standard(mu, s)
    weighted = replace(data, counts=TIMES.astype(float))
    solution = solve(weighted, p, ColumnSites.vague(data.t), 1e-7)
    assert solution.sites.converged
    assert_allclose(solution.lower_bound, expected, rtol=1e-6)


@each
def test_objective_and_gradient_are_those_of_literal_copies(free):
    _, data, p, _ = small_problem(free=free)
    found = []
    for some, q in ((replace(data, counts=TIMES.astype(float)), p), repeat(data, p)):
        solution = solve(some, q, ColumnSites.vague(some.t), TOL)
        gradient = solution.gradient()
        if free:  # what moves all copies of a row
            rows = COPIES if some.counts is None else np.arange(7)
            latents = gradient[2].reshape(2, len(rows), 2)
            gradient[2] = np.array(
                [[part[rows == i].sum(axis=0) for i in range(7)] for part in latents]
            )
        found.append((solution.objective, np.concatenate([part.ravel() for part in gradient])))
    assert_allclose(found[0][0], found[1][0], rtol=1e-9)
    assert_allclose(found[0][1], found[1][1], rtol=1e-7, atol=1e-8)


@each
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.every_nth("labels", 2)
def test_gradient_of_fractions(labels, free):
    _, data, p, _ = small_problem(labels=labels, free=free)
    data = replace(data, counts=FRACTIONS)
    sites = solve(data, p, ColumnSites.vague(data.t), 1e-6).sites
    objective = HybridObjective(data, p, sites)
    x = objective.x
    value, gradient = objective(x)
    assert_slopes(lambda x: objective(x)[0], x, gradient, atol=1e-7)
    solution = HybridSolution(data, p, sites, p.features(data.rows))
    assert_allclose(value, solution.objective, rtol=1e-13)


def test_continuous_columns_have_the_bound_times_the_weight():
    """Where a single row is all there is, at large noise, its terms are its weight's share."""
    _, data, p, _ = small_problem(binary=False, labels=False, missing=False)
    sites, features = ColumnSites.vague(data.t), p.features(data.rows)
    values = [
        HybridSolution(replace(data, counts=w * np.ones(7)), p, sites, features)
        for w in (1e-5, 2e-5)
    ]
    assert_allclose(values[1].lower_bound, 2.0 * values[0].lower_bound, rtol=1e-3)


@pytest.mark.parametrize("weight", [0.05, 0.3, 0.8, 1.0, 2.5])
@pytest.mark.parametrize("noise", [0.0, 0.4, 5.0])
@pytest.mark.every_nth("weight", 2)
def test_copies_of_a_site_have_the_mass_and_moments_of_the_tilted_distribution(weight, noise):
    """Integrated literally: of Phi(g)^w for w < 1, and else of one of the copies."""
    A, likelihood = np.array([[1.5]]), LIKELIHOODS["probit"]
    schedule = Schedule("parallel", 500, 0.0, likelihood)
    weights = np.full(1, weight)
    fixpoint = schedule.run(np.ones(1), A, np.full(1, noise), Sites.vague(1), 1e-12, weights)
    sites, scales = split_copies(fixpoint, np.full(1, noise), weights)
    (c,), (s,) = fixpoint.posterior.cavity
    power = min(weight, 1.0)
    g = np.linspace(c - 12.0 * np.sqrt(s), c + 12.0 * np.sqrt(s), 4_001)
    log_q = -0.5 * (g - c) ** 2 / s - 0.5 * np.log(2.0 * np.pi * s)
    tilted = power * log_ndtr(g / np.sqrt(1.0 + noise))
    nodes, rule = np.polynomial.hermite_e.hermegauss(60)
    f = g[:, None] + np.sqrt(noise) * nodes
    factor = np.exp(scales / weight + sites.nu * f - 0.5 * sites.tau * f**2)
    approximate = power * np.log(factor @ rule / rule.sum())
    moments = []
    for log_p in (tilted, approximate):
        density = np.exp(log_q + log_p) * (g[1] - g[0])
        mean = density @ g / density.sum()
        moments.append([density.sum(), mean, density @ (g - mean) ** 2 / density.sum()])
    assert_allclose(moments[1], moments[0], rtol=2e-4)


def test_the_weight_of_one_is_no_jump():
    _, data, p, _ = small_problem()
    values = []
    for counts in (np.full(7, 1.0 - 1e-7), np.ones(7), None):
        weighted = replace(data, counts=counts)
        values.append(solve(weighted, p, ColumnSites.vague(data.t), TOL).lower_bound)
    assert_allclose(values[0], values[1], rtol=1e-5)
    assert_allclose(values[1], values[2], rtol=1e-12)


def test_start_is_that_of_literal_copies(rng):
    X = rng.standard_normal((7, 3)) * [1.0, 5.0, 2.0] + 3.0
    X[1, 2] = X[4, 0] = np.nan
    continuous = np.zeros(3, dtype=bool)
    weighted = ColumnModel.of(X, continuous, TIMES.astype(float))
    repeated = ColumnModel.of(X[COPIES], continuous)
    for one, other in (
        (weighted.coordinates.offset, repeated.coordinates.offset),
        (weighted.coordinates.scale, repeated.coordinates.scale),
        (weighted.gaussian.covariance, repeated.gaussian.covariance),
    ):
        assert_allclose(one, other, rtol=1e-10)
    maps = [
        Recognition.principal(model.complete(rows), 2, np.random.RandomState(0), counts)
        for model, rows, counts in ((weighted, X, TIMES), (repeated, X[COPIES], None))
    ]
    assert_allclose(np.abs(maps[0].projection), np.abs(maps[1].projection), rtol=1e-8)
    mean = maps[0].latents(weighted.complete(X)).mean[COPIES]
    assert_allclose(mean.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(mean.std(axis=0), 1.0)


# -- the estimator -----------------------------------------------------------------------------


def small(**options):
    return HybridGPLVM(**{"n_inducing": 8, "max_iter": 2, "random_state": 0, **options})


FREE = {"latents": "free", "likelihood": "probit", "prior_weight": 1.0}
OPTIONS = [{}, FREE, {"binary_columns": [3]}, {"missing_label": -1}, {"supervised": False}]


def make_table(options, n=60):
    """Rows with missing entries, and labels as the options want them."""
    rows = np.linspace(0, 177, n).astype(int)
    X, y = (part[rows] for part in load_wine(return_X_y=True))
    X = X[:, [0, 6, 9, 12]]
    X[:, 3] = np.where(X[:, 3] > 700.0, 1.0, -3.0)
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.15] = np.nan
    if "missing_label" in options:
        y = np.where(np.arange(n) % 3 == 1, -1, y)
    return X, y


def say(model, X):
    X = X[:4]
    parts = [model.transform(X), *model.impute(X, return_std=True)]
    if hasattr(model, "classes_"):
        parts.append(model.predict_proba(X))
    return np.append(np.hstack(parts), [model.lower_bound_, *model.relevance_])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.every_nth("options", 4)
def test_training_cannot_tell_a_weight_from_copies(options, rng):
    X, y = make_table(options)
    weight, copies = draw_weights(rng, 60)
    shuffled = rng.permutation(60)
    model = small(**options).fit(X[shuffled], y[shuffled], weight[shuffled])
    expected = small(**options).fit(X[copies], y[copies])
    assert_array_equal(say(model, X), say(expected, X))
    assert not np.allclose(say(model, X), say(small(**options).fit(X, y), X), rtol=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_weight_is_so_many_copies(options, monkeypatch, unmerged):
    """At fixed hyperparameters: new rows are added to what is known."""
    monkeypatch.setattr("skvbgp.ep.hybrid._learner._FINAL_EP_TOL", 1e-11)
    X, y = make_table(options)
    known, new = np.arange(0, 60, 3), np.arange(1, 60, 3)
    known = np.concatenate([known, np.arange(2, 60, 3)])
    weight, copies = draw_weights(np.random.default_rng(3), len(new))
    models = []
    for rows, counts in ((new, weight), (new[copies], None)):
        model = small(**options).partial_fit(X[known], y[known], classes=[0, 1, 2])
        models.append(model.partial_fit(X[rows], y[rows], sample_weight=counts))
    one, other = (model._state.posterior for model in models)
    assert_allclose(one.mean, other.mean, atol=1e-8)
    assert_allclose(one.covariance, other.covariance, atol=1e-8)
    assert_allclose(*(model.impute(X[:12]) for model in models), rtol=1e-8, atol=1e-8)
    assert_allclose(models[0].lower_bound_, models[1].lower_bound_, rtol=1e-8)
    assert_allclose(*(say(model, X) for model in models), atol=1e-6)  # variances cancel


def test_copies_that_are_not_merged_are_learned_alike(unmerged):
    """From the same start: inducing inputs are all latents."""
    X, y = make_table({}, 30)
    weight, copies = draw_weights(np.random.default_rng(2), 30)
    model = small(n_inducing=30)
    expected = clone(model).fit(X[copies], y[copies])
    assert_allclose(say(model.fit(X, y, weight), X), say(expected, X), rtol=1e-5, atol=1e-5)


def test_weights_of_one_are_none_and_zero_leaves_out():
    X, y = make_table({})
    weight = np.append(np.ones(40), np.zeros(20))
    model = small().fit(X, y, sample_weight=weight)
    expected = small().partial_fit(X[:40], y[:40], classes=[0, 1, 2])
    assert_array_equal(model.classes_, [0, 1, 2])  # also of rows that are left out
    assert_array_equal(say(model, X), say(expected, X))


def test_all_known_labels_may_be_left_out():
    X, y = make_table({"missing_label": -1})
    model = small(missing_label=-1).fit(X, y, sample_weight=(y < 0.0) * 1.0)
    assert_allclose(model.predict_proba(X), 1.0 / 3.0)


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_stream_of_few_rows_is_a_fit_to_all_of_them(options):
    X, y = make_table(options)
    weight = np.tile([1.0, 0.5, 3.0, 0.0], 15)
    stream = small(**options)
    stream.partial_fit(X[:20], y[:20], classes=[0, 1, 2], sample_weight=weight[:20])
    stream.partial_fit(X[16:], y[16:], sample_weight=weight[16:])  # some of them again
    weight[16:20] *= 2.0
    expected = small(**options).fit(X, y, sample_weight=weight)
    assert_array_equal(say(stream, X), say(expected, X))


@pytest.mark.thorough
def test_a_stream_keeps_its_weights():
    X, y = make_table({})
    weight = np.tile([1.0, 0.5, 3.0], 20)
    order = np.random.default_rng(0).permutation(60)
    parts = order[:40], order[40:50], order[50:]
    model = small()
    for part in parts:
        model.partial_fit(X[part], y[part], classes=[0, 1, 2], sample_weight=weight[part])
    both = small()
    for part in (parts[0], order[40:]):
        both.partial_fit(X[part], y[part], classes=[0, 1, 2], sample_weight=weight[part])
    assert_allclose(say(model, X), say(both, X), atol=1e-6)
    assert_allclose(np.sort(model._state.y.counts), np.sort(weight))


@pytest.mark.thorough
def test_rows_of_almost_no_weight_do_not_matter():
    X, y = make_table({}, 120)
    wrong = np.arange(120) % 3 == 0
    spoiled = np.where(wrong, 0, y)
    models = [
        small(max_iter=30).fit(X, spoiled, sample_weight=weight)
        for weight in (None, np.where(wrong, 1e-6, 1.0))
    ]
    expected = small(max_iter=30).fit(X[~wrong], y[~wrong]).predict_proba(X)
    errors = [np.mean(np.abs(model.predict_proba(X) - expected)) for model in models]
    assert errors[1] < 0.02 < 0.05 < errors[0]


def test_inducing_inputs_are_weighted_means(rng):
    X, y = make_labels(40, 3)
    weight = rng.uniform(0.1, 5.0, 40)
    model = small(n_inducing=1, max_iter=1).fit(X, y, weight)
    learner, labels = model._learner(), model._state.y
    start = learner.start(model._state.X, labels, np.random.RandomState(0), None)
    assert_allclose(start.parameters.Z, 0.0, atol=1e-12)  # of latents about their mean


@pytest.mark.parametrize("rows", [[0, 0], [0, 0, 1, 1]])
def test_few_rows_and_their_copies(rows):
    X, y = make_labels(4, 3)
    model = small().fit(X[rows], np.arange(len(rows)) % 2)
    assert np.isfinite(say(model, X[:5])).all()


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", [INSTANCES[-1], HybridGPLVM(max_iter=10)], ids=repr)
def test_scikit_learns_check_of_other_settings(estimator):
    check_sample_weight_equivalence_on_dense_data("HybridGPLVM", clone(estimator))


# -- bad input ---------------------------------------------------------------------------------


def test_bad_weights_of_rows_without_labels_are_refused_and_change_nothing():
    check_refused(small(max_iter=1, supervised=False), *make_labels(30))


def test_weights_reach_latents_in_front_of_a_regressor():
    X, y = make_labels(40, 3)
    target, weight = np.sin(X[:, 0]), np.tile([0.5, 3.0], 20)
    latents, regressor = small(supervised=False), VBGPRegressor(Matern(), random_state=0)
    with config_context(enable_metadata_routing=True):
        for step in (latents, regressor):
            step.set_fit_request(sample_weight=True)
        model = make_pipeline(latents, regressor).fit(X, target, sample_weight=weight)
    expected = small(supervised=False).fit(X, sample_weight=weight)
    assert_array_equal(model[0].transform(X), expected.transform(X))
    again = clone(regressor).fit(expected.transform(X), target, sample_weight=weight)
    assert_array_equal(model.predict(X), again.predict(expected.transform(X)))
