"""The solvers: they rise, respect what is fixed, stop when told, and agree with each other."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBPICRegressor, VBPITCRegressor
from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import NotPositiveDefiniteError
from skvbgp._core.partition import partition_rows
from skvbgp.kernels import RBF, Constant
from skvbgp.sgpr import _learner, _training
from skvbgp.sgpr._bound import Evaluation, Prior, Shared
from skvbgp.sgpr._data import Coordinates, Data, Target
from skvbgp.sgpr._memory import remember
from skvbgp.sgpr._noise import Blocks, HyperPrior, Model
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, make_sign_draws
from skvbgp.sgpr._start import narrow, settle_variances
from skvbgp.sgpr._training import (
    bound_start,
    collapse_bound,
    settle,
    solve_collapsed,
    solve_full,
    solve_stochastic,
)
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import make_data
from tests.sgpr.problems import KINDS, Problem, row_problem, small_problem, structure_of


def collapsed(problem, **options):
    options = {
        "free": problem.parameters.all_but(),
        "max_iter": 100,
        "tol": 1e-9,
    } | options
    bound = collapse_bound(problem.model, problem.data, options.pop("rule", ClosedForm()))
    return solve_full(bound, problem.model, problem.parameters, **options)


def stochastic(problem, **options):
    options = {
        "free": problem.parameters.all_but(),
        "max_iter": 5,
        "batch_size": 4,
        "learning_rate": 0.02,
        "natural_rate": 0.1,
        "tol": None,
        "rng": np.random.RandomState(0),
    } | options
    return solve_stochastic(
        problem.model,
        problem.parameters,
        problem.data,
        options.pop("rule", ClosedForm()),
        **options,
    )


def best_bound(problem, rule=None):
    """The collapsed bound at the problem's parameters."""
    batch = problem.batch
    draws = [rule(rows.X.shape, None) for rows in batch] if rule else [None] * len(batch)
    evaluation = problem.evaluation(draws)
    return evaluation.gradient(evaluation.optimal_q)


SOLVERS = [collapsed, stochastic]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.every_nth("kind", 3)
def test_collapsed_rises(kind):
    """Every iteration; the last bound is that of the parameters it returns."""
    problem = small_problem(kind)
    trained = collapsed(problem, max_iter=12)
    assert_array_equal(trained.values, np.sort(trained.values))
    start, _ = best_bound(problem)
    value, _ = best_bound(problem.at(trained.parameters))
    assert value > start + 1.0
    assert_allclose(value, trained.values[-1], rtol=1e-10)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.every_nth("sampled", 2)
def test_collapsed_ends_at_an_optimum(sampled):
    """The gradient, of order 10 at the start, vanishes to what a relative rise of 1e-11 leaves.

    With curvatures of order 10, a rise of 1e-11 of 100 nats belongs to a gradient of 1e-4.
    """
    problem = row_problem(40, 2, 6)
    rule = CommonDraws(quasi_normal(4, 2, seed=0)) if sampled else ClosedForm()
    trained = collapsed(problem, rule=rule, max_iter=1000, tol=1e-11)
    assert len(trained.values) < 1000
    _, gradient = best_bound(problem, rule)
    assert np.abs(problem.parameters.pack_gradient(gradient)).max() > 5.0
    _, gradient = best_bound(problem.at(trained.parameters), rule)
    lower, upper = problem.model.bounds(problem.parameters).T
    x = trained.parameters.pack()
    assert np.all((lower < x) & (x < upper))
    assert np.abs(trained.parameters.pack_gradient(gradient)).max() < 1e-2


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("held", ["nu", "U", "noise_variance", "noise_theta"])
@pytest.mark.every_nth("held", 2)
def test_held_fields_keep_their_values(solve, held):
    problem = small_problem("pitc")
    before = problem.parameters
    after = solve(problem, free=before.all_but(held), max_iter=2).parameters
    parts, moved = before.split(before.pack()), before.split(after.pack())
    for name in parts:
        if name == held:
            assert_allclose(moved[name], parts[name], rtol=1e-14)
        else:
            assert np.all(moved[name] != parts[name])


@pytest.mark.parametrize("solve", SOLVERS)
def test_end_of_every_pass_is_reported_and_may_stop(solve):
    problem = small_problem("dtc")
    seen = []

    def end_pass(make):
        seen.append(make())
        return len(seen) == 3

    trained = solve(problem, max_iter=50, end_pass=end_pass)
    assert [reached.values for reached in seen] == [trained.values[: k + 1] for k in range(3)]
    assert_array_equal(trained.parameters.pack(), seen[-1].parameters.pack())


