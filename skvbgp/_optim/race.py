"""The end of a search that is not going to get as far as another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from skvbgp._optim.ascent import EndPass

#: Iterations whose average rise says how far the others may get.
_RECENT = 5


class HasValues(Protocol):
    @property
    def values(self) -> tuple[float, ...]:
        """One for each iteration so far."""


def give_up_below(target: float, max_iter: int) -> EndPass:
    """End a search that would stay below ``target``.

    As it would if each of the iterations that are left, of ``max_iter``, were to rise as the last
    few have on average.
    """

    def end_pass(make: Callable[[], HasValues]) -> bool:
        values = make().values
        if len(values) <= _RECENT:
            return False
        rise = (values[-1] - values[-1 - _RECENT]) / _RECENT
        return values[-1] + rise * (max_iter - len(values)) < target

    return end_pass
