"""What a fit of `VBKSRegressor` knows and produces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernel_selection._belief import KernelBelief
from skvbgp.kernel_selection._frame import Frame
from skvbgp.kernel_selection._local import LocalFit
from skvbgp.kernel_selection._model import KernelModel
from skvbgp.kernel_selection._start import DataScales
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