@pytest.mark.parametrize("solve", SOLVERS)
def test_number_of_passes(solve):
    assert len(solve(small_problem("dtc"), max_iter=4).values) == 4


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.every_nth("solve", 3)
def test_parameters_stay_within_the_limits(solve):
    """From a start at the upper limit of the noise kernel, where the bound pulls outwards."""
    problem = small_problem("pitc")
    model = problem.model
    kernel = Constant(0.5, value_bounds=(1e-3, 0.50001)) * RBF((1.6, 0.6))
    problem = replace(problem, model=replace(model, structure=Blocks(kernel)))
    lower, upper = problem.model.bounds(problem.parameters).T
    options = {"learning_rate": 0.5} if solve is stochastic else {}
    x = solve(problem, max_iter=20, **options).parameters.pack()
    assert np.all(x >= lower - 1e-12)
    assert np.all(x <= upper + 1e-12)


def test_stochastic_is_reproducible():
    problem = small_problem("pitc")
    first, second, other = (
        stochastic(problem, rng=np.random.RandomState(seed)).parameters.pack() for seed in (3, 3, 4)
    )
    assert_array_equal(first, second)
    assert np.any(first != other)


@pytest.mark.thorough
def test_stochastic_stops_when_the_bound_no_longer_rises():
    """Hyperparameters (almost) at rest and q(u) at its optimum within some steps."""
    problem = row_problem(60, 2, 10)
    trained = stochastic(problem, max_iter=900, batch_size=15, learning_rate=1e-8, tol=1e-2)
    assert 10 < len(trained.values) < 200
    slower = stochastic(problem, max_iter=900, batch_size=15, learning_rate=1e-8, tol=1e-4)
    assert len(slower.values) >= len(trained.values)


@pytest.mark.thorough
def test_stochastic_rises():
    """Far above the start's collapsed bound, the best that any q(u) could do there."""
    problem = row_problem(60, 2, 10)
    start, _ = best_bound(problem)
    trained = stochastic(problem, max_iter=60, batch_size=20)
    end, _ = best_bound(problem.at(trained.parameters))
    best, _ = best_bound(problem.at(collapsed(problem).parameters))
    assert start < end <= best
    assert best - end < 0.2 * (best - start)


def test_one_step_is_enough_when_nothing_else_is_learned(monkeypatch):
    """All rows in one batch: the first natural-gradient step ends at eq. (7)."""
    problem = row_problem(30, 2, 6)
    steps = recorded_steps(monkeypatch)
    free = np.zeros(len(problem.parameters.pack()), dtype=bool)
    trained = stochastic(problem, free=free, batch_size=30, max_iter=3)
    expected = problem.evaluation().optimal_q
    for q in steps:
        assert_allclose(q.precision, expected.precision, rtol=1e-10, atol=1e-11)
        assert_allclose(q.shift, expected.shift, rtol=1e-10, atol=1e-11)
    assert_allclose(trained.values, best_bound(problem)[0], rtol=1e-11)


# --- the variances of q(theta), settled at once --------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 7, 8, 31])
def test_sign_draws_see_no_mixed_derivatives(d):
    draws = make_sign_draws(d)
    assert_array_equal(draws.T @ draws, len(draws) * np.eye(d))
    assert_array_equal(draws.sum(axis=0), 0.0)


