r"""The belief in the components of a mixture, learned from rows that are left out.

At row i, component c predicts N(y_i | m_ic, v_ic) and its neighbours have log evidence E_ic. With
the weights w_ic proportional to exp(a_c + temper E_ic), the log predictive density

    sum_i log sum_c w_ic N(y_i | m_ic, v_ic),

plus the logarithms of normal priors of a_c and of log temper, is maximised in a and log temper.
See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student_t

from skvbgp._core.linalg import LOG_2PI, Array
from skvbgp._core.order import Index
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.base import pick
from skvbgp.gp._mixture import LocalMoments, Mixture, OutputNoise, Predicted
from skvbgp.gp._noise_level import learn_level
from skvbgp.gp._process import Process
from skvbgp.gp._rows import Rows
from skvbgp.gp._shape import learn_shape

if TYPE_CHECKING:
    from skvbgp.gp._state import State

#: Prior of log temper, and the standard deviation of that of each a_c.
_LOG_TEMPER_MEAN, _LOG_TEMPER_STD = float(np.log(0.1)), 1.5
_LOG_WEIGHT_STD = 2.0
#: Where the search starts, and its limits.
_START_TEMPERS = (0.02, 0.1, 0.5)
_LOG_WEIGHT_LIMIT = 20.0
_TEMPER_LIMITS = (1e-3, 1.0)
_MAX_ITER = 100
#: Shares of the rows that intervals of 95 % may hold, and the half-width of these.
_COVERAGES = (0.95, 0.965)
_NORMAL_QUANTILE = 1.96
#: Degrees of freedom of the density that mixtures are ranked by.
_RANK_DOF = 5.0
#: Smallest factor of the variances.
_LEAST_CALIBRATION = 1e-3


def learn_belief(left_out: Predicted) -> tuple[Array, float]:
    """Log weights (C,) and temper by which processes predict rows best that are left out."""
    parts, y, weight = left_out
    log_density = np.array(measure_log_density(parts, y).T, order="C")  # (C, n)
    evidence = np.array(parts.evidence.T, order="C")
    weight = np.ones(len(y)) if weight is None else weight
    C = len(log_density)
    evidence -= evidence.max(axis=0)
    bounds = np.array([[-_LOG_WEIGHT_LIMIT, _LOG_WEIGHT_LIMIT]] * C + [np.log(_TEMPER_LIMITS)])
    results = [
        lbfgs_ascent(
            lambda x: score_belief(x, log_density, evidence, weight),
            np.append(np.zeros(C), np.log(temper)),
            max_iter=_MAX_ITER,
            tol=1e-9,
            bounds=bounds,
        )
        for temper in _START_TEMPERS
    ]
    x = max(results, key=lambda result: result.value).x
    return x[:C] - x[:C].max(), float(np.exp(x[C]))


def fit_mixture(processes: tuple[Process, ...], left_out: Predicted) -> Mixture:
    """The mixture of processes that predicts rows best, calibrated."""
    mixture = Mixture.equal(processes)
    if len(processes) > 1:
        mixture = Mixture(processes, *learn_belief(left_out))
    return replace(mixture, calibration=calibrate(mixture, left_out))


def calibrate(mixture: Mixture, left_out: Predicted) -> float:
    """Factor of the mixture's variances with which intervals hold what they promise.

    The factor with the highest normal density of the rows that are left out, as near to it as
    lets 95 to 96.5 % of them be within 1.96 standard deviations: where errors are heavy-tailed,
    that density asks for intervals that are too wide. But so that fewer rows are within, variances
    become no smaller than they are, nor than this density asks: where a function holds for all rows
    but a few, intervals are too wide for the others, or these few unthinkable.
    """
    z2 = _standardise(mixture, left_out) ** 2
    best = float(np.average(z2, weights=left_out.weight))
    limits = _quantile(z2, _COVERAGES, left_out.weight) / _NORMAL_QUANTILE**2
    low, high = np.maximum(limits, _LEAST_CALIBRATION)
    return float(np.clip(best, low, max(high, min(best, 1.0))))


def widen(mixture: Mixture, left_out: Predicted, *, least: float = 1.0) -> Mixture:
    """A mixture learned from all rows, with larger variances if rows left out are less likely.

    Its hyperparameters have seen these, so that smaller ones would prove nothing. Others may have
    said how large they are at `least`.
    """
    z2 = _standardise(mixture, left_out) ** 2
    return replace(mixture, calibration=max(least, float(np.average(z2, weights=left_out.weight))))


def vary_noise(mixture: Mixture, left_out: Predicted) -> Mixture:
    """The mixture with noise that depends on what is predicted, as rows left out say."""
    parts, y, weight = left_out
    mean, total = mixture.mix(parts, include_noise=True)
    latent = mixture.mix(parts, include_noise=False)[1]
    level = learn_level(mean, latent, total - latent, (y - mean) ** 2, weight)
    return replace(mixture, noise_level=level)


def tell_noises(mixture: Mixture, left_out: Predicted, output: Index, *, varies: bool) -> Mixture:
    """The mixture with noise of every output, of which rows (n,) are, by itself; it may vary."""
    noises = list[OutputNoise]()
    for j in range(mixture.n_outputs):
        own, mine = mixture, output == j
        if varies and mine.any():
            own = vary_noise(mixture, left_out.take(mine))
        noises.append(OutputNoise(mixture.extra_noise, own.noise_level))
    return replace(mixture, extra_noise=0.0, noises=tuple(noises))


def shape_errors(mixture: Mixture, left_out: Predicted) -> Mixture:
    """The mixture with the shape that errors of rows left out have."""
    return replace(mixture, shape=learn_shape(_standardise(mixture, left_out), left_out.weight))


def _standardise(mixture: Mixture, left_out: Predicted) -> Array:
    """Errors of rows that are left out, in standard deviations of their predictions."""
    mean, variance = mixture.mix(left_out.parts, include_noise=True)
    return np.asarray((left_out.y - mean) / np.sqrt(variance))


def _quantile(values: Array, shares: tuple[float, ...], weight: Array | None) -> Array:
    """Quantiles of values that count as often as their weights say."""
    if weight is None:
        return np.quantile(values, shares)
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return values[order[np.searchsorted(total, np.array(shares) * total[-1])]]


def measure_log_density(parts: LocalMoments, y: Array) -> Array:
    """Log densities (n, C) of targets (n,) under each process."""
    return _log_normal(y[:, None], parts.mean, parts.variance + parts.noise)


def measure_score(mixture: Mixture, left_out: Predicted) -> float:
    """Average log density of targets under normal distributions with the mixture's moments."""
    log_density = _log_normal(left_out.y, *mixture.mix(left_out.parts, include_noise=True))
    return float(np.average(log_density, weights=left_out.weight))


