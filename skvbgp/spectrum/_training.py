"""The two phases of training: on the evidence of single blocks, and on the paper's bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.convergence import has_converged
from skvbgp._optim.schedule import cosine_annealing
from skvbgp.spectrum._blocks import Blocks, Rows
from skvbgp.spectrum._bound import (
    Statistics,
    antithetic,
    expected_log_likelihood,
    expected_squared_error,
    newton_step,
    statistics,
)
from skvbgp.spectrum._local import evidence_gradient
from skvbgp.spectrum._posterior import Gaussian, Structure
from skvbgp.spectrum._state import Hyperparameters

#: Limits of the variances of a scaled target.
_VARIANCE_LIMITS = (1e-6, 1e4)
#: Limits of the prior's length scales for scaled inputs: beyond, an input does not matter.
_LENGTH_SCALE_LIMITS = (1e-4, 1e4)
#: Adam's steps of the logarithms, relative to those of the frequencies.
_LOG_STEP = 2.0
#: Least size, in units of 1 / (2 pi l), to which the steps of a frequency are relative.
_LEAST_FREQUENCY = 0.3
#: First and last rate of the natural-gradient steps.
_FIRST_RATE, _LAST_RATE = 0.1, 0.01
#: Draws of alpha in a step (an antithetic pair), in the final bound and in an update.
_STEP_DRAWS, _FINAL_DRAWS, _UPDATE_DRAWS = 2, 8, 4
#: Rows from which the final bound is computed; of more rows it is an unbiased estimate.
_BOUND_ROWS = 100_000
#: Rates of the steps on new rows, where q is uncertain about the frequencies.
_UPDATE_RATES = (1.0, 0.5, 1.0 / 3.0, 0.25, 0.2)

#: Called at the end of a pass; True asks to stop.
Monitor = Callable[..., bool]


class BlockFit(NamedTuple):
    """End of the first phase."""

    R: Array  # (m, d)
    hyper: Hyperparameters
    n_passes: int


def fit_blocks(
    R: Array,
    hyper: Hyperparameters,
    blocks: Blocks,
    *,
    noise_only: bool,
    max_iter: int,
    batch_size: int,
    learning_rate: float,
    tol: float,
    rng: np.random.RandomState,
    monitor: Monitor | None = None,
) -> BlockFit:
    """Adam on the blocks' evidence, sum_k log N(y_k | 0, lambda Phi_k' Phi_k + noise I).

    Learns the frequencies, as r_ij = u_ij w_j with a common factor for each input, sigma_s^2
    and the noise of the local conditional, or (``noise_only``) the noise alone.
    """
    m, d = R.shape
    unit = 1.0 / (2.0 * np.pi * hyper.length_scale)
    u = R / unit
    x = np.concatenate(
        [u.ravel(), np.log(unit), np.log([hyper.signal_variance, hyper.local_noise_variance])]
    )
    sizes = np.concatenate(
        [np.maximum(np.abs(u), _LEAST_FREQUENCY).ravel(), np.full(d + 2, _LOG_STEP)]
    )
    if noise_only:
        sizes[:-1] = 0.0
    limits = np.log(_VARIANCE_LIMITS)
    state, step, values = AdamState.zeros(len(x)), 0, []
    n_steps = max_iter * blocks.n_batches(batch_size)

    def unpacked() -> tuple[Array, Hyperparameters]:
        signal_variance, noise_variance = np.exp(x[-2:])
        learned = replace(
            hyper,
            signal_variance=float(signal_variance),
            local_noise_variance=float(noise_variance),
        )
        return x[: m * d].reshape(m, d) * np.exp(x[m * d : -2]), learned

    for _ in range(max_iter):
        in_pass = []
        for batch, weight in blocks.minibatches(batch_size, rng):
            R, learned = unpacked()
            parts = [
                evidence_gradient(*rows, R, learned.signal_variance, learned.local_noise_variance)
                for rows in batch
            ]
            dR = sum(part.R for part in parts)
            gradient = np.concatenate(
                [
                    (dR * np.exp(x[m * d : -2])).ravel(),
                    np.sum(dR * R, axis=0),
                    [sum(part.log_signal_variance for part in parts)],
                    [sum(part.log_noise_variance for part in parts)],
                ]
            )
            annealing = cosine_annealing(step, n_steps)
            x, state = adam_ascent(x, weight * gradient, state, learning_rate * annealing * sizes)
            x[-2:] = np.clip(x[-2:], *limits)
            in_pass.append(weight * sum(part.value for part in parts))
            step += 1
        values.append(float(np.mean(in_pass)))
        if monitor is not None and monitor(*unpacked()):
            break
        if tol > 0.0 and has_converged(values, tol, len(in_pass)):
            break
    return BlockFit(*unpacked(), len(values))


class BoundFit(NamedTuple):
    """End of the second phase."""

    q: Gaussian
    hyper: Hyperparameters
    lower_bounds: list[float]  # one per pass, scaled target


def fit_bound(
    structure: Structure,
    R: Array,
    hyper: Hyperparameters,
    blocks: Blocks,
    *,
    moves_frequencies: bool,
    learns: bool,
    max_iter: int,
    batch_size: int,
    tol: float,
    rng: np.random.RandomState,
    monitor: Monitor | None = None,
) -> BoundFit:
    """Natural-gradient steps on q(alpha) and closed-form steps on the hyperparameters.

    Parameters
    ----------
    moves_frequencies : bool
        False holds the mean of q(theta), and sigma_s^2 with it.
    learns : bool
        False holds the hyperparameters.
    """
    n = len(blocks.y)
    if learns:
        hyper = replace(hyper, length_scale=_length_scale(R**2))
    q = None
    n_steps = max_iter * blocks.n_batches(batch_size)
    step, lower_bounds = 0, []
    for _ in range(max_iter):
        in_pass = []
        for batch, weight in blocks.minibatches(batch_size, rng):
            prior = hyper.prior(structure)
            if q is None:
                q = _first_q(structure, R, prior, batch, weight, hyper.noise_variance)
            alphas = q.sample(antithetic(_STEP_DRAWS, structure.size, rng))
            information = statistics(structure, alphas, batch).scaled(weight)
            annealing = cosine_annealing(step, n_steps)
            rate = max(_FIRST_RATE * annealing, _LAST_RATE, 1.0 / (step + 2.0))
            fit = expected_log_likelihood(n, information.squared_error, hyper.noise_variance)
            in_pass.append(fit - q.kl_to(prior))
            q = newton_step(
                q,
                prior,
                information,
                hyper.noise_variance,
                rate,
                moves_frequencies=moves_frequencies,
            )
            if learns:
                hyper = _learned(hyper, q, information, n, rate, moves_frequencies)
            step += 1
        lower_bounds.append(float(np.mean(in_pass)))
        if monitor is not None and monitor(q, hyper, lower_bounds[-1]):
            break
        if tol > 0.0 and has_converged(lower_bounds, tol, len(in_pass)):
            break
    return BoundFit(q, hyper, lower_bounds)


def _first_q(
    structure: Structure,
    R: Array,
    prior: Gaussian,
    batch: list[Rows],
    weight: float,
    noise_variance: float,
) -> Gaussian:
    """q at the conditional optimum of s, with the curvature there: M starts small."""
    alpha = np.concatenate([R.ravel(), np.zeros(2 * structure.m)])
    q = Gaussian(structure, alpha, prior.precisions)
    for _ in range(2):  # the curvature in theta needs the s of the first step
        information = statistics(structure, q.mean[None], batch).scaled(weight)
        q = newton_step(q, prior, information, noise_variance, 1.0, moves_frequencies=False)
    return q


def _learned(
    hyper: Hyperparameters,
    q: Gaussian,
    information: Statistics,
    n: int,
    rate: float,
    moves_frequencies: bool,
) -> Hyperparameters:
    """Hyperparameters moved towards those that maximise the bound for this q."""
    structure = q.structure
    moment = q.second_moment()
    noise = (1.0 - rate) * hyper.noise_variance + rate * information.squared_error / n
    signal_variance = hyper.signal_variance
    if moves_frequencies:
        signal_variance = structure.m * float(np.mean(moment[structure.weights]))
    return replace(
        hyper,
        length_scale=_length_scale(structure.frequencies(moment)),
        signal_variance=float(np.clip(signal_variance, *_VARIANCE_LIMITS)),
        noise_variance=float(np.clip(noise, *_VARIANCE_LIMITS)),
    )


def _length_scale(squared_frequencies: Array) -> Array:
    """The maximiser of E_q[log p(theta)]: (2 pi l)^-2 is the average of r^2."""
    average = np.mean(squared_frequencies, axis=0)
    shortest, longest = _LENGTH_SCALE_LIMITS
    return np.clip(0.5 / np.pi / np.sqrt(np.maximum(average, 1e-300)), shortest, longest)


def final_bound(
    q: Gaussian, hyper: Hyperparameters, blocks: Blocks, rng: np.random.RandomState
) -> float:
    """L(q) for the scaled target, over common draws."""
    n = len(blocks.y)
    alphas = q.sample(antithetic(_FINAL_DRAWS, q.structure.size, rng))
    chosen = rng.permutation(blocks.n_blocks)
    chosen = chosen[: max(1, blocks.n_blocks * _BOUND_ROWS // max(n, _BOUND_ROWS))]
    squared_error = sum(
        expected_squared_error(q.structure, alphas, *blocks.rows(k)) for k in chosen
    )
    squared_error *= blocks.n_blocks / len(chosen)
    likelihood = expected_log_likelihood(n, squared_error, hyper.noise_variance)
    return likelihood - q.kl_to(hyper.prior(q.structure))


def updated(
    q: Gaussian,
    noise_variance: float,
    X: Array,
    y: Array,
    rng: np.random.RandomState,
) -> tuple[Gaussian, float]:
    """q after new rows, with q of the past as its prior, and the bound's change.

    Without uncertain frequencies this is the exact Bayesian linear model, whatever the chunks.
    """
    structure, new = q.structure, q
    certain = structure.posterior == "point"
    for rate in (1.0,) if certain else _UPDATE_RATES:
        z = antithetic(_UPDATE_DRAWS, structure.size, rng)
        alphas = q.mean[None] if certain else new.sample(z)
        information = statistics(structure, alphas, [(X, y)])
        new = newton_step(new, q, information, noise_variance, rate, moves_frequencies=not certain)
    alphas = new.sample(antithetic(_FINAL_DRAWS, structure.size, rng))
    squared_error = expected_squared_error(structure, alphas, X, y)
    likelihood = expected_log_likelihood(len(y), squared_error, noise_variance)
    return new, likelihood - new.kl_to(q)
