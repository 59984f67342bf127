r"""What training makes of missing entries, beyond what the joint Gaussian of the columns says.

An entry with conditional moments m and v becomes N(m + b sqrt(v), c v), with a shift b and a spread
c for each column or for each entry, see :ref:`ep-missing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.ep._inputs import Inputs

#: Range of log spreads.
_LOG_SPREAD_LIMIT = 5.0


@dataclass(frozen=True)
class Refinement:
    """b and log c above, of columns (d,) or of the entries of the training rows (n, d)."""

    shift: Array  # (d,) or (n, d)
    log_spread: Array  # (d,) or (n, d)
    learned: NDArray[np.bool_]  # which of them are; the others stay

    @classmethod
    def start(
        cls, per: str | None, missing: NDArray[np.bool_], before: Refinement | None = None
    ) -> Refinement:
        """No refinement yet, to be learned per "column" or "entry", or (None) not at all.

        That of columns goes on from the one before. ``missing`` (n, d) is of the training rows.
        """
        learned = missing if per == "entry" else np.full(missing.shape[1], missing.any())
        if per == "column" and before is not None and not before.is_per_entry:
            return replace(before, learned=learned)
        none = np.zeros(learned.shape)
        return cls(none, none, learned & (per is not None))

    @property
    def is_per_entry(self) -> bool:
        return self.shift.ndim == 2

    def extended(self, n_rows: int) -> Refinement:
        """The same for more rows, whose entries are not refined unless all of a column are."""
        if not self.is_per_entry:
            return self
        new = ((0, n_rows), (0, 0))
        return Refinement(
            np.pad(self.shift, new), np.pad(self.log_spread, new), np.pad(self.learned, new)
        )

    def refine(self, conditional: Inputs, missing: NDArray[np.bool_]) -> Inputs:
        """Training rows with their missing entries, from the conditional ones."""
        v = np.where(missing, conditional.variance, 0.0)
        return Inputs(
            conditional.mean + self.shift * np.sqrt(v),
            conditional.variance + np.expm1(self.log_spread) * v,
        )

    def refine_new(self, conditional: Inputs, missing: NDArray[np.bool_]) -> Inputs:
        """The same of new rows, without labels: they have no entries of their own to learn."""
        return conditional if self.is_per_entry else self.refine(conditional, missing)

    def kl(self, gaps: NDArray[Any]) -> float:
        """KL of the missing entries, as often as they count (n, d), to their Gaussians."""
        terms = np.exp(self.log_spread) + self.shift**2 - 1.0 - self.log_spread
        return 0.5 * float(np.ravel(self._collect(gaps)) @ np.ravel(terms))

    def _collect(self, of_entries: NDArray[Any]) -> NDArray[Any]:
        """Sums (d,) over rows, or what is given (n, d)."""
        return of_entries if self.is_per_entry else np.asarray(of_entries.sum(axis=0))

    # -- as a part of what L-BFGS sees -----------------------------------------------------------

    @property
    def x(self) -> Array:
        """What is learned: the shifts, and then the log spreads."""
        return np.concatenate([self.shift[self.learned], self.log_spread[self.learned]])

    @property
    def bounds(self) -> Array:
        """(len(x), 2)."""
        ranges = [(-np.inf, np.inf), (-_LOG_SPREAD_LIMIT, _LOG_SPREAD_LIMIT)]
        return np.repeat(ranges, int(self.learned.sum()), axis=0)

    def with_x(self, x: Array) -> Refinement:
        shift, log_spread = self.shift.copy(), self.log_spread.copy()
        shift[self.learned], log_spread[self.learned] = np.split(x, 2)
        return replace(self, shift=shift, log_spread=log_spread)

    def gradient(
        self, conditional: Inputs, gaps: NDArray[Any], d_mean: Array, d_variance: Array
    ) -> Array:
        """Gradient in x, from those in the refined moments (n, d), less that of the KL."""
        v = np.where(gaps > 0, conditional.variance, 0.0)
        spread, n_missing = np.exp(self.log_spread), self._collect(gaps)
        d_shift = self._collect(d_mean * np.sqrt(v)) - n_missing * self.shift
        d_log_spread = spread * self._collect(d_variance * v) - 0.5 * n_missing * (spread - 1.0)
        return np.concatenate([d_shift[self.learned], d_log_spread[self.learned]])
