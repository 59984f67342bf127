"""The memory of the data: it adds, is carried to other priors, and stands for the rows."""

from dataclasses import replace

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.sgpr import _data
from skvbgp.sgpr._bound import Evaluation, Prior, Shared
from skvbgp.sgpr._memory import Memory, Statistics, remember
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, FreshDraws
from tests.derivatives import numerical_gradient
from tests.sgpr.problems import (
    KINDS,
    past_of,
    pseudo_likelihood,
    random_q,
    row_problem,
    small_problem,
)

ALPHA, SECOND, TARGET = 0.9, 0.96, np.array([1.3, -0.4])


def assert_same(actual, expected, *, rtol=1e-12, atol=1e-12):
    pairs = ((memory.prior.L, *memory.sums) for memory in (actual, expected))
    for name, *pair in zip(("L", *Statistics._fields), *pairs, strict=True):
        assert_allclose(*pair, rtol=rtol, atol=atol, err_msg=name)


@pytest.fixture(params=KINDS)
def problem(request):
    return small_problem(request.param)


@pytest.fixture
def moved(problem):
    """A prior with other length scales and other inducing inputs."""
    p = problem.parameters
    return Prior(replace(p, nu=1.2 * p.nu, U=p.U + 0.1))


def whitened_about(prior, memory):
    """Information about s = L u, which does not depend on how s is whitened."""
    L_inv = np.linalg.inv(prior.L)
    return L_inv.T @ memory.sums.information @ L_inv, L_inv.T @ memory.sums.targets_information


# --- contents ---------------------------------------------------------------------------------


def test_stands_for_the_rows(problem):
    """The optimal q and the bound, for the target a y + b, are those of the rows themselves.

    Two ways to the same sums: equal up to rounding.
    """
    p, memory = problem.parameters, problem.memory()
    a, b = TARGET
    batch = [replace(rows, y=a * rows.y + b) for rows in problem.batch]
    evaluation = Evaluation(problem.model, p, batch, [None] * len(batch))
    expected = evaluation.optimal_q
    q = memory.q(p.alpha, p.second_moment, TARGET)
    assert_allclose(q.precision, expected.precision, rtol=1e-11)
    assert_allclose(q.shift, expected.shift, rtol=1e-11)
    assert memory.sums.n == len(problem.data)
    for other in (q, random_q(4)):
        fit = memory.expected_log_likelihood(other, p.alpha, p.second_moment, TARGET)
        value = fit - other.kl_to_prior - problem.model.kl_theta(p)[0]
        assert_allclose(value, evaluation.gradient(other)[0], rtol=1e-11)


def test_information_over_draws_keeps_its_digits_where_inducing_inputs_are_close():
    """No eigenvalue is negative but by rounding; whitened after the sum, by 1e-7 of the largest."""
    problem = row_problem(200, 1, 100, noise_variance=1e-4)
    memory = remember(
        Shared(problem.model, problem.parameters),
        problem.data,
        CommonDraws(np.zeros((1, 1))),
        n_jobs=None,
    )
    values = np.linalg.eigvalsh(memory.sums.information)
    assert values[0] > -1e-12 * values[-1]


def test_chunks_add(problem):
    """In either order; sums of the same terms, equal up to rounding."""
    data = problem.data
    if problem.kind == "pitc":
        chunks = [replace(data, blocks=part) for part in (problem.groups[:1], problem.groups[1:])]
    else:
        chunks = [
            replace(data, X=data.X[rows], y=data.y[rows]) for rows in (slice(4), slice(4, 11))
        ]
    first, second = (problem.memory(chunk) for chunk in chunks)
    whole = problem.memory()
    assert_same(first.plus(second), whole)
    assert_same(second.plus(first), whole)
    empty = Memory.empty(Prior(problem.parameters))
    assert_same(empty.plus(whole), whole, rtol=0, atol=0)
    assert empty.sums.n == 0


def test_segments_change_nothing(problem, monkeypatch):
    """Many short tiles instead of one."""
    whole = problem.memory()
    monkeypatch.setattr(_data, "_TILE_ROWS", 2)
    assert_same(problem.memory(), whole)


@pytest.mark.parametrize("n_jobs", [2, 3])
@pytest.mark.parametrize("rule", [ClosedForm(), CommonDraws(np.ones((2, 2)))])
@pytest.mark.every_nth("rule", 2)
def test_workers_change_nothing(problem, monkeypatch, rule, n_jobs):
    """Bit for bit."""
    monkeypatch.setattr(_data, "_TILE_ROWS", 2)
    shared = Shared(problem.model, problem.parameters)
    with joblib.parallel_config(backend="threading"):
        memories = [remember(shared, problem.data, rule, n_jobs=jobs) for jobs in (1, n_jobs)]
    assert_same(*memories, rtol=0, atol=0)


def test_information_of_random_draws_is_unbiased():
    """The mean of 100 evaluations with fresh draws, within 5 standard errors."""
    problem, rng = small_problem("dtc"), np.random.RandomState(0)
    rule = FreshDraws(False)
    passes = [
        problem.evaluation([rule(rows.X.shape, rng) for rows in problem.batch]) for _ in range(100)
    ]
    exact = problem.evaluation()
    for name in ("information", "shift"):
        values = np.array([getattr(evaluation, name) for evaluation in passes])
        error = np.abs(values.mean(axis=0) - getattr(exact, name))
        assert np.all(error < 5.0 * values.std(axis=0) / np.sqrt(len(values)))


