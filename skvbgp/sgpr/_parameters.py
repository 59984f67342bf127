"""Everything a bound is maximised over, except q(u)."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, average_shared

#: Fields on the positive half-line are optimised as logarithms, within these limits.
LOG_LIMITS = {
    "nu": (-14.0, 14.0),
    "xi": (-35.0, 14.0),
    "alpha": (-14.0, 7.0),
    "beta": (-35.0, 14.0),
    "noise_variance": (-16.0, 9.0),
}


@dataclass(frozen=True)
class Parameters:
    """Variational moments, noise parameters and inducing inputs, in scaled coordinates.

    The same class holds the gradient in each field.
    """

    nu: Array  # (d,) mean of the inverse length scales
    xi: Array  # (d,) their variance
    alpha: float  # mean of the signal's standard deviation
    beta: float  # its variance
    noise_variance: float | Array  # sigma_n^2, or that of each of several outputs, (t,)
    noise_theta: Array  # (p,) log hyperparameters of the noise kernel
    U: Array  # (m, d) inducing inputs; rotated, they are Z = nu * U
    owners: Owners = ()  # of the columns, see `_core.owners`: those of an input share nu and xi

    @property
    def n_outputs(self) -> int:
        """Columns, the last ones, that say which of several outputs a row is of."""
        return np.size(self.noise_variance) if np.ndim(self.noise_variance) else 0

    @property
    def second_moment(self) -> float:
        """E[sigma_f^2]."""
        return self.alpha**2 + self.beta

    def draw_Lambda(self, e: Array) -> Array:
        """Inverse length scales (d,), given a standard normal draw (d,)."""
        return np.asarray(self.nu + np.sqrt(self.xi) * self.share_draws(e))

    def share_draws(self, e: Array) -> Array:
        """Standard normal draws (..., d) that columns of one input have in common."""
        return e[..., list(self.owners)] if self.owners else e

    def share_gradient(self, gradient: "Parameters") -> "Parameters":
        """The gradient in the fields along which columns of one input remain equal."""
        nu, xi = (average_shared(g, self.owners) for g in (gradient.nu, gradient.xi))
        return replace(gradient, nu=nu, xi=xi)

    def draw_sigma_f(self, e: Any) -> Any:
        """The signal's standard deviation, given a standard normal draw, or several."""
        return self.alpha + np.sqrt(self.beta) * e

    def pack(self) -> Array:
        """One flat vector: logarithms of the positive fields, the others as they are."""
        parts = {name: np.ravel(getattr(self, name)) for name in LEARNED}
        return np.concatenate(
            [np.log(part) if name in LOG_LIMITS else part for name, part in parts.items()]
        )

    def unpack(self, x: Array) -> "Parameters":
        """The parameters whose :meth:`pack` is ``x``; shapes are those of self."""
        parts: dict[str, Any] = {}
        for name, part in self.split(x).items():
            value = np.exp(part) if name in LOG_LIMITS else part
            parts[name] = value if np.ndim(getattr(self, name)) else float(value)
        return replace(self, **parts)

    def pack_gradient(self, gradient: "Parameters") -> Array:
        """Gradient in the flat vector, from that in the fields."""
        parts = []
        for name in LEARNED:
            g = np.ravel(getattr(gradient, name))
            if name in LOG_LIMITS:
                g = g * np.ravel(getattr(self, name))
            parts.append(g)
        return np.concatenate(parts)

    def split(self, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Views of a flat vector by field name."""
        parts, start = {}, 0
        for name in LEARNED:
            shape = np.shape(getattr(self, name))
            stop = start + int(np.prod(shape))
            parts[name] = x[start:stop].reshape(shape)
            start = stop
        return parts

    def all_but(self, *held: str) -> NDArray[np.bool_]:
        """Which entries of a flat vector are not of these fields."""
        free = np.ones(len(self.pack()), dtype=bool)
        for name in held:
            self.split(free)[name][...] = False
        return free


#: The fields that are learned.
LEARNED = tuple(field.name for field in fields(Parameters) if field.name != "owners")
