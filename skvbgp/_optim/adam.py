"""Adam on a flat vector, with one step size per entry."""

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array

#: Memory of the first and of the second moment.
_MEMORY = (0.9, 0.99)
#: Guards the division where the gradient has always been zero.
_EPSILON = 1e-8


@dataclass(frozen=True)
class AdamState:
    """Moments of the gradient; plain data, so that a pickled run goes on bit for bit."""

    first: Array
    second: Array
    n_steps: int = 0

    @classmethod
    def zeros(cls, size: int) -> "AdamState":
        return cls(np.zeros(size), np.zeros(size))


def adam_ascent(
    x: Array, gradient: Array, state: AdamState, step_size: float | Array
) -> tuple[Array, AdamState]:
    """One step uphill from x (p,) [1]_.

    The step size, of all entries or (p,), is about the largest change of an entry in this step.

    References
    ----------
    .. [1] D. P. Kingma and J. Ba, "Adam: A method for stochastic optimization",
       ICLR 2015, arXiv:1412.6980, Algorithm 1.
    """
    n = state.n_steps + 1
    first = _MEMORY[0] * state.first + (1.0 - _MEMORY[0]) * gradient
    second = _MEMORY[1] * state.second + (1.0 - _MEMORY[1]) * gradient**2
    m_hat = first / (1.0 - _MEMORY[0] ** n)
    v_hat = second / (1.0 - _MEMORY[1] ** n)
    return x + step_size * m_hat / (np.sqrt(v_hat) + _EPSILON), AdamState(first, second, n)
