import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import NotPositiveDefiniteError
from skvbgp._core.scaling import Target
from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import (
    Comparison,
    Evaluation,
    Prior,
    Statistics,
    average_statistics,
    collapsed_bound,
    log_evidence,
    parameters,
    total_statistics,
)
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernels._pairs import Pairs
from tests.derivatives import numerical_gradient
from tests.kernel_selection.problems import kernel_at, make_rows
from tests.oracles import kernel_selection as oracle

NAMES = ["SE", "RQ + LIN", "PER * (SE + LIN)", "RQ * LIN * PER"]


@pytest.fixture(params=NAMES)
def kernel_and_x(request):
    return kernel_at(request.param)


def matrices(kernel, x, X, Z):
    kernel, noise = parameters(kernel, x)
    return kernel(X, Z), kernel(Z), kernel.diag(X), noise


def some_q(m):
    rng = np.random.default_rng(1)
    B = rng.normal(size=(m, m))
    return WhitenedGaussian(np.eye(m) + B @ B.T, rng.normal(size=m))


def test_collapsed_bound_is_that_of_titsias(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, Z = make_rows()
    value, _ = collapsed_bound(kernel, x[None, :], Z, X, Targets(y))
    assert_allclose(value, oracle.titsias_bound(*matrices(kernel, x, X, Z), y), rtol=1e-9)


def test_bound_at_any_q_is_eq_9(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, Z = make_rows()
    q = some_q(len(Z))
    statistics = Evaluation(Prior(kernel, x, Z), X, Targets(y)).statistics
    expected = oracle.local_bound(*matrices(kernel, x, X, Z), y, q.mean, q.covariance)
    assert_allclose(statistics.bound(q), expected, rtol=1e-9)


def test_optimal_q_maximises_the_bound():
    kernel, x = kernel_at("SE")
    X, y, Z = make_rows()
    statistics = Evaluation(Prior(kernel, x, Z), X, Targets(y)).statistics
    q = statistics.optimal_q()
    best = statistics.bound(q)
    rng = np.random.default_rng(0)
    for _ in range(5):
        B = 0.1 * rng.normal(size=q.precision.shape)
        other = WhitenedGaussian(q.precision + B @ B.T, q.shift + 0.1 * rng.normal(size=len(Z)))
        assert statistics.bound(other) < best


def test_gradient_of_collapsed_bound(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, Z = make_rows()
    _, gradient = collapsed_bound(kernel, x[None, :], Z, X, Targets(y))
    expected = numerical_gradient(
        lambda x: collapsed_bound(kernel, x[None, :], Z, X, Targets(y))[0], x
    )
    assert_allclose(gradient[0], expected, rtol=1e-5, atol=1e-6)


def test_gradient_over_draws_of_theta():
    kernel, x = kernel_at("RQ + LIN")
    X, y, Z = make_rows()
    points = x + 0.2 * np.random.default_rng(2).normal(size=(3, len(x)))
    _, gradient = collapsed_bound(kernel, points, Z, X, Targets(y))
    expected = numerical_gradient(lambda p: collapsed_bound(kernel, p, Z, X, Targets(y))[0], points)
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_gradient_at_a_fixed_q_of_weighted_rows(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, Z = make_rows()
    q = some_q(len(Z))

    def evaluation(x):
        return Evaluation(Prior(kernel, x, Z), X, Targets(y), 3.0)

    expected = numerical_gradient(lambda x: evaluation(x).statistics.bound(q), x)
    assert_allclose(evaluation(x).gradient(q), expected, rtol=1e-5, atol=1e-6)


def test_log_evidence_and_its_gradient(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, _ = make_rows()
    value, gradient = log_evidence(kernel, x, Pairs(X), Targets(y))
    fitted, noise = parameters(kernel, x)
    assert_allclose(value, oracle.log_evidence(fitted(X), noise, y), rtol=1e-10)
    assert_allclose(Comparison(X, Targets(y)).bounds(kernel, [x])[0], value, rtol=1e-10)
    expected = numerical_gradient(lambda x: log_evidence(kernel, x, Pairs(X), Targets(y))[0], x)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def test_bound_is_below_the_evidence_and_equal_at_inducing_rows(kernel_and_x):
    kernel, x = kernel_and_x
    X, y, Z = make_rows()
    evidence, _ = log_evidence(kernel, x, Pairs(X), Targets(y))
    assert collapsed_bound(kernel, x[None, :], Z, X, Targets(y))[0] < evidence
    assert_allclose(collapsed_bound(kernel, x[None, :], X, X, Targets(y))[0], evidence, atol=1e-5)


@pytest.mark.parametrize("given", [(), ("weight",), ("weight", "variance")], ids=repr)
def test_mini_batches_of_a_partition_add_to_all_rows(given):
    kernel, x = kernel_at("SE")
    X, y, Z = make_rows()
    targets = Targets(y, **dict.fromkeys(given, np.linspace(0.2, 2.5, 12)))
    prior, q = Prior(kernel, x, Z), some_q(len(Z))
    whole = Evaluation(prior, X, targets)
    batches = [Evaluation(prior, X[i::3], targets[i::3], 3.0) for i in range(3)]
    for mean, total in zip(
        average_statistics([b.statistics for b in batches]), whole.statistics, strict=True
    ):
        assert_allclose(mean, total)
    assert_allclose(np.mean([b.gradient(q) for b in batches], axis=0), whole.gradient(q))


def test_statistics_in_chunks(monkeypatch):
    kernel, x = kernel_at("SE")
    X, y, Z = make_rows()
    frame = Frame(np.zeros(1), np.ones(1), Target(0.0, 1.0))
    rows = X, Targets(y)
    whole = total_statistics(*rows, frame, Z, kernel, x[None, :])
    monkeypatch.setattr("skvbgp.kernel_selection._bound._CHUNK_ROWS", 5)
    chunked = total_statistics(*rows, frame, Z, kernel, x[None, :])
    assert isinstance(chunked, Statistics)
    for a, b in zip(whole, chunked, strict=True):
        assert_allclose(a, b)


def test_hyperparameters_out_of_range_are_an_error():
    kernel, x = kernel_at("SE")
    X, y, _ = make_rows()
    x[0] = 1000.0
    with pytest.raises(NotPositiveDefiniteError, match="range of double precision"):
        log_evidence(kernel, x, Pairs(X), Targets(y))


def test_noise_that_drowns_is_an_error():
    kernel, x = kernel_at("SE")
    X, y, _ = make_rows(n=30)
    x[-1] = -60.0
    with pytest.raises(NotPositiveDefiniteError, match="noise drowns"):
        log_evidence(kernel, x, Pairs(X), Targets(y))
