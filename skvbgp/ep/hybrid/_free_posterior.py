r"""New rows whose latents no map gives: they maximise the row's own bound, all else fixed.

With the moments E_ij and V_ij of f_ij at q(x_i), over all that is uncertain, the bound of a row is

    sum_j E log N(y_ij | f_ij, 1 / beta_j) + sum_j log E p(t_ij | f_ij) - KL(q(x_i) || N(0, I)),

over its continuous and its discrete entries that are seen; see :ref:`hybrid-free`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import kl_terms
from skvbgp._core.linalg import Array
from skvbgp._core.order import thin
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.hybrid._bound import ColumnMoments
from skvbgp.ep.hybrid._objective import HybridData, HybridParameters
from skvbgp.ep.hybrid._posterior import HybridPosterior
from skvbgp.ep.hybrid._recognition import RowLatents

#: Training rows, evenly spaced, whose latents a new row may start from.
_N_STARTS = 1000
#: Iterations of the search, and the relative rise at which it stops.
_MAX_ITER = 100
_TOL = 1e-12


class FreePosterior(HybridPosterior):
    """A posterior whose parameters hold `RowLatents`."""

    def latents(self, X: Array) -> Inputs:
        Y, seen = self.columns.continuous(X)
        t = self.columns.signs(X)
        weight = np.ones(Y.shape[1] + t.shape[1])
        return RowBound(self, Y, seen, t, weight).maximise()

    def extend(self, data: HybridData) -> HybridParameters:
        weight = data.weight / data.prior_weight
        new = RowBound(self, data.Y, data.seen, data.t, weight).maximise()
        recognition = RowLatents(self.training_latents.joined(new))
        return replace(self.parameters, recognition=recognition)

    @property
    def training_latents(self) -> Inputs:
        recognition = self.parameters.recognition
        assert isinstance(recognition, RowLatents)
        return recognition.latents_of_rows


class RowBound:
    """The bound of each of some rows, as a function of its latents alone.

    It is a sum of statistics of the latents, s_i = (E_i, E_i^2 + V_i, log E p(1 | f_i), log E p(-1
    | f_i)), with coefficients that are the row's, up to a constant.

    Y and ``seen`` (n, d_c) are continuous entries as in `HybridData`, t (n, b) the signs of the
    first b of the posterior's discrete columns, 0 where missing. The columns have weights (d_c +
    b,), where the KL has 1.
    """

    def __init__(
        self, posterior: FreePosterior, Y: Array, seen: NDArray[np.bool_], t: Array, weight: Array
    ) -> None:
        self._posterior = posterior
        self._n_continuous, self._n_columns = Y.shape[1], len(weight)
        precision = np.exp(posterior.parameters.log_precision) * weight[: Y.shape[1]]
        share = weight[Y.shape[1] :]
        self._coefficients = np.hstack(
            [precision * Y, -0.5 * precision * seen, share * (t > 0.0), share * (t < 0.0)]
        )  # (n, k)

    def maximise(self) -> Inputs:
        """The latents of each row, from those of the training row that suit it best."""
        start = self._choose_start()
        starts = np.hstack([start.mean, np.log(start.variance)])
        x = np.array([self._climb(x, np.array([i])) for i, x in enumerate(starts)])
        mean, log_variance = np.split(x.reshape(starts.shape), 2, axis=1)
        return Inputs(mean, np.exp(log_variance))

    def _climb(self, x: Array, row: NDArray[np.intp]) -> Array:
        """The best point of one row (2 Q,): what it is does not depend on other rows."""

        def objective(x: Array) -> tuple[float, Array]:
            values, gradients = self(x[None], row)
            return float(values[0]), gradients[0]

        return lbfgs_ascent(objective, x, max_iter=_MAX_ITER, tol=_TOL).x

    def __call__(self, x: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """Values and gradients of some rows at their means and log variances (k, 2 Q)."""
        mean, variance = np.split(x, 2, axis=1)
        latents = Inputs(mean, np.exp(variance))
        moments = self._posterior.moments(latents, self._n_columns)
        statistics, by_mean, by_variance = self._statistics(moments)
        kl, kl_mean, kl_variance = _kl(latents)
        coefficients = self._coefficients[rows]
        d_mean, d_variance = moments.vjp(
            self._by_column(coefficients * by_mean), self._by_column(coefficients * by_variance)
        )
        gradient = [d_mean - kl_mean, latents.variance * (d_variance - kl_variance)]
        return np.sum(coefficients * statistics, axis=1) - kl, np.hstack(gradient)

    def _choose_start(self) -> Inputs:
        known = self._posterior.training_latents
        known = known.rows(thin(len(known), _N_STARTS))
        statistics, _, _ = self._statistics(self._posterior.moments(known, self._n_columns))
        values = self._coefficients @ statistics.T - _kl(known)[0]  # (n, number of starts)
        return known.rows(np.argmax(values, axis=1))

    def _statistics(self, moments: ColumnMoments) -> tuple[Array, Array, Array]:
        """Statistics (k, c) of latents, with their derivatives in E and V of their columns."""
        E, E_discrete = np.split(moments.mean, [self._n_continuous], axis=1)
        V, V_discrete = np.split(moments.variance, [self._n_continuous], axis=1)
        values, by_mean = [E, E**2 + V], [np.ones_like(E), 2.0 * E]
        by_variance = [np.zeros_like(E), np.ones_like(E)]
        for sign in (1.0, -1.0):
            of_sign = self._posterior.likelihood.moments(
                np.full(E_discrete.size, sign), E_discrete.ravel(), V_discrete.ravel()
            )
            values.append(of_sign.log_z.reshape(E_discrete.shape))
            by_mean.append(of_sign.slope.reshape(E_discrete.shape))
            by_variance.append(of_sign.d_v.reshape(E_discrete.shape))
        return np.hstack(values), np.hstack(by_mean), np.hstack(by_variance)

    def _by_column(self, gradient: Array) -> Array:
        """Gradients in the statistics (k, c), summed over those of the same column."""
        parts = np.split(gradient, [2 * self._n_continuous], axis=1)
        return np.hstack([part.reshape(len(part), 2, -1).sum(axis=1) for part in parts])


def _kl(latents: Inputs) -> tuple[Array, Array, Array]:
    """KL(q(x_i) || N(0, I)), (n,), and its gradients (n, Q)."""
    terms, d_mean, d_variance = kl_terms(latents.mean, latents.variance, 0.0, 1.0)
    return terms.sum(axis=1), d_mean, d_variance
