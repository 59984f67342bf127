"""What a fit of `VBKSRegressor` knows and produces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernel_selection._belief import KernelBelief
from skvbgp.kernel_selection._fits import LocalFit
from skvbgp.kernel_selection._posterior import KernelModel
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernels import Kernel


@dataclass(frozen=True)
class State:
    """What training knows and produces."""

    names: tuple[str, ...]
    kernels: tuple[Kernel, ...]  # bound to the inputs, at their first values
    frame: Frame
    Z: Array | None  # (m, d) centred; None is X
    scales: DataScales
    seed: int
    n: int
    rows: tuple[Array, Array] | None  # X and y, while they are few
    n_screened: int = 0  # rows at the last search for starting values
    fits: tuple[LocalFit, ...] = ()
    belief: KernelBelief | None = None  # about all kernels
    kept: tuple[int, ...] = ()  # by falling L_i
    models: tuple[KernelModel, ...] = ()  # of the kept kernels
    weights: Array | None = None  # belief about the kept kernels

    @property
    def local_bounds(self) -> Array:
        """L_i on y's own scale, (K,)."""
        unit = self.frame.target.unit
        return np.array([fit.lower_bound for fit in self.fits]) - self.n * np.log(unit)

    def inducing_inputs(self, X: Array) -> Array:
        """The inducing inputs, centred; all different rows of X if they are the rows."""
        return np.unique(X - self.frame.origin, axis=0) if self.Z is None else self.Z

    def keep(self, n: int) -> State:
        """The kept kernels of the highest bounds alone, without a belief about them."""
        kept = self.kept[:n]
        return replace(
            self,
            names=tuple(self.names[i] for i in kept),
            kernels=tuple(self.kernels[i] for i in kept),
            fits=tuple(self.fits[i] for i in kept),
            models=self.models[:n],
            kept=tuple(range(len(kept))),
        )
