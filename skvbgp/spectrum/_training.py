"""The two phases of training: on the evidence of single blocks, and on the paper's bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.draws import draw_antithetic
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, average_shared
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import (
    Annealing,
    Ascended,
    Clock,
    EndPass,
    ascend,
    cosine_annealing,
    go_on,
    report_as,
)
from skvbgp.spectrum._block_model import evidence_gradient
from skvbgp.spectrum._bound import (
    Statistics,
    expected_log_likelihood,
    expected_own_error,
    expected_squared_error,
    newton_step,
    sum_shifts,
    sum_statistics,
)
from skvbgp.spectrum._gaussian import Affine, Gaussian, Prior, Structure
from skvbgp.spectrum._reparameterised import Reparameterised, adam_step, bound_gradient
from skvbgp.spectrum._rows import Batch, DividedRows, Rows
from skvbgp.spectrum._state import VARIANCE_LIMITS, Hyperparameters

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
#: Draws in a step of Adam on M and b, which needs no curvature, but suffers from their noise.
_ADAM_DRAWS = 16
#: Rates of the steps on new rows, where q is uncertain about the frequencies.
_UPDATE_RATES = (1.0, 0.5, 1.0 / 3.0, 0.25, 0.2)

#: What the second phase moves; q is made from the first mini-batch.
_Reached = tuple[Gaussian | Reparameterised | None, Hyperparameters]


class Passes(NamedTuple):
    """How a phase goes through the rows."""

    rows: DividedRows
    n_passes: int
    n_batches: int  # in a pass: those of all rows, or as many as new rows pay for
    batch_size: int
    rng: np.random.RandomState
    annealing: Annealing = cosine_annealing
    tol: float | None = None

    def ascend(self, step: Any, start: Any, end_pass: EndPass) -> Ascended:
        return ascend(
            step,
            start,
            self._draw_batches,
            n_passes=self.n_passes,
            n_batches=self.n_batches,
            rng=self.rng,
            end_pass=end_pass,
            annealing=self.annealing,
            tol=self.tol,
        )

    def _draw_batches(self) -> Iterator[Batch]:
        rounds = (self.rows.minibatches(self.batch_size, self.rng) for _ in count())
        return islice(chain.from_iterable(rounds), self.n_batches)


class BlockFit(NamedTuple):
    """What the first phase has learned."""

    R: Array  # (m, d)
    hyper: Hyperparameters
    adam: AdamState
    n_passes: int


def fit_blocks(
    R: Array,
    hyper: Hyperparameters,
    passes: Passes,
    *,
    adam: AdamState | None = None,
    learning_rate: float,
    noise_only: bool = False,
    end_pass: EndPass = go_on,
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
    limits = np.log(VARIANCE_LIMITS)

    def unpack(x: Array) -> tuple[Array, Array, Array]:
        """R (m, d), w (d,), and both variances."""
        with np.errstate(over="ignore", invalid="ignore"):
            w = np.exp(x[m * d : -2])
            R = x[: m * d].reshape(m, d) * w
            if not np.isfinite(R**2).all():
                raise ValueError("Adam has diverged on the evidence: take a smaller learning_rate.")
        return R, w, np.exp(x[-2:])

    def step(
        state: tuple[Array, AdamState], batch: Batch, clock: Clock
    ) -> tuple[tuple[Array, AdamState], float]:
        (x, adam), (blocks, weight) = state, batch
        R, w, variances = unpack(x)
        parts = [evidence_gradient(block, R, *variances) for block in blocks]
        dR = sum(part.R for part in parts)
        gradient = np.concatenate(
            [
                (dR * w).ravel(),
                average_shared(np.sum(dR * R, axis=0), hyper.owners),
                [sum(part.log_signal_variance for part in parts)],
                [sum(part.log_noise_variance for part in parts)],
            ]
        )
        rates = learning_rate * clock.annealing * sizes
        x, adam = adam_ascent(x, weight * gradient, adam, rates)
        x[-2:] = np.clip(x[-2:], *limits)
        return (x, adam), weight * sum(part.value for part in parts)

    def reach(ascended: Ascended) -> BlockFit:
        R, _, (signal_variance, noise_variance) = unpack(ascended.state[0])
        learned = replace(
            hyper,
            signal_variance=float(signal_variance),
            local_noise_variance=float(noise_variance),
        )
        return BlockFit(R, learned, ascended.state[1], len(ascended.values))

    start = x, adam or AdamState.zeros(len(x))
    return reach(passes.ascend(step, start, report_as(reach, end_pass)))


class BoundFit(NamedTuple):
    """What the second phase has learned."""

    q: Gaussian
    hyper: Hyperparameters
    adam: AdamState | None  # of M and b
    values: tuple[float, ...]  # of the bound, one per pass


def fit_bound(
    structure: Structure,
    R: Array,
    hyper: Hyperparameters,
    passes: Passes,
    *,
    q: Gaussian | None = None,
    moves_frequencies: bool,
    learns: bool,
    adam_step_size: float | None,
    adam: AdamState | None = None,
    end_pass: EndPass = go_on,
) -> BoundFit:
    """Steps on q(alpha), and on the hyperparameters, if it ``learns`` them, in closed form.

    It goes on from q at a small rate, or (None) begins around the frequencies R. Unless it
    ``moves_frequencies``, the mean of q(theta) is held, and sigma_s^2 with it. Steps are those of
    Adam on M and b, with a first size and maybe moments to go on with, or (None) natural gradients.
    """
    n, rng = passes.rows.total, passes.rng
    if learns and q is None:
        hyper = replace(hyper, length_scale=_length_scale(R**2, hyper.owners))
    first = 2.0 if q is None else np.inf  # the first step of all forgets half of its start

    def step(state: _Reached, batch: Batch, clock: Clock) -> tuple[_Reached, float]:
        (q, hyper), (blocks, weight) = state, batch
        prior, noise_variance = hyper.prior(structure), hyper.noise_variance
        given = Rows.joined(blocks)
        rows = given.as_weighted(noise_variance)
        if q is None:
            q = _start_q(structure, R, prior, rows, weight, noise_variance)
        rate = max(_FIRST_RATE * clock.annealing, _LAST_RATE, 1.0 / (clock.step + first))
        moved: Gaussian | Reparameterised
        if adam_step_size is not None:
            q = Reparameterised.of(q, adam) if isinstance(q, Gaussian) else q
            Z = draw_antithetic(_ADAM_DRAWS, structure.size, rng)
            alphas = q.sample(Z)
            squared_error, shifts = sum_shifts(structure, alphas, rows)
            squared_error *= weight
            gradient = bound_gradient(q, prior, Z, shifts * (weight / noise_variance))
            moved = adam_step(
                q,
                prior,
                gradient,
                adam_step_size * clock.annealing,
                moves_frequencies=moves_frequencies,
            )
        else:
            assert isinstance(q, Gaussian)  # as every natural step leaves it
            alphas = q.sample(draw_antithetic(_STEP_DRAWS, structure.size, rng))
            information = sum_statistics(structure, alphas, rows).times(weight)
            squared_error = information.squared_error
            moved = newton_step(
                q, prior, information, noise_variance, rate, moves_frequencies=moves_frequencies
            )
        value = expected_log_likelihood(n, squared_error, noise_variance) - q.kl_to(prior)
        if given.variance is not None:
            value += weight * given.log_shares(noise_variance)
            squared_error = weight * expected_own_error(structure, alphas, given, noise_variance)
        if learns:
            hyper = _move_hyperparameters(hyper, moved, squared_error, n, rate, moves_frequencies)
        return (moved, hyper), value

    def reach(ascended: Ascended) -> BoundFit:
        q, hyper = ascended.state
        if isinstance(q, Reparameterised):
            return BoundFit(q.gaussian(), hyper, q.adam, ascended.values)
        return BoundFit(q, hyper, adam, ascended.values)

    return reach(passes.ascend(step, (q, hyper), report_as(reach, end_pass)))


def _start_q(
    structure: Structure,
    R: Array,
    prior: Prior,
    rows: Rows,
    weight: float,
    noise_variance: float,
) -> Gaussian:
    """q at the conditional optimum of s, with the curvature there: M starts small."""
    alpha = np.concatenate([R.ravel(), np.zeros(2 * structure.m)])
    q = Gaussian(structure, alpha, prior.precisions)
    for _ in range(2):  # the curvature in theta needs the s of the first step
        information = sum_statistics(structure, q.mean[None], rows).times(weight)
        q = newton_step(q, prior, information, noise_variance, 1.0, moves_frequencies=False)
    return q


def _move_hyperparameters(
    hyper: Hyperparameters,
    q: Affine,
    squared_error: float,
    n: float,
    rate: float,
    moves_frequencies: bool,
) -> Hyperparameters:
    """Hyperparameters moved towards those that maximise the bound for this q."""
    structure = q.structure
    moment = q.second_moment()
    noise = (1.0 - rate) * hyper.noise_variance + rate * squared_error / n
    signal_variance = hyper.signal_variance
    if moves_frequencies:
        signal_variance = structure.m * float(np.mean(moment[structure.weights]))
    return replace(
        hyper,
        length_scale=_length_scale(structure.frequencies(moment), hyper.owners),
        signal_variance=float(np.clip(signal_variance, *VARIANCE_LIMITS)),
        noise_variance=float(np.clip(noise, *VARIANCE_LIMITS)),
    )


def _length_scale(squared_frequencies: Array, owners: Owners) -> Array:
    """The maximiser of E_q[log p(theta)]: (2 pi l)^-2 is the average of r^2."""
    average = average_shared(np.mean(squared_frequencies, axis=0), owners)
    shortest, longest = _LENGTH_SCALE_LIMITS
    return np.clip(0.5 / np.pi / np.sqrt(np.maximum(average, 1e-300)), shortest, longest)


def estimate_bound(
    q: Gaussian, hyper: Hyperparameters, rows: DividedRows, rng: np.random.RandomState, n_most: int
) -> float:
    """L(q) for the scaled target, over common draws and ``n_most`` rows if there are more."""
    alphas = q.sample(draw_antithetic(_FINAL_DRAWS, q.structure.size, rng))
    chosen = rng.permutation(rows.n_blocks)
    chosen = chosen[: max(1, rows.n_blocks * n_most // max(rows.n, n_most))]
    t, squared_error, log_shares = hyper.noise_variance, 0.0, 0.0
    for block in rows.pick(chosen):
        squared_error += expected_squared_error(q.structure, alphas, block.as_weighted(t))
        log_shares += block.log_shares(t)
    weight = rows.n_blocks / len(chosen)
    likelihood = expected_log_likelihood(rows.total, weight * squared_error, t)
    likelihood += weight * log_shares
    return likelihood - q.kl_to(hyper.prior(q.structure))


def add_rows(
    q: Gaussian,
    noise_variance: float,
    sum_rows: Callable[[Structure, Array], Statistics],
    rng: np.random.RandomState,
    *,
    moves_frequencies: bool,
) -> Gaussian:
    """q after new rows, with q of the past as its prior; ``sum_rows`` is `sum_statistics` of them.

    Without uncertain frequencies this is the exact Bayesian linear model, whatever the chunks.
    """
    structure, prior = q.structure, q
    certain = structure.posterior == "point"
    for rate in (1.0,) if certain else _UPDATE_RATES:
        z = draw_antithetic(_UPDATE_DRAWS, structure.size, rng)
        alphas = q.mean[None] if certain else q.sample(z)
        information = sum_rows(structure, alphas)
        q = newton_step(
            q, prior, information, noise_variance, rate, moves_frequencies=moves_frequencies
        )
    return q
