"""BFGS of many small problems at once, none of which knows of the others."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array

#: Share of the rise that the gradient promises which a step has to reach.
_SUFFICIENT = 1e-4
#: Factor of a step that did not, and the factor below which a problem is left where it is.
_RETREAT = 0.25
_LEAST = 1e-8

#: ``(x (k, d), problems (k,)) -> (values (k,), gradients (k, d))``.
EachObjective = Callable[[Array, NDArray[np.intp]], tuple[Array, Array]]


def ascend_each(
    objective: EachObjective, x: Array, *, max_iter: int, tol: float, max_step: float
) -> Array:
    """Maximise each of n functions of d variables, in an array with a row for each.

    A problem ends where its gradient is small, whatever the others do: its result does not
    depend on who else is there, up to the rounding of `objective`.

    Parameters
    ----------
    objective : callable
        ``(x, problems) -> (values, gradients)`` of some of the problems. A value that is not
        finite counts as "too low".
    x : ndarray of shape (n, d)
        Starts; here the values have to be finite.
    max_iter : int
        Largest number of calls of `objective` after the first.
    tol : float
        A problem ends where no entry of its gradient exceeds this.
    max_step : float
        Largest Euclidean length of a step.

    Returns
    -------
    x : ndarray of shape (n, d)
        The best points that were met.
    """
    n, d = x.shape
    x, factor = x.copy(), np.ones(n)
    value, gradient = objective(x, np.arange(n))
    H = np.tile(np.eye(d), (n, 1, 1))  # approximate inverses of minus the Hessians
    fresh = np.ones(n, dtype=bool)  # whether H says nothing yet
    for _ in range(max_iter):
        here = np.flatnonzero((np.abs(gradient).max(axis=1) > tol) & (factor > _LEAST))
        if not len(here):
            break
        step = np.einsum("nij,nj->ni", H[here], gradient[here])
        length = np.linalg.norm(step, axis=1, keepdims=True)
        step *= factor[here, None] * np.minimum(1.0, max_step / length)
        new_value, new_gradient = objective(x[here] + step, here)
        enough = value[here] + _SUFFICIENT * np.sum(step * gradient[here], axis=1)
        rises = np.isfinite(new_value) & (new_value > enough)  # (k,)
        factor[here] = np.where(rises, 1.0, _RETREAT * factor[here])
        here, step, new_gradient = here[rises], step[rises], new_gradient[rises]
        change = gradient[here] - new_gradient
        x[here] += step
        value[here], gradient[here] = new_value[rises], new_gradient
        curved = np.sum(step * change, axis=1) > 0.0
        bent, step, change = here[curved], step[curved], change[curved]
        first = np.flatnonzero(fresh[bent])
        size = np.sum(step * change, axis=1) / np.sum(change**2, axis=1)
        H[bent[first]] *= size[first, None, None]
        fresh[bent] = False
        H[bent] = _updated(H[bent], step, change)
    return x


def _updated(H: Array, step: Array, change: Array) -> Array:
    """Inverse Hessians (k, d, d) that take the changes of the gradients (k, d) to the steps."""
    rho = 1.0 / np.sum(step * change, axis=1)
    left = np.eye(step.shape[1]) - rho[:, None, None] * step[:, :, None] * change[:, None, :]
    rest = rho[:, None, None] * step[:, :, None] * step[:, None, :]
    return np.asarray(left @ H @ left.transpose(0, 2, 1) + rest)
