"""What a fit of `VBKSRegressor` knows and produces, of each kernel and of all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skvbgp._core.draws import draw_antithetic
from skvbgp._core.linalg import Array
from skvbgp.base import Targets
from skvbgp.kernel_selection._belief import KernelBelief
from skvbgp.kernel_selection._bound import Statistics
from skvbgp.kernel_selection._categories import ColumnsKernel
from skvbgp.kernel_selection._posterior import KernelModel
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernel_selection._targets import PlainTarget

#: Draws of theta from q(theta).
N_THETA_DRAWS = 16
#: Most kernels that a warning names.
_NAMES_TOLD = 3


class LocalFit(NamedTuple):
    """What is known about one kernel."""

    x: Array  # mean of q(theta, log s2), or the point estimate, (p + 1,)
    lower_bound: float  # -inf: failed, or left behind and not evaluated on all rows
    n_iter: int = 1
    factor: Array | None = None  # C of q(theta), (p + 1, p + 1)
    kl: float = 0.0  # KL(q(theta) || p(theta))
    statistics: Statistics | None = None
    failure: str = ""

    @classmethod
    def fail(cls, reason: str) -> LocalFit:
        return cls(np.empty(0), -np.inf, failure=reason)

    @property
    def is_valid(self) -> bool:
        """Whether it has neither failed nor been left behind."""
        return bool(np.isfinite(self.lower_bound))

    def faded(self, share: float) -> LocalFit:
        """The fit to rows that count less by a factor, which may be zero."""
        return self._replace(lower_bound=share * self.lower_bound) if self.is_valid else self

    @property
    def wants_statistics(self) -> bool:
        return self.is_valid and self.statistics is None

    def points(self, seed: int) -> Array:
        """Draws of (theta, log s2), or the one point, (S, p + 1)."""
        if self.factor is None:
            return self.x[None, :]
        draws = draw_antithetic(N_THETA_DRAWS, len(self.x), np.random.RandomState(seed))
        return np.asarray(self.x + draws @ self.factor.T)


class Candidate(NamedTuple):
    """A kernel, for one of the transforms of y."""

    name: str
    kernel: ColumnsKernel  # at its first values
    frame: Frame  # those of all candidates agree on the inputs


@dataclass(frozen=True)
class State:
    """What training knows and produces."""

    candidates: tuple[Candidate, ...]  # K, called kernels below
    log_jacobians: Array  # (K,) of y's transforms, over all rows
    Z: Array | None  # (m, d) centred; None is X
    scales: DataScales
    seed: int
    n: int  # rows, with all copies
    rows: tuple[Array, Targets] | None  # while they are few
    is_series: bool = False  # the first values of the kernels are where their search starts
    n_screened: int = 0  # rows at the last search for starting values
    fits: tuple[LocalFit, ...] = ()
    belief: KernelBelief | None = None  # about all kernels
    kept: tuple[int, ...] = ()  # by falling L_i
    models: tuple[KernelModel, ...] = ()  # of the kept kernels
    weights: Array | None = None  # belief about the kept kernels

    @property
    def local_bounds(self) -> Array:
        """L_i on y's own scale, (K,); -inf of kernels that failed or were left behind."""
        return np.array([fit.lower_bound for fit in self.fits]) + self.log_jacobians

    @property
    def bound_per_row(self) -> float:
        """What the rows that are kept say on average, by the best kernel."""
        assert self.rows is not None
        return float(np.max(self.local_bounds)) / self.rows[1].total

    @property
    def frame(self) -> Frame:
        """One of the frames, which agree on the inputs."""
        return self.candidates[0].frame

    def by_frame(self, chosen: Iterable[int]) -> Iterator[tuple[Frame, list[int]]]:
        """Frames with the chosen kernels that have them."""
        members: dict[PlainTarget, list[int]] = {}
        for i in chosen:
            members.setdefault(self.candidates[i].frame.target, []).append(i)
        for some in members.values():
            yield self.candidates[some[0]].frame, some

    def inducing_inputs(self, X: Array) -> Array:
        """The inducing inputs, centred; all different rows of X if they are the rows."""
        return np.unique(X - self.frame.origin, axis=0) if self.Z is None else self.Z

    def keep(self, n: int) -> State:
        """The kept kernels of the highest bounds alone, without a belief about them."""
        kept = self.kept[:n]
        return replace(
            self,
            candidates=tuple(self.candidates[i] for i in kept),
            log_jacobians=self.log_jacobians[list(kept)],
            fits=tuple(self.fits[i] for i in kept),
            models=self.models[:n],
            kept=tuple(range(len(kept))),
        )

    def faded(self, share: float) -> State:
        """The state in which all rows count less by a factor, without a belief about kernels."""
        return replace(
            self,
            rows=self.rows and (self.rows[0], self.rows[1].faded(share)),
            models=tuple(model._fade(share) for model in self.models),
            log_jacobians=share * self.log_jacobians,
            fits=tuple(fit.faded(share) for fit in self.fits),
        )

    def make_model(self, i: int, fit: LocalFit, Z: Array) -> KernelModel:
        """The model of kernel i, whose fit has statistics of all rows."""
        name, kernel, frame = self.candidates[i]
        assert fit.statistics is not None
        return KernelModel(
            name,
            kernel.at(fit.x[:-1]),
            float(np.exp(fit.x[-1])) * frame.target.unit**2,
            Z + frame.origin,
            fit.points(self.seed),
            fit.statistics,
            frame,
        )

    def warn_of_failures(self) -> None:
        """Once for each reason: a callback that stops may leave a hundred kernels."""
        failures: dict[str, list[str]] = {}
        for (name, *_), fit in zip(self.candidates, self.fits, strict=True):
            if fit.failure:
                failures.setdefault(fit.failure, []).append(name)
        for reason, names in failures.items():
            told = ", ".join(map(repr, names[:_NAMES_TOLD]))
            if len(names) > _NAMES_TOLD:
                told += f" and {len(names) - _NAMES_TOLD} more"
            subject, verb = ("Kernel", "gets") if len(names) == 1 else ("Kernels", "get")
            warnings.warn(
                f"{subject} {told} could not be fitted and {verb} no belief. {reason}",
                RuntimeWarning,
                stacklevel=3,
            )
