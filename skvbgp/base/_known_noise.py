"""Known variances of the noise of rows, as a user gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.base._estimator import as_row_values


def as_noise(y_var: Any, shape: tuple[int, ...]) -> Array:
    """Known variances of observations (n,) or (n, t); a vector is that of all outputs."""
    if len(shape) == 1:
        if np.shape(y_var) == (shape[0], 1):
            y_var = np.ravel(y_var)
        return as_row_values(y_var, shape[0], "y_var", 0.0)
    columns = np.asarray(y_var).T if np.ndim(y_var) == 2 else [y_var] * shape[1]
    if len(columns) != shape[1]:
        raise ValueError(f"y_var has {len(columns)} columns, but y has {shape[1]}.")
    return np.column_stack([as_row_values(one, shape[0], "y_var", 0.0) for one in columns])


def add_noise(
    result: Any, y_var: Any, return_std: bool, return_cov: bool, *, include_noise: bool
) -> Any:
    """What ``predict`` returns of observations that have known variances, too."""
    if y_var is None:
        return result
    if not include_noise:
        raise ValueError("y_var is a variance of noise, which include_noise=False leaves out.")
    mean = result[0] if return_std or return_cov else result
    variance = as_noise(y_var, mean.shape)
    if return_std:
        return mean, np.sqrt(result[1] ** 2 + variance)
    if return_cov:
        every = np.arange(len(mean))
        result[1][every, every] += variance
    return result