# --- the noise's and the target's scale ---------------------------------------------------------


@pytest.mark.parametrize("factor", [0.3, 5.0])
def test_rescale_noise(problem, factor):
    """Equals a second look at the rows with all of C times the factor."""
    p, model = problem.parameters, problem.model
    scaled = replace(
        problem,
        parameters=replace(p, noise_variance=factor * p.noise_variance),
        model=replace(model, structure=model.structure.rescale(factor)),
    )
    assert_same(problem.memory().rescale_noise(factor), scaled.memory(), rtol=1e-11)


# --- other priors -------------------------------------------------------------------------------


def test_carried_to_the_same_prior_is_the_identity(problem):
    memory = problem.memory()
    assert_same(memory.carry_to(Prior(problem.parameters)), memory, rtol=0, atol=0)


def test_carried_to_a_grown_prior_is_padding(problem, rng):
    """Up to rounding: the factor of the old inducing inputs is the leading part of the new one."""
    p, memory = problem.parameters, problem.memory()
    prior = Prior(replace(p, U=np.concatenate([p.U, rng.normal(size=(2, 2))])))
    carried = memory.carry_to(prior)
    assert_allclose(
        carried.sums.information[:4, :4], memory.sums.information, rtol=1e-10, atol=1e-11
    )
    assert_allclose(
        carried.sums.targets_information[:4],
        memory.sums.targets_information,
        rtol=1e-10,
        atol=1e-11,
    )
    assert not carried.sums.information[4:].any()
    assert not carried.sums.information[:, 4:].any()
    assert not carried.sums.targets_information[4:].any()
    assert carried.prior is prior
    # the rows' bound is the same: the new outputs are as in the prior
    before, after = (
        m.expected_log_likelihood(m.q(ALPHA, SECOND, TARGET), ALPHA, SECOND, TARGET)
        - m.q(ALPHA, SECOND, TARGET).kl_to_prior
        for m in (memory, carried)
    )
    assert_allclose(after, before, rtol=1e-11)


def test_carried_keeps_the_information_about_the_outputs(problem, moved):
    """About s = L u, whatever the prior; condition numbers below 1e3."""
    memory = problem.memory()
    carried = memory.carry_to(moved)
    before = whitened_about(Prior(problem.parameters), memory)
    for actual, expected in zip(whitened_about(moved, carried), before, strict=True):
        assert_allclose(actual, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
    assert np.max(np.abs(carried.sums.information - memory.sums.information)) > 1e-2
    for name in ("targets_gram", "log_det", "n"):
        assert_array_equal(getattr(carried.sums, name), getattr(memory.sums, name))


def test_carried_there_and_back(problem, moved):
    memory = problem.memory()
    back = memory.carry_to(moved).carry_to(Prior(problem.parameters))
    assert_allclose(back.sums.information, memory.sums.information, rtol=1e-9, atol=1e-10)
    assert_allclose(
        back.sums.targets_information, memory.sums.targets_information, rtol=1e-9, atol=1e-10
    )


def test_moved_and_grown(problem, rng):
    """Information about the old outputs, none about the new."""
    p, memory = problem.parameters, problem.memory()
    U = np.concatenate([p.U - 0.1, rng.normal(size=(2, 2))])
    prior = Prior(replace(p, nu=1.1 * p.nu, U=U))
    about_s, targets = whitened_about(prior, memory.carry_to(prior))
    expected = whitened_about(Prior(p), memory)
    assert_allclose(about_s[:4, :4], expected[0], rtol=1e-7, atol=1e-8 * np.abs(expected[0]).max())
    assert_allclose(about_s[4:], 0.0, atol=1e-8 * np.abs(expected[0]).max())
    assert_allclose(targets[:4], expected[1], rtol=1e-7, atol=1e-8 * np.abs(expected[1]).max())


# --- gradient -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_backward(kind):
    """Through carried_to, for a prior that has moved and grown; the bound's own test has nu."""
    problem, q = small_problem(kind), random_q(4)
    memory, target = past_of(problem)
    p = problem.parameters

    def value(U=p.U, alpha=ALPHA, second=SECOND):
        return pseudo_likelihood(memory, Prior(replace(p, U=U)), q, alpha, second, target)

    prior = Prior(p)
    LtdL, d_alpha, d_second = memory.carry_to(prior).backward(q, ALPHA, SECOND, target)
    expected = numerical_gradient(lambda x: value(U=x), p.U)
    dU = p.nu * prior.inputs_vjp(LtdL)
    assert_allclose(dU, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    for actual, name, start in [(d_alpha, "alpha", ALPHA), (d_second, "second", SECOND)]:
        expected = numerical_gradient(lambda x, name=name: value(**{name: float(x)}), start)
        assert_allclose(actual, expected, rtol=1e-9)


def test_backward_of_nothing():
    problem = small_problem("dtc")
    prior = Prior(problem.parameters)
    LtdL, *signal = Memory.empty(prior).backward(random_q(4), ALPHA, SECOND, TARGET)
    assert_array_equal(LtdL, 0.0)
    assert_array_equal(signal, 0.0)
