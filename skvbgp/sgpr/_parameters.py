"""Everything a bound is maximised over, except q(u)."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array

#: Fields that live on the positive half-line and are optimised as logarithms.
_POSITIVE = ("nu", "xi", "alpha", "beta", "noise_variance")


@dataclass(frozen=True)
class Parameters:
    """Variational moments, noise parameters and inducing inputs, in scaled coordinates.

    The same class holds the gradient in each field.
    """

    nu: Array  # (d,) mean of the inverse length scales
    xi: Array  # (d,) their variance
    alpha: float  # mean of the signal's standard deviation
    beta: float  # its variance
    noise_variance: float  # sigma_n^2
    noise_theta: Array  # (p,) log hyperparameters of the noise kernel
    U: Array  # (m, d) inducing inputs; rotated, they are Z = nu * U

    @property
    def second_moment(self) -> float:
        """E[sigma_f^2]."""
        return self.alpha**2 + self.beta

    def pack(self) -> Array:
        """One flat vector: logarithms of the positive fields, the others as they are."""
        return np.concatenate([np.ravel(part) for part in self._unconstrained().values()])

    def unpack(self, x: Array) -> "Parameters":
        """The parameters whose :meth:`pack` is ``x``; shapes are those of self."""
        parts: dict[str, Any] = {}
        for name, part in self.split(x).items():
            value = np.exp(part) if name in _POSITIVE else part
            parts[name] = value if np.ndim(getattr(self, name)) else float(value)
        return replace(self, **parts)

    def pack_gradient(self, gradient: "Parameters") -> Array:
        """Gradient in the flat vector, from that in the fields."""
        parts = []
        for field in fields(self):
            g = np.ravel(getattr(gradient, field.name))
            if field.name in _POSITIVE:
                g = g * np.ravel(getattr(self, field.name))
            parts.append(g)
        return np.concatenate(parts)

    def split(self, x: Array) -> dict[str, Array]:
        """Views of a flat vector by field name."""
        parts, start = {}, 0
        for field in fields(self):
            shape = np.shape(getattr(self, field.name))
            stop = start + int(np.prod(shape))
            parts[field.name] = x[start:stop].reshape(shape)
            start = stop
        return parts

    def _unconstrained(self) -> dict[str, Array]:
        return {
            f.name: np.log(getattr(self, f.name)) if f.name in _POSITIVE else getattr(self, f.name)
            for f in fields(self)
        }
