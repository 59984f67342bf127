"""A kernel in words: the additive components of its functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from skvbgp.kernels import (
    RBF,
    Constant,
    IntegratedOU,
    Kernel,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    White,
    Wiener,
)
from skvbgp.kernels._compose import list_terms

#: Length scales beyond this share of the range of the inputs make a trend.
_TREND_SHARE = 0.5
#: Periods beyond this share of it are not seen to repeat.
_REPEAT_SHARE = 0.75


def describe(kernel: Kernel, extent: np.ndarray) -> list[str]:
    """One phrase for each additive component, of inputs with a range (d,)."""
    return [_phrase(term, extent) for term in list_terms(kernel)]


def _phrase(term: list[Any], extent: np.ndarray) -> str:
    periodic = [leaf for leaf in term if isinstance(leaf, Periodic)]
    smooth = [leaf for leaf in term if isinstance(leaf, RBF | RationalQuadratic | Matern)]
    n_linear = sum(isinstance(leaf, Linear) for leaf in term)
    if any(isinstance(leaf, White) for leaf in term):
        return "noise"
    if all(isinstance(leaf, Constant) for leaf in term):
        return "a constant"
    wanders = [leaf for leaf in term if isinstance(leaf, Wiener)]
    if wanders and not periodic:
        what = "trend" if any(leaf.integrated for leaf in wanders) else "level"
        return f"a {what} that wanders" + _growth(n_linear)
    coasts = [leaf for leaf in term if isinstance(leaf, IntegratedOU)]
    if coasts and not periodic:
        return f"a level whose slopes last over {_lengths(coasts)}" + _growth(n_linear)
    local = [leaf for leaf in smooth if not _is_long(leaf.length_scale, extent, _TREND_SHARE)]
    if periodic:
        text = "a periodic part of " + " and ".join(_period(leaf, extent) for leaf in periodic)
        if local:
            text += f" whose shape changes over {_lengths(local)}"
        elif smooth:
            text += f" whose shape changes slowly, over {_lengths(smooth)}"
        return text + _growth(n_linear)
    has_kinks = any(isinstance(leaf, Matern) and leaf.nu == 0.5 for leaf in smooth)
    texture = "rough" if has_kinks else "smooth"
    if local:
        return f"a short-term {texture} part of {_lengths(local)}" + _growth(n_linear)
    if smooth:
        return f"a {texture} trend of {_lengths(smooth)}" + _growth(n_linear)
    if n_linear:
        return "a linear trend" if n_linear == 1 else f"a polynomial trend of degree {n_linear}"
    return "a component " + " * ".join(map(repr, term))


def _growth(n_linear: int) -> str:
    if n_linear < 2:
        return ", with linearly changing amplitude" if n_linear else ""
    return f", with an amplitude that is a polynomial of degree {n_linear}"


def _period(leaf: Periodic, extent: np.ndarray) -> str:
    text = f"period {_numbers(leaf.period)}"
    return text + (" (barely repeated)" if _is_long(leaf.period, extent, _REPEAT_SHARE) else "")


def _lengths(group: list[Any]) -> str:
    return "length scale " + " and ".join(_numbers(leaf.length_scale) for leaf in group)


def _is_long(lengths: Any, extent: np.ndarray, share: float) -> bool:
    return bool(np.all(np.asarray(lengths) > share * extent))


def _numbers(values: Any) -> str:
    values = np.atleast_1d(values)
    text = ", ".join(f"{value:.3g}" for value in values)
    return text if len(values) == 1 else f"({text})"
