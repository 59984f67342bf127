"""The search for the kernel of correlated noise, noise_kernel="auto".

The candidates are those of `VBGPRegressor`. Each is fitted to some blocks of y on their own, as if
there were no f, and judged by what it says of rows that are left out, each from the rest of its
block, as PIC predicts: rows of other blocks or, if there are few blocks, a part of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import ZeroMeanNormal, log_normal
from skvbgp._core.linalg import Array, cholesky, eigh
from skvbgp._core.parallel import thread_map
from skvbgp.base import RowSaysMoreError, says_too_little
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import share_hyperparameters
from skvbgp.kernels._candidates import combine, divide_at_random, follow, make_base_kernels
from skvbgp.sgpr._data import Data, Rows
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._noise import Blocks, Model
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import FixedRule
from skvbgp.sgpr._start import fit_noise_to_groups
from skvbgp.sgpr._state import State

#: Most blocks that kernels are fitted to, and as many others judge them.
_MOST_BLOCKS = 8
#: If there are no more blocks than this, kernels are fitted to a part of each, and this share of
#: its rows judges them.
_FEW_BLOCKS = 3
_LEFT_OUT = 0.2
#: Iterations of a trial, and of one that starts from what another kernel has learned.
_ITERATIONS, _FOLLOWING_ITERATIONS = 15, 8
#: Variances of the noise that judging may take instead of a smaller one that has been fitted.
_NOISES = np.array([0.0, 1e-4, 1e-3, 1e-2, 1e-1])
#: After training: most blocks whose rows judge, and the lead that a kernel needs over the default,
#: in standard errors of the difference.
_MOST_JUDGES, _STANDARD_ERRORS = 16, 2.0
#: Nats a row that blocks say more than f does, from which white noise is tried, too, and most
#: rows that are asked.
_HIDDEN, _MOST_SCREENED = 0.5, 512


class Judges(NamedTuple):
    """A block, and which of its rows judge kernels."""

    X: Array  # (n, d), the user's own units
    rows: Rows
    out: NDArray[np.bool_]  # (n,)


class Scores(NamedTuple):
    """What a kernel says of the rows that judge."""

    log_density: Array  # (h,)
    weight: Array  # (h,)

    @property
    def mean(self) -> float:
        return float(np.average(self.log_density, weights=self.weight))

    def leads(self, other: Scores, n_errors: float = 1.0) -> bool:
        """Whether the mean is higher by more than some standard errors of the difference."""
        lead, total = self.log_density - other.log_density, self.weight.sum()
        mean = np.average(lead, weights=self.weight)
        variance = np.average((lead - mean) ** 2, weights=self.weight) / total
        return bool(mean > n_errors * np.sqrt(variance))


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    kernel: Kernel
    scores: Scores


def choose_noise_kernel(state: State, data: Data) -> tuple[State, Array | None]:
    """The state before training with the kernel of noise that a search finds.

    And theta of the squared exponential that explains the same rows, (d + 1,). The default stays
    where no kernel predicts better than this one by more than chance; rows that are fewer than 32,
    or all at one place, tell no kernel from another.
    """
    if says_too_little(data.X, learns=True):
        return state, None
    rng = np.random.RandomState(state.seed)
    trials = try_kernels(state.model, state.parameters, data, rng)
    best = max(trials, key=lambda trial: trial.scores.mean)
    smooth = next(trial for trial in trials if trial.name == "SE")
    if not best.scores.leads(smooth.scores):
        return state, None
    model, parameters = _with_kernel(state.model, state.parameters, best.kernel)
    return replace(state, model=model, parameters=parameters), smooth.kernel.theta


def try_kernels(
    model: Model, parameters: Parameters, data: Data, rng: np.random.RandomState
) -> list[Trial]:
    """Kernels of noise, and how well they predict within blocks.

    Their hyperparameters are those that they have been fitted with. The variance of the noise is
    not kept: what a few blocks leave may be far too small for others.
    """
    fitted, judges = leave_out(data, rng)
    groups = [rows.with_pairs(model.coordinates) for rows in fitted]
    trials: list[Trial] = []

    def attempt(name: str, kernel: Kernel, max_iter: int) -> None:
        trial_model, start = _with_kernel(model, parameters, kernel)
        learned = fit_noise_to_groups(trial_model, start, groups, max_iter=max_iter)
        kernel = kernel.with_theta(learned.noise_theta)
        trials.append(Trial(name, kernel, judge(kernel, float(learned.noise_variance), judges)))

    for name, kernel in make_base_kernels(len(parameters.nu), model.coordinates.scale):
        if trials:
            kernel = follow(name, kernel, trials[-1].name, trials[-1].kernel)
        attempt(name, kernel, _FOLLOWING_ITERATIONS if trials else _ITERATIONS)
    best = sorted(trials, key=lambda trial: -trial.scores.mean)[:2]
    named = [(trial.name, trial.kernel) for trial in best]
    for name, _, (kernel,) in combine(named, divide_at_random(rng), few=False):
        attempt(name, kernel, _ITERATIONS)
    return trials


def _with_kernel(model: Model, parameters: Parameters, kernel: Kernel) -> tuple[Model, Parameters]:
    """Model and parameters with this kernel of noise."""
    owners = parameters.owners
    structure = Blocks(share_hyperparameters(kernel, owners), owners=owners, found=True)
    return replace(model, structure=structure), replace(parameters, noise_theta=structure.theta)


def leave_out(data: Data, rng: np.random.RandomState) -> tuple[list[Rows], list[Judges]]:
    """Groups of rows to fit kernels to, and blocks with the rows that judge them."""
    chosen = data.draw_blocks(2 * _MOST_BLOCKS, rng)
    if len(chosen) > _FEW_BLOCKS:
        half = len(chosen) // 2
        fitted, judging = chosen[:half], chosen[half:]
        out = [np.ones(len(rows), dtype=bool) for rows in judging]
    else:
        judging, sizes = chosen, [len(rows) for rows in chosen]
        out = [rng.permutation(size) < max(1.0, _LEFT_OUT * size) for size in sizes]
        fitted = [rows.take(~o) for rows, o in zip(judging, out, strict=True)]
    original = data.coordinates.original
    return fitted, [Judges(original(rows.X), rows, o) for rows, o in zip(judging, out, strict=True)]


def judge(kernel: Kernel, noise_variance: float, judges: list[Judges]) -> Scores:
    """Log densities of rows that are left out, given the rest of their block, at the best noise.

    The noise may be more than ``noise_variance``: kernels are not judged by what blocks have been
    fitted that need less of it than others do.
    """
    noises = np.unique(np.maximum(noise_variance, _NOISES))

    def measure(X: Array, rows: Rows, out: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Log densities (s, h), and how often these rows count (h,)."""
        weight = rows.counts
        each = scan_left_out(kernel(X), noises, weight, rows.y, rows.variance)
        return each[:, out], weight[out]

    log_densities, weights = zip(*thread_map(measure, judges), strict=True)
    each, weight = np.concatenate(log_densities, axis=1), np.concatenate(weights)
    return Scores(each[np.argmax(each @ weight)], weight)


