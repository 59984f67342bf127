r"""What a fitted model keeps of its data: the information about the inducing outputs.

The data enter q(u) through the information matrix and vectors of
:mod:`skvbgp._core.gaussian`, which add over chunks. They are kept at unit signal and for
two targets at once - the scaled target and the constant 1 - so that the mean and the
scale of y may be refined as more data arrive without a look at the old rows.

When the hyperparameters or the inducing inputs change, the memory is carried over as a
Gaussian pseudo-likelihood of the function values f(U) at the old inducing inputs, as in
Bui, Nguyen & Turner, "Streaming sparse Gaussian process approximations" (NIPS 2017):
with f_U = sigma_f L u before and after, u_old = T u_new for T = L_old^-1 L_new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import add
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import LOG_2PI, Array, triu_congruence
from skvbgp._core.parallel import LazyTasks, spread_each
from skvbgp.sgpr._bound import Prior, Shared
from skvbgp.sgpr._data import Data, Rows
from skvbgp.sgpr._quadrature import FixedRule

#: Tasks that a pass over all rows is cut into, whatever the number of workers: a few, or as many
#: as keep a task to so many rows, because its rows are sent to the worker.
_N_SEGMENTS = 16
_SEGMENT_ROWS = 8192


class Statistics(NamedTuple):
    """Sums over groups of rows, in the whitened coordinates of a prior."""

    information: Array  # (m, m) E[A' C^-1 A] for A = K L^-T
    targets_information: Array  # (m, 2) E[A]' C^-1 (y, 1)
    targets_gram: Array  # (2, 2) (y, 1)' C^-1 (y, 1)
    log_det: float  # log |C|
    trace: float  # tr(C^-1 E[K~])
    n: float  # rows, each as often as it counts

    @classmethod
    def none(cls, m: int) -> Statistics:
        return cls(np.zeros((m, m)), np.zeros((m, 2)), np.zeros((2, 2)), 0.0, 0.0, 0)

    def plus(self, other: Statistics) -> Statistics:
        """Both sets of rows."""
        return Statistics(*map(add, self, other))


@dataclass(frozen=True)
class Memory:
    """Sufficient statistics of all rows seen, whitened under the prior at the time."""

    prior: Prior
    sums: Statistics

    @classmethod
    def empty(cls, prior: Prior) -> Memory:
        return cls(prior, Statistics.none(len(prior.Z)))

    def plus(self, other: Memory) -> Memory:
        """Both sets of rows; they are whitened under the same prior."""
        return replace(self, sums=self.sums.plus(other.sums))

    def carry_to(self, prior: Prior) -> Memory:
        """The same information under another prior whose first inputs are the old ones."""
        if np.array_equal(self.prior.Z, prior.Z):
            return self
        k, m = len(self.prior.Z), len(prior.Z)
        information, targets = np.zeros((m, m)), np.zeros((m, 2))
        T = np.asarray(self.prior.L_inv @ prior.L[:k, :k])
        information[:k, :k] = triu_congruence(T, self.sums.information)
        targets[:k] = T.T @ self.sums.targets_information
        carried = self.sums._replace(
            information=information,
            targets_information=targets,
            trace=self._residual + float(np.trace(information)),
        )
        return Memory(prior, carried)

    @property
    def _residual(self) -> float:
        """tr(C^-1 E[K~ - A A']): what the inducing outputs leave open, whatever the prior."""
        return self.sums.trace - float(np.trace(self.sums.information))

    def rescale_noise(self, factor: float) -> Memory:
        """The memory of the same rows with ``factor`` times their noise covariance."""
        sums = self.sums
        rescaled = sums._replace(
            information=sums.information / factor,
            targets_information=sums.targets_information / factor,
            targets_gram=sums.targets_gram / factor,
            log_det=sums.log_det + sums.n * float(np.log(factor)),
            trace=sums.trace / factor,
        )
        return replace(self, sums=rescaled)

    def faded(self, share: float) -> Memory:
        """The memory of the same rows, which count less by a factor.

        A row whose noise is independent enters every sum as often as it counts, see
        :ref:`sgpr-weights`. Rows of a block do not, as copies share its correlated noise.
        """
        parts: tuple[Any, ...] = self.sums
        return replace(self, sums=Statistics(*(share * part for part in parts)))

    def shift(self, target: Array) -> Array:
        """Information vector for the target ``(y, 1) @ target``, (m,)."""
        return self.sums.targets_information @ target

    def q(self, alpha: float, second: float, target: Array) -> WhitenedGaussian:
        """Eq. (7): the optimal q(u)."""
        information = second * self.sums.information
        return WhitenedGaussian.of_information(information, alpha * self.shift(target))

    def expected_log_likelihood(
        self, q: WhitenedGaussian, alpha: float, second: float, target: Array
    ) -> float:
        """The sum of F (see :mod:`skvbgp.sgpr._likelihood`) over all groups."""
        sums = self.sums
        quadratic = float(target @ sums.targets_gram @ target)
        fit = float(q.mean @ self.shift(target))
        penalty = float(np.sum(q.excess_moment * sums.information)) + sums.trace
        constant = sums.n * LOG_2PI + sums.log_det
        return -0.5 * (constant + quadratic - 2.0 * alpha * fit + second * penalty)

    def backward(
        self, q: WhitenedGaussian, alpha: float, second: float, target: Array
    ) -> tuple[Array, float, float]:
        """Gradient of the pseudo-likelihood at the prior that this has been carried to.

        ``L' dL`` (m, m) for the prior's factor, of which what is above the diagonal does not count,
        and those in alpha and alpha^2 + beta.
        """
        # T = L_old^-1 L, so that L' dL = T' dT: of what has been carried, T' is part
        b, P = self.shift(target), self.sums.information
        moment = q.covariance + np.outer(q.mean, q.mean)
        LtdL = np.outer(alpha * b, q.mean) - second * P @ moment
        d_second = -0.5 * (float(np.vdot(P, moment)) + self._residual)
        return LtdL, float(b @ q.mean), d_second


def remember(shared: Shared, data: Data, rule: FixedRule, *, n_jobs: int | None) -> Memory:
    """The memory of all rows, by a pass over them on the workers of joblib or on threads."""
    segments = data.segments(max(_N_SEGMENTS, -(-len(data) // _SEGMENT_ROWS)))

    def task(k: int) -> tuple[list[Rows]]:
        return ([data.rows(index) for index in segments[k]],)

    total = Statistics.none(len(shared.prior.Z))

    def receive(part: Statistics) -> None:
        nonlocal total
        total = total.plus(part)

    spread_each(
        sum_groups,
        LazyTasks(len(segments), task),
        receive,
        n_jobs=n_jobs,
        shared=(shared, rule),
    )
    return Memory(shared.prior, total)


def sum_groups(shared: Shared, rule: FixedRule, groups: Iterable[Rows]) -> Statistics:
    """Sums over some groups of rows, one after the other.

    Rows whose expectations are over draws are whitened before they are summed, see `Evaluation`.
    """
    prior, draws = shared.prior, rule.common
    total = Statistics.none(len(prior.Z))
    for rows in groups:
        group, _ = shared.make_group(rows, draws, whitened=draws is not None)
        targets = np.column_stack([rows.y, np.ones(len(rows))])
        sums = group.psi, group.information(targets)
        total = total.plus(
            Statistics(
                *(prior.whiten_sums(*sums) if draws is None else sums),
                targets.T @ group.precision.solve(targets),
                group.precision.log_det,
                group.prior_trace,
                group.precision.count,
            )
        )
    return total