def test_sign_draws_of_many_inputs_are_not_more():
    assert make_sign_draws(100).shape == (32, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_settled_variances_are_where_the_bound_is_stationary(kind):
    """The curvature hardly depends on variances that are small: one step is enough."""
    problem = small_problem(kind)
    p = narrow(problem.parameters)
    model = replace(problem.model, hyperprior=HyperPrior(np.ones(3), np.full(3, 1e-3)))
    problem = replace(problem, model=model)
    p = replace(p, xi=np.full(2, 5e-4), beta=5e-4)
    bound = collapse_bound(model, problem.data, ClosedForm())
    _, before = bound(p)
    evaluation = problem.at(p).evaluation()
    slopes = evaluation.variance_slopes(evaluation.optimal_q)
    _, after = bound(settle_variances(model, p, slopes))
    for name in ("xi", "beta"):
        ratio = np.abs(getattr(after, name)) / np.abs(getattr(before, name))
        assert np.all(ratio < 5e-4), name  # without the rows' part of the curvature, 3e-3 and more


@pytest.mark.parametrize(
    "rule", [ClosedForm(), CommonDraws(make_sign_draws(2))], ids=["all", "draws"]
)
def test_a_start_is_refused_where_its_bound_is_higher_than_it_can_be(rule, monkeypatch):
    problem = small_problem("pitc")
    given = problem.model, problem.data, rule
    value, _ = collapse_bound(*given)(problem.parameters)
    monkeypatch.setattr(Evaluation, "ceiling", value + 1e-6)
    bound_start(*given, problem.parameters)
    monkeypatch.setattr(Evaluation, "ceiling", value - 1e-6)
    with pytest.raises(NotPositiveDefiniteError, match="drowned"):
        bound_start(*given, problem.parameters)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_turn("kind")
def test_training_at_the_mean_ends_beside_the_optimum(kind):
    """Of all parameters together, in closed form, where q(theta) is narrow."""
    problem = small_problem(kind)
    model = replace(problem.model, hyperprior=HyperPrior(np.full(3, 0.7), np.full(3, 1e-4)))
    problem = replace(problem, model=model)
    p = replace(problem.parameters, U=problem.scaled[0])  # which stay, as there are so many
    rule, options = CommonDraws(np.zeros((1, 2))), {"max_iter": 200, "tol": 1e-10}
    bound = collapse_bound(model, problem.data, ClosedForm())
    best = solve_collapsed(model, p, problem.data, ClosedForm(), **options)
    trained = solve_collapsed(model, p, problem.data, rule, **options)
    settled = settle(model, trained.parameters, problem.data, rule)
    assert bound(settled)[0] > best.values[-1] - 0.05


def test_line_searches_are_not_lost_in_rounding(monkeypatch):
    """Inducing inputs that are close: 1.1 evaluations in an iteration, and not 5."""
    problem = row_problem(150, 1, 75, noise_variance=1e-4)
    n_evaluations = 0

    class Counted(_training.Evaluation):
        def gradient(self, *args):
            nonlocal n_evaluations
            n_evaluations += 1
            return super().gradient(*args)

    monkeypatch.setattr(_training, "Evaluation", Counted)
    free = problem.parameters.all_but("xi", "beta")
    trained = collapsed(problem, rule=CommonDraws(np.zeros((1, 1))), free=free, tol=1e-6)
    assert 0 < len(trained.values) <= n_evaluations < 2 * len(trained.values)


# --- Fig. 1: the stochastic solver converges to the collapsed one ------------------------------


def recorded_steps(monkeypatch):
    """List that grows by q(u) after every natural-gradient step."""
    steps = []
    step = _training.natural_gradient_step

    def recording(*args):
        steps.append(step(*args))
        return steps[-1]

    monkeypatch.setattr(_training, "natural_gradient_step", recording)
    return steps


def fig_1_problem(kind, n, m, n_blocks, seed=0):
    """Rows of a function of three inputs drawn from the model, with blocks of nearby rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, size=(n, 3))
    U = X[rng.permutation(n)[:m]]
    nu = np.array([1.6, 1.3, 1.0])
    Sigma = oracles.sigma_zz(nu * U, 1e-6)
    f = oracles.k_xz(X, nu * U, nu, 1.0) @ np.linalg.solve(
        np.linalg.cholesky(Sigma).T, rng.normal(size=m)
    )
    y = f + np.sqrt(0.2) * rng.normal(size=n)
    frame = Coordinates(np.zeros(3), np.ones(3))
    structure = structure_of(kind, Constant(0.05) * RBF((0.5, 0.5, 0.5)))
    _, blocks = partition_rows(X, n_blocks, np.positive)
    parameters = Parameters(
        nu=np.full(3, 0.7),
        xi=np.full(3, 0.02),
        alpha=0.5,
        beta=0.02,
        noise_variance=0.5,
        noise_theta=structure.theta,
        U=U,
    )
    model = Model(frame, HyperPrior(np.ones(4), np.full(4, 0.5)), structure)
    data = Data(X, y, frame, Target(0.0, 1.0))
    if kind == "pitc":
        data = replace(data, blocks=blocks)
    return Problem(kind, model, parameters, data, blocks)


def kl_of_s(parameters, q, optimum, q_optimum):
    """KL(q(s) || q+(s)): s = L u has another L at other parameters."""
    moments = []
    for p, u in ((parameters, q), (optimum, q_optimum)):
        L = Prior(p).L
        moments += [L @ u.mean, L @ u.covariance @ L.T]
    return oracles.kl_gauss(*moments)


def kl_of_theta(parameters, optimum):
    return oracles.kl_theta(
        parameters.nu,
        parameters.xi,
        parameters.alpha,
        parameters.beta,
        np.append(optimum.nu, optimum.alpha),
        np.append(optimum.xi, optimum.beta),
    )


def distances_to_the_collapsed_optimum(monkeypatch, problem, rule, *, batch_size, **options):
    """KL of q(s) and of q(theta) at the start and at the end, U held in both solvers.

    The start of q(s) is what the first mini-batch suggests: far closer than the prior.
    """
    start, free = problem.parameters, problem.parameters.all_but("U")
    optimum = collapsed(problem, rule=rule, free=free, max_iter=1000, tol=1e-10).parameters
    memory = remember(
        Shared(problem.model, optimum),
        problem.data,
        rule,
        n_jobs=None,
    )
    q_optimum = memory.q(optimum.alpha, optimum.second_moment, np.array([1.0, 0.0]))
    steps = recorded_steps(monkeypatch)
    end = stochastic(
        problem, rule=rule, free=free, batch_size=batch_size, learning_rate=0.1, **options
    ).parameters
    assert_array_equal(end.U, start.U)
    return {
        "q(s)": [
            kl_of_s(parameters, q, optimum, q_optimum)
            for parameters, q in [(start, steps[0]), (end, steps[-1])]
        ],
        "q(theta)": [kl_of_theta(parameters, optimum) for parameters in (start, end)],
    }


@pytest.mark.parametrize(
    ("kind", "n", "m", "batch_size", "max_iter", "natural_rate"),
    [
        pytest.param("dtc", 100, 10, 20, 300, 0.02, marks=pytest.mark.slow),
        pytest.param("fitc", 100, 10, 20, 300, 0.02, marks=pytest.mark.slow),
        pytest.param("pitc", 100, 10, 20, 150, 0.02, marks=pytest.mark.slow),
        pytest.param("dtc", 1000, 50, 100, 400, 0.03, marks=pytest.mark.slow),
        pytest.param("fitc", 1000, 50, 100, 400, 0.03, marks=pytest.mark.slow),
        pytest.param("pitc", 1000, 50, 200, 900, 0.02, marks=pytest.mark.slow),
    ],
)
def test_stochastic_converges_to_collapsed(
    monkeypatch, kind, n, m, batch_size, max_iter, natural_rate
):
    """Fig. 1 on blocks of 20 or 100 rows: both divergences fall below 1 % of their start.

    Closed-form expectations for DTC and FITC; for PITC both solvers take the same four draws.
    """
    problem = fig_1_problem(kind, n, m, n_blocks=5 if n < 1000 else 10)
    rule = CommonDraws(quasi_normal(4, 3, seed=0)) if kind == "pitc" else ClosedForm()
    distances = distances_to_the_collapsed_optimum(
        monkeypatch,
        problem,
        rule,
        batch_size=batch_size,
        max_iter=max_iter,
        natural_rate=natural_rate,
    )
    for name, (start, end) in distances.items():
        assert start > 10.0, name
        assert 0.0 <= end < 0.01 * start, name


@pytest.mark.parametrize(
    ("cls", "n", "n_blocks", "max_iter"),
    [
        (VBPICRegressor, 40_000, 80, 8),
        (VBPITCRegressor, 40_000, 400, 11),
        (VBPITCRegressor, 2_000, 4, 10),
    ],
)
def test_blocks_that_new_rows_have_nothing_of_are_small_in_mini_batches(cls, n, n_blocks, max_iter):
    learner = cls(random_state=0)._learner()
    assert learner.count_blocks(n) == n_blocks
    assert learner.max_iterations(n) == max_iter
    untrained = cls(learn_hyperparameters=False)._learner()
    assert untrained.count_blocks(n) == round(n / 500)


def test_mini_batches_of_blocks_that_new_rows_have_nothing_of_take_long_steps(monkeypatch):
    """PITC's f has to get back what its noise starts with; and q(u) is of many batches."""
    X, _ = make_data(60)
    y = np.random.default_rng(0).normal(size=60)  # says nothing that f could follow
    options, train = [], _learner.solve_stochastic

    def spy(*args, **kwargs):
        options.append((kwargs["learning_rate"], kwargs["natural_rate"]))
        return train(*args, **kwargs)

    monkeypatch.setattr(_learner, "solve_stochastic", spy)
    for cls in (VBPICRegressor, VBPITCRegressor):
        cls(5, noise_kernel=None, solver="stochastic", max_iter=1, random_state=0).fit(X, y)
    assert_allclose(options[1], np.array([2.0, 1.0 / 3.0]) * options[0])
