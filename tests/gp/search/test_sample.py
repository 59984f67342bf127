"""What a search sees of the rows of several outputs: the sum of their evidence, and who judges."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.linalg import JITTER
from skvbgp._optim.maximum import log_posterior, train
from skvbgp.gp import _process
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._process import Process, start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp.search import _sample
from skvbgp.gp.search._sample import Judges, Sample, Samples, join_samples
from skvbgp.kernels import RBF, Matern
from skvbgp.kernels._candidates import make_base_kernels
from tests.derivatives import numerical_gradient
from tests.oracles import gp as oracle

KERNEL = make_base_kernels(2)[1][1]
PROCESSES = [start_process(KERNEL, gaussian=gaussian) for gaussian in (False, True)]


@pytest.fixture
def rows(rng):
    """Three outputs; the last one was observed in other rows."""
    X = rng.standard_normal((30, 2))
    Y = np.sin(X @ rng.standard_normal((2, 3))) + 0.1 * rng.standard_normal((30, 3))
    Y[::3, 2] = np.nan
    return X, Y


def make_samples(X, Y, noise=None):
    rng, samples = np.random.RandomState(0), []
    for y in Y.T:
        seen = ~np.isnan(y)
        samples.append(Sample(X[seen], y[seen], rng, None if noise is None else noise[seen]))
    return samples


def make_noise(n, rng):
    return RowNoise(rng.uniform(0.5, 3.0, n), rng.uniform(0.0, 0.2, n), rng.uniform(0, 1, (n, 1)))


@pytest.mark.parametrize("process", PROCESSES, ids=["student", "gaussian"])
def test_evidence_of_all_groups_is_the_dense_sum(rows, process):
    X, Y = rows
    groups = join_samples(make_samples(X, Y)).take_all()
    assert [y.shape for _, y, _ in groups] == [(30, 2), (20,)]
    K = process.kernel(X)
    K += JITTER * (np.mean(np.diag(K)) + process.noise) * np.eye(30)
    expected = oracle.sum_evidence(K, Y, process.noise, process.dof)
    value, _ = log_posterior(process, groups)
    assert_allclose(value - process.log_prior()[0], expected, rtol=1e-9)
    assert_allclose(sum(process.log_evidence(*group) for group in groups), expected, rtol=1e-9)


@pytest.mark.parametrize("dof", [4.0, np.inf])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.every_nth("dof", 2)
def test_gradient_of_the_evidence_of_all(rows, rng, dof, is_known):
    """Weights, known variances and missing entries count in each of the outputs."""
    X, Y = rows
    noise = make_noise(30, rng) if is_known else None
    process = Process(KERNEL, 0.05, dof, (0.4,) if is_known else ())
    groups = join_samples(make_samples(X, Y, noise)).take_all()
    numeric = numerical_gradient(
        lambda x: log_posterior(process.with_vector(x), groups)[0], process.vector
    )
    assert_allclose(log_posterior(process, groups)[1], numeric, rtol=1e-5, atol=1e-6)


def test_random_rows_are_those_of_all_outputs_in_proportion(rows):
    """Together as many as asked for; each once."""
    samples = join_samples(make_samples(*rows))
    for n, sizes in [(25, (15, 10)), (400, (30, 20))]:
        groups = samples.draw_rows(n)
        assert [y.shape for _, y, _ in groups] == [(sizes[0], 2), (sizes[1],)]
        assert all(len(np.unique(X, axis=0)) == len(X) for X, _, _ in groups)


@pytest.mark.parametrize("process", PROCESSES, ids=["student", "gaussian"])
@pytest.mark.every_nth("process", 2)
def test_equal_outputs_speak_as_often_as_there_are_of_them(rows, rng, process):
    """The prior counts once: their optimum is that of so many independent groups."""
    X, y, noise = rows[0], rows[1][:, 0], make_noise(30, rng)
    process = Process(process.kernel, process.noise, process.dof, (0.3,))
    together = (X, np.column_stack([y, -y, y]), noise)
    value, gradient = process.evidence(X, y, noise)
    of_all = process.evidence(*together)
    assert_allclose(of_all[0], 3.0 * value, rtol=1e-12)
    assert_allclose(of_all[1], 3.0 * gradient, rtol=1e-9, atol=1e-9)
    trained, expected = (
        train(process, groups, max_iter=10, tol=1e-12)
        for groups in ([together], [(X, y, noise)] * 3)
    )
    assert_allclose(trained.value, expected.value, rtol=1e-8)
    assert_allclose(trained.process.vector, expected.process.vector, rtol=1e-4, atol=1e-4)


def test_outputs_of_the_same_rows_need_one_factor(rows, monkeypatch):
    calls = []
    factorise = _process.jittered_cholesky
    monkeypatch.setattr(
        _process,
        "jittered_cholesky",
        lambda *args, **options: calls.append(1) or factorise(*args, **options),
    )
    X, Y = rows
    log_posterior(PROCESSES[0], join_samples(make_samples(X, Y[:, :2])).take_all())
    assert len(calls) == 1
    log_posterior(PROCESSES[0], join_samples(make_samples(X, Y)).take_all())
    assert len(calls) == 3


def test_outputs_have_their_own_factor_where_their_noise_differs(rows):
    """Known variances, in units of the outputs, may be others although the rows are the same."""
    X, Y = rows
    noise = RowNoise(np.ones(30), np.full(30, 0.1))
    rng = np.random.RandomState(0)
    parts = [Sample(X, y, rng, noise.scaled(unit)) for y, unit in zip(Y.T, (1, 2, 1), strict=True)]
    joined = join_samples(parts)
    assert [part.y.shape for part in joined.parts] == [(30, 2), (30,)]
    assert isinstance(join_samples([parts[0], parts[2]]), Sample)


@pytest.mark.parametrize("k", [10, 40])
def test_values_that_are_left_out_are_said_in_the_order_of_targets(rows, k):
    """All of them, each in its turn; the first ones are the first of all."""
    X, Y = rows
    process = Process(RBF(1.0).bind(2), 1e-6, np.inf)
    Y = np.where(np.isnan(Y), np.nan, X.sum(axis=1)[:, None] + [0.0, 5.0, 10.0])
    samples = join_samples(make_samples(X, Y))
    assert isinstance(samples, Samples)
    mixture, weights = Mixture.of(process), np.ones(2)
    parts, y, weight = samples.leave_out(mixture, weights, k)
    assert weight is None
    assert_allclose(np.sort(y), np.sort(Y[~np.isnan(Y)]))
    assert parts.mean.shape == (80, 1)
    assert np.corrcoef(parts.mean[:, 0], y)[0, 1] > 0.8
    few, y_few, _ = samples.leave_out(mixture, weights, k, 11)
    assert_allclose(few.mean, parts.mean[:11], rtol=1e-6, atol=1e-6)
    assert_array_equal(y_few, y[:11])
    assert samples.n_values == 80
    each = [
        one.leave_out(mixture, weights, k).parts.mean[np.argsort(one.take_targets()[0])]
        for one in make_samples(X, Y)
    ]
    by_value = parts.mean[np.argsort(y)]
    order = np.argsort(
        np.concatenate([np.sort(one.take_targets()[0]) for one in make_samples(X, Y)])
    )
    assert_allclose(by_value, np.concatenate(each)[order], rtol=1e-6, atol=1e-6)


def test_inputs_of_values_that_are_left_out_are_those_of_one_output(rows, monkeypatch):
    monkeypatch.setattr(_sample, "HELD_OUT", 10)
    X, Y = rows
    samples = make_samples(X, Y)
    one = samples[0]
    by_target = dict(zip(one.y, X, strict=True))
    assert_array_equal(one.judged_inputs, [by_target[y] for y in one.take_targets()[0]])
    assert join_samples(samples[:2]).judged_inputs is None
    assert join_samples(samples).judged_inputs is None
    assert Sample(X, Y[:, 0], np.random.RandomState(0), n_outputs=1).judged_inputs is None


@pytest.mark.parametrize("n, n_left", [(None, 10), (7, 7), (25, 25), (400, 60)])
def test_as_many_values_are_left_out_as_asked_for(rows, monkeypatch, n, n_left):
    """Also more than usual, but no more than there are; the first ones stay the first."""
    monkeypatch.setattr(_sample, "HELD_OUT", 10)
    X, Y = rows
    sample = join_samples(make_samples(X, Y[:, :2]))
    mixture, weights = Mixture.of(Process(RBF(1.0).bind(2), 0.1, 4.0)), np.ones(2)
    parts, y, _ = sample.leave_out(mixture, weights, 10, n)
    assert parts.mean.shape == (n_left, 1)
    every = sample.leave_out(mixture, weights, 10, 60)
    assert_allclose(parts.mean, every.parts.mean[:n_left], rtol=1e-9)
    assert_array_equal(y, every.y[:n_left])


def test_weights_of_values_are_those_of_their_rows(rows, rng):
    X, Y = rows
    Y = np.arange(90.0).reshape(30, 3) + 0.0 * Y
    noise = RowNoise(rng.uniform(0.5, 3.0, 30), np.zeros(30))
    together = join_samples(make_samples(X, Y, noise))
    y, weight = together.take_targets()
    assert_array_equal(weight, noise.weight[y.astype(int) // 3])
    assert_allclose(together.n_values, weight.sum())  # all are left out
    plain = make_samples(X, Y)
    y, weight = Samples([make_samples(X, Y, noise)[0], plain[2]]).take_targets()
    assert_array_equal(weight[y % 3 == 2.0], 1.0)
    assert_array_equal(weight[y % 3 == 0.0], noise.weight[y[y % 3 == 0.0].astype(int) // 3])


@pytest.mark.parametrize("n_judged, n_gaps, can_part", [(0, 0, 1), (6, 0, 1), (0, 1, 1), (0, 0, 0)])
def test_of_equal_rows_one_is_left_out(rng, n_judged, n_gaps, can_part):
    """As if it counted once less, if it can; a row that counts less than once is so as a whole.

    Those that stay have the same gaps, which are noise of each.
    """
    X, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    weight, known = np.array([0.4, 1.0, 1.5, 2.0, 3.0, 40.0] * 2), rng.uniform(0.0, 0.3, 12)
    inputs = rng.uniform(0.0, 0.5, (12, n_gaps)) if n_gaps else None
    gaps = 2.0 * inputs.sum(axis=1) if n_gaps else np.zeros(12)
    process = Process(2.0 * RBF(1.5).bind(2), 0.3, np.inf, (2.0,) * n_gaps)
    unknown = rng.uniform(0.0, 0.5, n_judged)  # what a global part leaves uncertain
    judges = Judges(np.arange(n_judged), unknown) if n_judged else None
    noise = RowNoise(weight, known, inputs, can_part=bool(can_part))
    sample = Sample(X, y, np.random.RandomState(0), noise, judges=judges)
    parts, values, _ = sample.leave_out(Mixture.of(process), np.ones(2), 20)
    for i, value in enumerate(values):
        j = int(np.flatnonzero(y == value)[0])
        own = np.arange(12) == j
        t, counts = (
            0.3 + known + gaps,
            np.where(own, np.maximum(can_part * (weight - 1.0), 1e-9), weight),
        )
        K = process.kernel(X)
        if judges is not None:  # a function of the row's own, besides
            K = K + np.diag(np.where(own, unknown[i], 0.0))
        gain = np.linalg.solve(K + np.diag(t / counts), K[j])
        assert_allclose(parts.mean[i, 0], gain @ y, rtol=1e-5, atol=1e-7)
        assert_allclose(parts.variance[i, 0], K[j, j] - gain @ K[j] + gaps[j], rtol=1e-5)
        assert_allclose(parts.noise[i, 0], 0.3 + known[j])


def test_all_outputs_together_cost_what_one_costs(rng, monkeypatch):
    """As many groups and judges as one output has, in proportion to the values of each."""
    monkeypatch.setattr(_sample, "HELD_OUT", 50)
    X, Y = rng.standard_normal((400, 2)), rng.standard_normal((400, 3))
    Y[200:, 1], Y[100:, 2] = np.nan, np.nan
    samples = join_samples(make_samples(X, Y))
    assert len(samples) == 400
    assert samples.total == 700
    groups = samples.draw_groups(350.0, 25)
    assert [len(y) for _, y, _ in groups] == [25] * 14  # 8, 4 and 2 of the outputs
    process = Process(Matern().bind(2), 0.1, 5.0)
    parts, y, _ = samples.leave_out(Mixture.of(process), np.ones(2), 10)
    counts = [np.isin(Y[:, j], y).sum() for j in range(3)]
    assert counts == [29, 15, 8]
    assert len(parts.mean) == len(y)


@pytest.mark.parametrize("is_apart", [False, True])
def test_rows_of_groups_are_near_by_the_inputs_that_count(rng, is_apart):
    X, Y = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    if is_apart:
        Y[150:, 1] = np.nan
    samples = join_samples(make_samples(X, Y))
    for inputs, _, _ in samples.draw_groups(100.0, 20, np.array([0.0, 5.0, 0.0])):
        assert np.ptp(inputs[:, 1]) < 2.5
        assert np.ptp(inputs[:, 0]) > 2.5