def _log_normal(y: Array, mean: Array, variance: Array) -> Array:
    """Log densities of targets under normal distributions with these means and variances."""
    return np.asarray(-0.5 * (LOG_2PI + np.log(variance) + (y - mean) ** 2 / variance))


def rank_mixture(mixture: Mixture, left_out: Predicted) -> float:
    """What mixtures are compared by: the average log density of targets under Student's t.

    It has the mixture's moments, see `rank_values`.
    """
    density = rank_values(left_out.y, *mixture.mix(left_out.parts, include_noise=True))
    return float(np.average(density, weights=left_out.weight))


def rank_values(y: Array, mean: Array, variance: Array) -> Array:
    """Log densities (n,) of targets under Student's t with these means and variances.

    Under normal distributions single rows that contradict their neighbours would decide.
    """
    scale = np.sqrt(variance * (_RANK_DOF - 2.0) / _RANK_DOF)
    return np.asarray(student_t.logpdf(y, _RANK_DOF, mean, scale))


def judge_state(state: State, rows: Rows, index: Index) -> tuple[float, float]:
    """How well some rows, with the targets observed, are predicted, each left out: rank and score.

    Of the scaled target, and with the calibration that the state has.
    """
    left_out = predict_left_out(state, rows, index)
    return rank_mixture(state.mixture, left_out), measure_score(state.mixture, left_out)


def predict_left_out(state: State, rows: Rows, index: Index) -> Predicted:
    """Some rows, each left out of a state; scaled."""
    posterior = replace(state).posterior  # of a copy: what it makes of the rows is not kept
    noise = rows.discounted
    parts = posterior.leave_out(index, None if noise is None else noise.others[index])
    y = posterior.target.scaled(rows.y[index])
    return Predicted(parts, y, pick(rows.weight, index))


def score_belief(
    x: Array, log_density: Array, evidence: Array, weight: Array
) -> tuple[float, Array]:
    """The objective and its gradient in x = (a, log temper).

    Called thousands of times in a search. Log densities and evidences are (C, n), one line for
    each process: NumPy sums a few long lines much faster than many short ones.
    """
    C = len(log_density)
    mixed, shares = _mix_log_densities(x, log_density, evidence)
    mixed, shares = weight * mixed, weight * shares
    temper = np.exp(x[C])
    gradient = np.append(
        shares.sum(axis=1) - x[:C] / _LOG_WEIGHT_STD**2,
        temper * np.vdot(shares, evidence) - (x[C] - _LOG_TEMPER_MEAN) / _LOG_TEMPER_STD**2,
    )
    penalty = float(np.sum((x[:C] / _LOG_WEIGHT_STD) ** 2))
    penalty += float(((x[C] - _LOG_TEMPER_MEAN) / _LOG_TEMPER_STD) ** 2)
    return float(mixed.sum()) - 0.5 * penalty, gradient


def _mix_log_densities(x: Array, log_density: Array, evidence: Array) -> tuple[Array, Array]:
    """Log densities (n,) of the mixture, and their derivatives (C, n) in the log weights."""
    C = len(log_density)
    log_weights = x[:C, None] + np.exp(x[C]) * evidence
    log_weights, weights = _normalise(log_weights)[1:]
    mixed, _, shares = _normalise(log_weights + log_density)
    return mixed, shares - weights


def _normalise(log_weights: Array) -> tuple[Array, Array, Array]:
    """Logarithms (n,) of the sums of weights (C, n), the same with sum one, and their exponentials.

    SciPy's functions of general arrays take several times as long.
    """
    top = log_weights.max(axis=0)
    weights = np.exp(log_weights - top)
    total = weights.sum(axis=0)
    log_total = top + np.log(total)
    return log_total, log_weights - log_total, weights / total
