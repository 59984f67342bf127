"""Starting values from the data."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp import VBDTCRegressor
from skvbgp.sgpr._start import _block_evidence, fit_noise_to_blocks, shorten
from tests.derivatives import numerical_gradient
from tests.oracles import sgpr as oracles
from tests.sgpr.problems import NOISE_SCALE, small_problem
from tests.signals import chirp


def block_evidence(problem, x, rows):
    """log N(y | 0, k^eps(X, X) + sigma_n^2 I) of one block, the kernel written out."""
    value, *lengths = np.exp(x[:-1])
    X = problem.model.coordinates.original(rows.X) / lengths
    C = NOISE_SCALE * value * oracles.se(X, X) + np.exp(x[-1]) * np.eye(len(X))
    return stats.multivariate_normal(np.zeros(len(X)), C).logpdf(rows.y)


def start_of(problem):
    p = problem.parameters
    return np.append(p.noise_theta, np.log(p.noise_variance))


def test_the_blocks_evidence_and_its_gradient():
    """Values of order 10: the stencil's error is below 1e-9."""
    problem = small_problem("pitc")
    x, rows = start_of(problem), problem.batch[0]
    value, actual = _block_evidence(problem.model, x, rows)
    assert_allclose(value, block_evidence(problem, x, rows), rtol=1e-10)
    expected = numerical_gradient(lambda x: block_evidence(problem, x, rows), x)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-8)


def test_fit_noise_to_blocks():
    """Explains the blocks better, and touches nothing but the noise."""
    problem = small_problem("pitc")
    p = problem.parameters
    after = fit_noise_to_blocks(problem.model, p, problem.data, np.random.RandomState(0))
    before_value, after_value = (
        sum(block_evidence(problem, start_of(q), rows) for rows in problem.batch)
        for q in (problem, problem.at(after))
    )
    assert after_value > before_value + 0.5
    parts, moved = p.split(p.pack()), p.split(after.pack())
    for name in parts:
        same = np.array_equal(parts[name], moved[name])
        assert same == (name not in {"noise_theta", "noise_variance"})
    again = fit_noise_to_blocks(problem.model, p, problem.data, np.random.RandomState(0))
    assert_array_equal(again.pack(), after.pack())


@pytest.mark.slow
def test_length_scales_are_shortened_where_the_function_is_rough():
    options = dict(solver="stochastic", batch_size=256, max_iter=60, random_state=0)
    X, y = chirp(1_500)
    start = 0.5 * X.std()  # that of smooth functions
    assert VBDTCRegressor(100, **options).fit(X, y).score(X, y) > 0.6
    assert VBDTCRegressor(100, length_scale=start, **options).fit(X, y).score(X, y) < 0.4


def test_length_scales_stay_where_the_function_is_smooth():
    problem = small_problem("dtc")
    p = replace(problem.parameters, nu=np.ones_like(problem.parameters.nu))
    after = shorten(problem.model, p, problem.data, seed=0)
    assert_array_equal(after.pack(), p.pack())
