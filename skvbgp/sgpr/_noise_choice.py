"""The choice of sigma_n^2 after training with a kernel of noise that a search has found.

Rows of a block are left out in turn, and predicted as PIC does: from the rest of their block, and
from u as the other blocks know it. The largest noise with which they hardly lose is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skvbgp._core.copies import find_equal
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.base import pick
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._bound import Evaluation
from skvbgp.sgpr._data import Data, Rows
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._kernel_search import scan_left_out
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import CommonDraws, FixedRule
from skvbgp.sgpr._state import State

#: Most blocks whose rows are left out.
_MOST_BLOCKS = 16
#: Multiples of the learned noise that are tried, up to the variance of y.
_FACTORS = 10.0 ** np.arange(0.0, 6.1, 0.25)
#: What a row may lose, in nats.
_LOSS = 0.01

#: Makes the state of some parameters, by a pass over all rows.
Conclude = Callable[[Parameters, FixedRule], State]


class Held(NamedTuple):
    """Rows that are left out in turn, of which equal ones are one."""

    K: Array  # (n, n) their covariance, but for noise that is independent
    y: Array  # (n,) less their mean
    weight: Array  # (n,)
    variance: Array | None  # (n,) what is known of their noise

    def score(self, noises: Array) -> Array:
        """Sums of log densities at variances (s,) of the noise."""
        each = scan_left_out(self.K, noises, self.weight, self.y, self.variance)
        return np.asarray(each @ self.weight)


def choose_noise_variance(state: State, data: Data, conclude: Conclude) -> State:
    """The trained state, with more noise if known rows say nothing against it.

    Where a rough kernel explains the rows, their evidence hardly tells little noise from none: some
    twins that agree are enough for none. A new row that contradicts its twin then has almost no
    density.
    """
    if not state.model.structure.found:
        return state
    learned = float(state.parameters.noise_variance)
    state = replace(state, learned_noise=learned)
    chosen = find_noise_variance(state, data, conclude)
    if chosen == learned:
        return state
    raised = conclude(replace(state.parameters, noise_variance=chosen), state.draw_rule)
    return replace(state, parameters=raised.parameters, memory=raised.memory)


def choose_again(state: State, data: Data, conclude: Conclude) -> State:
    """The state with noise that is chosen from all its rows, in blocks that have been made again.

    Among more rows that are near each other, less noise may cost next to nothing. Its memory stays
    that of the noise before.
    """
    if state.learned_noise is None:
        return state
    parameters = replace(state.parameters, noise_variance=state.learned_noise)
    chosen = find_noise_variance(replace(state, parameters=parameters), data, conclude)
    return replace(state, parameters=replace(parameters, noise_variance=chosen))


def find_noise_variance(state: State, data: Data, conclude: Conclude) -> float:
    """The largest noise, from that of the state on, with which known rows hardly lose."""
    learned = float(state.parameters.noise_variance)
    noises = learned * _FACTORS[learned * _FACTORS <= max(1.0, learned)]
    held = _leave_out(state, data, conclude)
    total = sum(h.weight.sum() for h in held)
    scores = sum(thread_map(Held.score, [(h, noises) for h in held])) / total
    return float(noises[np.flatnonzero(scores >= np.max(scores) - _LOSS)[-1]])


def _leave_out(state: State, data: Data, conclude: Conclude) -> list[Held]:
    """Rows of some blocks, or all that are known exactly, at the mean of q(theta)."""
    p, blocks = state.parameters, data.blocks
    assert blocks is not None
    if isinstance(state.memory, Mixture):
        rows = data.rows(slice(None))
        x = rows.X * p.nu
        K = p.alpha**2 * unit_se(x, x)
        for block in blocks:
            K[np.ix_(block, block)] += _correlate(state, rows.X[block])
        return [_merge(K, rows.y, rows)]
    draws = np.zeros((1, len(p.nu)))
    held = data.draw_blocks(_MOST_BLOCKS, np.random.RandomState(state.seed))
    own = [Evaluation(state.model, p, [rows], [draws[:, None, :]], whitened=True) for rows in held]
    if len(held) == len(blocks):
        rest = WhitenedGaussian.standard(len(p.U))
    else:
        rest = conclude(p, CommonDraws(draws)).q
        for known in own:
            rest = rest.with_information(-known.information, -known.shift)

    def leave_out(k: int) -> Held:
        others = rest  # a sum: the difference of what is known may be all rounding
        for known in own[:k] + own[k + 1 :]:
            others = others.with_information(known.information, known.shift)
        return _leave_out_of_block(state, held[k], others)

    return thread_map(leave_out, [(k,) for k in range(len(held))])


def _leave_out_of_block(state: State, rows: Rows, others: WhitenedGaussian) -> Held:
    """Rows of one block, given what the others tell of u."""
    p = state.parameters
    x = rows.X * p.nu
    A = state.prior.whiten(x)  # (n, m)
    root = p.alpha * A @ others.precision_factor_inv.T
    K = p.alpha**2 * (unit_se(x, x) - A @ A.T) + root @ root.T
    K += _correlate(state, rows.X)
    return _merge(K, rows.y - p.alpha * A @ others.mean, rows)


def _correlate(state: State, X: Array) -> Array:
    """Covariance of a block's noise, but for what is independent, (n, n)."""
    C = state.noise.covariance(state.model.coordinates.original(X))
    C.flat[:: len(C) + 1] -= state.parameters.noise_variance
    return C


def _merge(K: Array, y: Array, rows: Rows) -> Held:
    """Equal rows as one, so that none is predicted from its copy."""
    columns = [rows.y] if rows.variance is None else [rows.y, rows.variance]
    first, owner = find_equal(rows.X, *columns)
    weight = np.bincount(owner, rows.weight).astype(float)
    return Held(K[np.ix_(first, first)], y[first], weight, pick(rows.variance, first))