def leave_one_out(K: Array, noise_variance: float | Array, weight: Array, y: Array) -> Array:
    """Log density of each y_i given the others, (n,), with noise of one variance or their own.

    Of one copy, if rows stand for several: the rest does not include any.
    """
    C = K + np.diag(noise_variance / weight)
    normal = ZeroMeanNormal.of(cholesky(C, "noise covariance of a block"), y)
    variance = 1.0 / np.sum(normal.L_inv**2, axis=0)  # of the mean of all copies
    error = normal.weights * variance
    variance += noise_variance - noise_variance / weight
    return log_normal(error, variance)


def scan_left_out(
    K: Array, noises: Array, weight: Array, y: Array, known: Array | None = None
) -> Array:
    """`leave_one_out` at many variances of the noise, (s, n), besides those that are ``known``.

    Without these, by one decomposition: with W the weights,
    (K + t W^-1)^-1 = W^1/2 (W^1/2 K W^1/2 + t I)^-1 W^1/2.
    """
    if known is not None:
        return np.array([leave_one_out(K, noise + known, weight, y) for noise in noises])
    root = np.sqrt(weight)
    eigenvalues, V = eigh(root[:, None] * K * root)
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0) + noises[:, None])  # (s, n)
    variance = 1.0 / (weight * (inverse @ (V**2).T))  # of the mean of all copies
    error = root * ((inverse * (V.T @ (root * y))) @ V.T) * variance
    variance += noises[:, None] - noises[:, None] / weight
    return log_normal(error, variance)


def choose_for_new_rows(found: State, default: State, data: Data, rule: FixedRule) -> State:
    """The default, unless rows that are left out are predicted better by what has been found.

    Where predictions do not condition on a block (PITC), the search's own judgement, what rows say
    of others in their block, is not about them. Nor is the bound: of the same rows, the kernel that
    explains blocks better has the higher one. See :doc:`/theory/training`.

    Both have been trained on the data, in blocks. The rule is how predictions take expectations.
    """
    try:
        scores = [judge_by_new_rows(state, data, rule) for state in (found, default)]
    except RowSaysMoreError:  # it seems so, as closed forms have drowned
        return default
    return found if scores[0].leads(scores[1], _STANDARD_ERRORS) else default


def hides_f(learned: State, data: Data) -> bool:
    """Whether f says far less of known rows than blocks do: it has left to these what it could say.

    With few inducing inputs and little noise, correlated noise explains the rows of a block, and
    the bound rewards it. What new rows are predicted from, f, may then be next to nothing. Rows are
    not left out here, which takes long and changes little where inducing inputs are few.
    """
    p, q, order = learned.parameters, learned.q, np.random.RandomState(learned.seed)
    rows = data.rows(order.permutation(len(data))[:_MOST_SCREENED])
    A = learned.prior.whiten(rows.X * p.nu)
    root = A @ q.precision_factor_inv.T
    variance = p.alpha**2 * (1.0 - np.sum(A**2, axis=1) + np.sum(root**2, axis=1))
    each = _measure(learned, rows, p.alpha * A @ q.mean, variance)
    of_blocks = (learned.lower_bound + learned.log_unit) / learned.summary.n
    return float(np.average(each, weights=rows.counts)) < of_blocks - _HIDDEN


def judge_by_new_rows(state: State, data: Data, rule: FixedRule) -> Scores:
    """Log densities of known rows, each predicted from the others as a new row would be.

    All that are known exactly, or those of some blocks.
    """
    if isinstance(state.memory, Mixture):
        groups = [state.memory.rows]
        moments = [state.memory.leave_out(include_noise=False)]
    else:
        groups = data.draw_blocks(_MOST_JUDGES, np.random.RandomState(state.seed))
        moments = state.remembered.predict_groups(rule, groups)
    each = [_measure(state, rows, *own) for rows, own in zip(groups, moments, strict=True)]
    return Scores(np.concatenate(each), np.concatenate([rows.counts for rows in groups]))


def _measure(state: State, rows: Rows, mean: Array, variance: Array) -> Array:
    """Log densities (n,) of rows, given the moments of f."""
    noise = state.noise.marginal_variance(state.model.coordinates.original(rows.X))
    return log_normal(rows.y - mean, variance + rows.add_known(noise))
