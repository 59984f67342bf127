"""Settings of the family, and what follows from them and the data."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, find_shared
from skvbgp._core.shards import ShardedColumns
from skvbgp.base import (
    RegressionLearner,
    Targets,
    brings_variation,
    count_remembered,
    find_constant,
    says_too_little,
)
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._noise import Structure
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, DrawRule, FixedRule, FreshDraws

#: psi="auto" takes the closed form up to so many exponentials in one evaluation.
_CLOSED_FORM_EXPONENTIALS = 4_000_000
#: ... and up to so many inducing inputs in a prediction, where it is m^2 / 2 for a row.
_CLOSED_FORM_INDUCING = 128
#: Draws of Lambda where they are common to all rows.
N_DRAWS = 8
#: ... or a single antithetic pair past so many rows, whose q(Lambda) is narrow.
_MANY_ROWS = 20_000
#: solver="auto" is "exact" up to so many rows, and "collapsed" up to so many.
_EXACT_ROWS = 500
_COLLAPSED_ROWS = 2_000
#: max_iter=None: iterations of L-BFGS where every row is an inducing input, and with fewer, and
#: rows that the stochastic solver visits in all its passes. Each without blocks, of VBPIC, whose
#: noise starts near its optimum, and of VBPITC, whose predictions do not use it.
_EXACT_ITERATIONS = 100, 50, 50
_LBFGS_ITERATIONS = 200, 40, 10
_VISITED_ROWS = 1_000_000, 300_000, 450_000
#: n_inducing="auto": one for so many rows, but at least and at most so many.
_ROWS_PER_INDUCING = 16
_FEWEST_INDUCING, _MOST_INDUCING = 32, 500
#: Rows of a block for n_blocks="auto", and where mini-batches train noise that new rows have
#: nothing of: many small blocks are cheaper, and a mini-batch of them has seen more of the places.
_BLOCK_ROWS = 500
_LOST_BLOCK_ROWS = 100
#: A stream whose predictions need no rows keeps them until it has learned from more than so many,
#: or until there are so many, if all that it waits for is that a column varies.
_FEW_ROWS = 2**14


@dataclass(frozen=True)
class Settings(RegressionLearner):
    """Settings of a member of the family, by the names of the constructor parameters."""

    structure: Structure  # what the noise is like
    n_inducing: int | str
    inducing_inputs: Any
    length_scale: Any
    signal_std: float | None
    noise_variance: float | None
    hyperparameter_variance: float | None
    prior_mean: Any
    prior_variance: Any
    solver: str
    psi: str
    learn_hyperparameters: bool
    max_iter: int | None
    batch_size: int
    learning_rate: float
    tol: float
    normalize_y: bool
    n_jobs: int | None
    n_blocks: int | str = "auto"
    n_samples: int = 8
    #: Whether predictions condition on the rows of the own block, which are kept.
    local: bool = False
    forgetting: float = 1.0
    owners: Owners = ()  # by column of X: the input that it encodes
    n_outputs: int = 0  # columns of X, the last ones, that say which output a row is of

    # -- which solver, and which expectations ------------------------------------------

    @property
    def _has_rival(self) -> bool:
        """Whether a kernel that a search finds is trained beside the default."""
        return self.structure.is_searched and not self.local

    @property
    def loses_blocks(self) -> bool:
        """Whether noise is of blocks, and new rows are predicted without theirs (PITC)."""
        return self.structure.correlated and not self.local

    def max_passes(self, y: Sized) -> int:
        return self.max_iterations(len(y)) * (2 if self._has_rival else 1)

    def max_iterations(self, n: int) -> int:
        """Most passes of one training on n rows."""
        if not self.learn_hyperparameters:
            return 1
        if self.max_iter is not None:
            return self.max_iter
        kind = self.structure.correlated + self.loses_blocks
        if self._is_exact(n):
            return _EXACT_ITERATIONS[kind]
        if self._is_collapsed(n):
            return _LBFGS_ITERATIONS[kind]
        return max(2, round(_VISITED_ROWS[kind] / n))

    def _is_exact(self, n: int) -> bool:
        """Whether every row is an inducing input and the posterior is structured."""
        if self.solver != "auto":
            return self.solver == "exact"
        left_to_us = self.psi == "auto" and self.learn_hyperparameters
        few = n <= _EXACT_ROWS and self.has_room(n)
        return left_to_us and self.inducing_inputs is None and few

    def has_room(self, n: int) -> bool:
        """Whether each of n rows may be an inducing input."""
        return self.n_inducing == "auto" or n <= int(self.n_inducing)

    def _is_collapsed(self, n: int) -> bool:
        return self.solver == "collapsed" or (self.solver == "auto" and n <= _COLLAPSED_ROWS)

    def _rule_of_fit(self, data: Data, p: Parameters, seed: int) -> FixedRule:
        """How expectations are taken in the pass that ends a fit, and by the collapsed solver.

        Without learning, the choice must not depend on how the rows come in chunks.
        """
        if self.psi != "auto" or not self.learn_hyperparameters:
            return self._rule_by_size(p, seed)
        m, d = p.U.shape
        if not self._draws_pairs and data.n_pairs * m**2 / 2 <= _CLOSED_FORM_EXPONENTIALS:
            return ClosedForm()
        return self._common_draws(len(data), p, seed)

    def _common_draws(self, n: int, p: Parameters, seed: int) -> CommonDraws:
        """Draws for n rows."""
        n_draws = 2 if n > _MANY_ROWS else N_DRAWS
        return CommonDraws(quasi_normal(n_draws, p.U.shape[1], seed))

    @property
    def _draws_pairs(self) -> bool:
        """Whether pairs of rows, whose categories may differ, have no closed form."""
        return self.structure.correlated and bool(self.owners)

    def _rule_by_size(self, p: Parameters, seed: int, *, predicts: bool = False) -> FixedRule:
        """How expectations of rows in chunks of any size, and of new ones, are taken.

        The size of p decides, and not how many rows there are.
        """
        m, d = p.U.shape
        pairs_of_rows = self.structure.correlated and not predicts
        cheap = m <= _CLOSED_FORM_INDUCING and not pairs_of_rows
        if self.psi == "closed_form" or (self.psi == "auto" and cheap):
            return ClosedForm()
        return CommonDraws(quasi_normal(N_DRAWS, d, seed))

    def _rule_of_steps(self) -> DrawRule:
        return ClosedForm() if self.psi == "closed_form" else FreshDraws(self.structure.correlated)

    # -- inducing inputs, blocks, and streams -------------------------------------------

    def count_inducing(self, n: int) -> int:
        """Most inducing inputs for n rows.

        "auto" leaves rows something to say beside them: noise of the blocks is what they do not
        explain, so that it would have to explain new rows alone where known ones are explained.
        """
        if self.n_inducing != "auto":
            return int(self.n_inducing)
        return min(_MOST_INDUCING, max(_FEWEST_INDUCING, n // _ROWS_PER_INDUCING))

    def count_blocks(self, n: int) -> int:
        """Blocks that n rows are divided into."""
        if self.n_blocks != "auto":
            return min(int(self.n_blocks), n)
        in_batches = self.learn_hyperparameters and n > _COLLAPSED_ROWS
        size = _LOST_BLOCK_ROWS if self.loses_blocks and in_batches else _BLOCK_ROWS
        return max(1, round(n / size))

    def find_restart(self, X: Array | ShardedColumns, y: Targets) -> float:
        """Number of rows with which a stream that has begun with X trains again from the start.

        These are rows in memory or, where rows fade, rows seen. It is

        - 0, any number, if X says too little, or if all rows are known exactly;
        - where rows fade, as many more as were learned from or, if they are fewer, as are
          remembered;
        - twice as many, if the noise is what inducing inputs leave open of a process. It is learned
          from rows that are near each other and near these inputs, while the rows of one chunk are
          far apart, and the inputs are where the first chunk was. If the user has given the number
          of blocks, they are those of each call, and stay;
        - infinite, never, otherwise, and if so many rows are not kept.
        """
        if self._is_exact(len(X)) or says_too_little(X, learns=self.learn_hyperparameters):
            return 0
        if self.forgetting < 1.0:
            n_remembered = count_remembered(self.forgetting)
            is_kept = max(n_remembered, len(X)) <= _FEW_ROWS and self.learn_hyperparameters
            return y.n_rows + min(n_remembered, len(X)) if is_kept else np.inf
        learns = self.learn_hyperparameters and self.structure.explained
        by_size = not self.structure.correlated or self.n_blocks == "auto"
        is_kept = not isinstance(X, ShardedColumns) and (self.local or len(X) <= _FEW_ROWS)
        return 2 * len(X) if learns and by_size and is_kept else np.inf

    def find_encoded(self, d: int) -> NDArray[np.bool_]:
        """Which of d columns are of a category, or say which output a row is of."""
        encoded = find_shared(d, self.owners)
        encoded[d - self.n_outputs :] = True
        return encoded

    def keeps_rows(self, X: Array | ShardedColumns, restarts_at: float) -> bool:
        """Whether rows that a stream may begin again with are kept, unless blocks have them."""
        if self.local and restarts_at > 0:
            return False
        return bool(np.isfinite(restarts_at)) or self._awaits_variation(X)

    def _awaits_variation(self, X: Array | ShardedColumns) -> bool:
        """Whether few rows in memory say nothing of an input, as it is constant there.

        Neither its unit nor its length scale is known, and no inducing inputs differ in it.
        """
        if isinstance(X, ShardedColumns) or len(X) > _FEW_ROWS or not self.learn_hyperparameters:
            return False
        return bool(np.any(find_constant(X) & ~self.find_encoded(X.shape[1])))

    def has_variation(self, known: Array, X: Array) -> bool:
        """Whether new rows say something of such an input, so that a stream begins again."""
        own = ~self.find_encoded(X.shape[1])
        return self.learn_hyperparameters and brings_variation(known, X, own)
