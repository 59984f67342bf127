r"""Noise whose variance depends on what is predicted, as that of wages, prices and counts does.

Where rows that are left out are predicted to be m_i, with a latent function of variance v_i and
noise of variance s_i, the noise is taken to have the variance

    s_i exp(c + b t_i),    t_i = (m_i - m) / u between -2 and 2,

with the mean m of the m_i and their standard deviation u. c and b maximise the normal density of
the rows' squared errors, plus the logarithm of a normal prior of b. Before, v_i and s_i are
multiplied by what makes the errors as large as expected, which is not what is asked here. See
:doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.gaussian import log_normal
from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale
from skvbgp._optim.lbfgs import lbfgs_ascent

#: Precision of the prior of the slope; the limits of t, and of c and b.
_PRECISION = 10.0
_FAR = 2.0
_LIMITS = np.array([[-3.0, 3.0], [-1.0, 1.0]])
_MAX_ITER, _TOL = 50, 1e-9


class NoiseLevel(NamedTuple):
    """How the variance of the noise depends on the predicted mean; scaled."""

    centre: float
    unit: float
    level: float  # c
    slope: float  # b

    def factor(self, mean: Array) -> Array:
        """What the variance of the noise is multiplied by, where `mean` is predicted."""
        return np.asarray(np.exp(self.level + self.slope * self.locate(mean)))

    def locate(self, mean: Array) -> Array:
        """Where predictions are among those of all rows."""
        return np.clip((mean - self.centre) / self.unit, -_FAR, _FAR)


def learn_level(
    mean: Array, latent: Array, noise: Array, squares: Array, weight: Array | None = None
) -> NoiseLevel | None:
    """From predicted means, variances and squared errors (n,) of rows that are left out.

    They count as often as their weights say. None if all predictions or all errors are the same.
    """
    weight = np.ones(len(mean)) if weight is None else weight
    summary = RunningScale.of(mean, weight)
    size = float(np.average(squares / (latent + noise), weights=weight))
    if not (summary.std > 0.0 and size > 0.0):
        return None
    start = NoiseLevel(float(summary.mean), float(summary.std), 0.0, 0.0)
    given = start.locate(mean), size * latent, size * noise, squares, weight
    found = lbfgs_ascent(
        lambda x: score_level(x, *given),
        np.zeros(2),
        max_iter=_MAX_ITER,
        tol=_TOL,
        bounds=_LIMITS,
    )
    level, slope = found.x.tolist()
    return start._replace(level=level, slope=slope)


def score_level(
    x: Array, t: Array, latent: Array, noise: Array, squares: Array, weight: Array
) -> tuple[float, Array]:
    """The objective and its gradient in x = (c, b)."""
    own = noise * np.exp(x[0] + x[1] * t)
    total = latent + own
    slope = 0.5 * weight * (squares / total - 1.0) * own / total
    value = float(weight @ log_normal(np.sqrt(squares), total)) - 0.5 * _PRECISION * x[1] ** 2
    return value, np.array([slope.sum(), slope @ t - _PRECISION * x[1]])
