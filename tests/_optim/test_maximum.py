"""The Gaussian around a maximum, of few hyperparameters and of many."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim import maximum
from skvbgp._optim.maximum import Trained, draw_processes
from tests.oracles import gp as oracle

N_PRECISE = 3


@dataclass(frozen=True)
class Quadratic:
    """Its log prior and log evidence are quadratic around zero."""

    vector: np.ndarray  # (p,)
    prior: np.ndarray  # precisions, (p,)
    rows: np.ndarray  # minus the second derivatives of the log evidence, (p, p)

    @property
    def bounds(self):
        return np.tile([-np.inf, np.inf], (len(self.vector), 1))

    def with_vector(self, vector):
        return replace(self, vector=vector)

    def log_prior(self):
        return -0.5 * self.prior @ self.vector**2, -self.prior * self.vector

    def log_evidence(self):
        return self.evidence()[0]

    def evidence(self):
        slope = -self.rows @ self.vector
        return 0.5 * self.vector @ slope, slope


def make_quadratic(p, rest, seed=0):
    """Rows say much in a few directions, and something of the size `rest` in all."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((p, N_PRECISE))
    E = rng.standard_normal((p, p))
    rows = B @ B.T + rest * (E + E.T)
    return Quadratic(np.zeros(p), rng.uniform(0.5, 30.0, p), rows)


def spread_of(process):
    """Covariance and log determinant of the Gaussian."""
    log_det, stretch = maximum._measure_prior_and_more(process, [()])
    S = np.column_stack([stretch(e) for e in np.eye(len(process.vector))])
    return S @ S.T, log_det


@pytest.mark.parametrize("rest", [0.0, 0.02])
@pytest.mark.parametrize("n_directions", [4, 8])
def test_many_hyperparameters_as_by_definition(rest, n_directions, monkeypatch):
    monkeypatch.setattr(maximum, "_N_DIRECTIONS", n_directions)
    process = make_quadratic(20, rest)
    start = np.random.RandomState(0).standard_normal(20)
    covariance, log_det = oracle.spread_few_directions(
        process.prior, process.rows, start, n_directions, maximum._LEAST_CURVATURE
    )
    found, found_log_det = spread_of(process)
    assert_allclose(found, covariance, atol=1e-6)
    assert_allclose(found_log_det, log_det, atol=1e-5)


def test_what_rows_say_in_few_directions_is_exact():
    process = make_quadratic(150, 0.0)
    found, log_det = spread_of(process)
    H = process.rows + np.diag(process.prior)
    assert_allclose(found, np.linalg.inv(H), atol=1e-6)
    assert_allclose(log_det, np.linalg.slogdet(H / (2.0 * np.pi))[1], atol=1e-4)


@pytest.mark.parametrize("p", [20, 128, 129])
def test_a_quadratic_posterior_has_draws_of_one_importance(p):
    """Which is its integral."""
    process = make_quadratic(p, 0.0)
    drawn, at_maximum = draw_processes(Trained(process, 0.0), [()], 16, 0)
    H = process.rows + np.diag(process.prior)
    exact = -0.5 * np.linalg.slogdet(H / (2.0 * np.pi))[1]
    assert_allclose([weight for _, weight in drawn], exact, atol=1e-3)
    assert_allclose(at_maximum, exact, atol=1e-3)
    assert len({tuple(one.vector) for one, _ in drawn}) == 16


def test_no_direction_is_wider_than_believed():
    """Of what is a saddle, and where the prior is flat."""
    process = replace(make_quadratic(150, 0.0), rows=-np.diag(np.linspace(0.0, 100.0, 150)))
    process = replace(process, prior=np.zeros(150))
    found, _ = spread_of(process)
    widest = np.linalg.eigvalsh(found).max()
    assert widest <= maximum._LEAST_CURVATURE**-2 * (1.0 + 1e-6)


def test_many_hyperparameters_take_few_gradients(monkeypatch):
    calls = []
    evidence = Quadratic.evidence
    monkeypatch.setattr(Quadratic, "evidence", lambda self: calls.append(1) or evidence(self))
    maximum._measure_prior_and_more(make_quadratic(300, 0.01), [()])
    assert len(calls) == 2 * maximum._N_DIRECTIONS
