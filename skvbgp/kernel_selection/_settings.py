"""Settings of the selection of a kernel, and what they mean for rows that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners
from skvbgp.base import RegressionLearner, Targets
from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._rounds import Round, plan_rounds
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernel_selection._series import has_series
from skvbgp.kernel_selection._state import State
from skvbgp.kernel_selection._targets import TRANSFORMS
from skvbgp.kernel_selection._training import (
    Climb,
    Task,
    train_collapsed,
    train_gaussian,
    train_series,
)
from skvbgp.kernels import Kernel
from skvbgp.kernels._sklearn import name_kernel

#: n_inducing=None is every row up to so many.
DENSE_ROWS = 1_000
_BATCH_ROWS = 1_024
#: max_iter=None: L-BFGS iterations on all rows, with the fewest when few of them are new; rows
#: that mini-batches visit.
COLLAPSED_ITERATIONS = 60
_FEWEST_ITERATIONS = 10
_SERIES_ITERATIONS = 100
_VISITED_ROWS = 300_000
#: Fewest rows of a series of which logarithms are tried: fewer do not say how y grows.
_LOG_ROWS = 8


@dataclass(frozen=True)
class KernelSettings(RegressionLearner):
    """Settings by the names of the constructor parameters."""

    kernels: Any
    transforms: Any
    depth: int
    n_inducing: int | None
    hyperparameter_posterior: str
    n_trained: int | None
    top_k: int
    n_samples: int
    n_restarts: int
    max_iter: int | None
    batch_size: int | None
    learning_rate: float
    tol: float
    normalize_y: bool
    n_jobs: int | None
    owners: Owners = ()  # by column of X: the input that it encodes

    def name_kernels(self) -> list[tuple[str, Kernel]]:
        """The list of kernels, each with a name, unless they are those of a series."""
        if isinstance(self.kernels, str):
            return kernel_grammar(self.depth)
        pairs = [name_kernel(entry) for entry in self.kernels]
        if not pairs:
            raise ValueError("kernels must not be empty.")
        return pairs

    @property
    def _is_gaussian(self) -> bool:
        return self.hyperparameter_posterior == "gaussian"

    def _n_trained(self, n_kernels: int) -> int:
        """The best go on after the screening; all, if they have to get a q(theta)."""
        if self._trains_all:
            return n_kernels
        assert self.n_trained is not None
        return min(n_kernels, max(self.n_trained, self.top_k))

    @property
    def _trains_all(self) -> bool:
        """Whether every kernel is trained, and to the end."""
        return self._is_gaussian or self.n_trained is None

    @property
    def _is_auto(self) -> bool:
        """Whether the data choose the list of kernels."""
        return isinstance(self.kernels, str) and self.kernels == "auto"

    def _takes_series(self, X: Array) -> bool:
        """Whether the kernels are those of a series."""
        few = len(X) <= DENSE_ROWS and self.n_inducing is None and self.batch_size is None
        return self._is_auto and few and not self._is_gaussian and has_series(X)

    def _name_transforms(self, is_series: bool, y: Targets) -> list[str]:
        """Transforms of y that the candidates have."""
        if isinstance(self.transforms, str):
            has_logs = is_series and len(y) >= _LOG_ROWS and y.variance is None
            return list(TRANSFORMS) if has_logs else ["identity"]
        names = list(self.transforms)
        if not names or not all(isinstance(name, str) and name in TRANSFORMS for name in names):
            raise ValueError(f"transforms must be of {', '.join(TRANSFORMS)}; got {names!r}.")
        names = list(dict.fromkeys(names))
        if y.variance is not None and names != ["identity"]:
            raise ValueError(
                "y_var, and what missing entries of X add to it, is a variance of y, and of no "
                f"logarithm: it takes transforms='auto' or ['identity']; got {names!r}."
            )
        return names

    @property
    def _batch_rows(self) -> int:
        return self.batch_size or _BATCH_ROWS

    def _plan_rounds(self, n_kernels: int, n: int, share_new: float = 1.0) -> list[Round]:
        """Rounds of mini-batches."""
        n_passes = self.max_iter or max(2, round(_VISITED_ROWS / n))
        n_steps = n_passes * -(-n // self._batch_rows)
        return list(plan_rounds(n_kernels, n_steps, share_new, at_once=self._trains_all))

    def _choose_training(
        self, state: State, frame: Frame, X: Array, y: Targets, share_new: float, target: float
    ) -> tuple[Task, tuple[Any, ...]]:
        """The training on all rows at once, and the arguments that all kernels share."""
        n_iter = max(_FEWEST_ITERATIONS, round(share_new * COLLAPSED_ITERATIONS))
        if state.is_series:
            n_iter = _SERIES_ITERATIONS
        rows = frame.scale(X, y)
        climb = Climb(*rows, state.Z, state.scales, self.max_iter or n_iter, self.tol)
        if state.is_series:
            return train_series, (climb,)
        if self._is_gaussian:
            return train_gaussian, (climb, state.seed)
        return train_collapsed, (climb, target)
