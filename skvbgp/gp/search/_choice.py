"""What parameters of the flagships may be, and what `kernel` says: which ones, in which units."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, find_shared
from skvbgp._core.scaling import Coordinates, RunningScale, check_unit
from skvbgp.base import CATEGORIES, FORGETTING_OR_WINDOW, LEARNING, Interval, StrOptions
from skvbgp.kernels import Kernel
from skvbgp.kernels._sklearn import name_kernel

#: The constraints of what both have.
COMMON: dict[str, Any] = {
    "kernel": "no_validation",  # as_kernel says what it takes
    "n_neighbors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "n_inducing": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"}), None],
    **CATEGORIES,
    **FORGETTING_OR_WINDOW,
    **LEARNING,
    "n_jobs": [Integral, None],
}


def is_auto(kernel: Any) -> bool:
    """Whether kernels are searched for."""
    if isinstance(kernel, str) and kernel != "auto":
        wanted = "'auto', a kernel, such as skvbgp.kernels.RBF(), or a list"
        raise ValueError(f"kernel must be {wanted}; got {kernel!r}.")
    return isinstance(kernel, str)


def count_known(estimator: Any) -> int:
    """Kernels of an estimator's last fit, if a warm start may go on from them."""
    is_known = estimator.warm_start and hasattr(estimator, "_state")
    return int(estimator._state.n_kernels) if is_known else 0


def name_kernels(kernel: Any) -> list[tuple[str, Kernel]]:
    """Names and kernels that the user gives."""
    if not isinstance(kernel, Sequence):
        return [name_kernel(kernel)]
    pairs = [name_kernel(entry) for entry in kernel]
    if not pairs:
        raise ValueError("kernel must not be an empty list.")
    return pairs


def frame_inputs(inputs: RunningScale, owners: Owners = (), *, standardised: bool) -> Coordinates:
    """Units of unit variance, or those of X; columns that share an owner keep these."""
    check_unit(inputs.unit, "X")
    scale = inputs.unit if standardised else np.ones(len(inputs.mean))
    return Coordinates(inputs.mean, np.where(find_shared(len(scale), owners), 1.0, scale))


def number_categories(X: Array, owners: Owners) -> Array:
    """One column for each input, whose numbers differ where those of rows (n, d) do."""
    parts = [X[:, np.array(owners) == one] for one in dict.fromkeys(owners)]
    columns = [part[:, 0] if part.shape[1] == 1 else part.argmax(axis=1) for part in parts]
    return np.column_stack(columns) if owners else X
