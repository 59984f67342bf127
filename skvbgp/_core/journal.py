"""What the loops of a fit have done, so that a fit that was interrupted goes on bit for bit.

What takes long in a fit is a loop, or some tasks, and keeps a log. Logs are numbered in the order
in which they begin, which is the same each time, as a fit is determined by its data, its parameters
and its generator. A fit that is repeated finds its logs; what lies between is computed again.

A log speaks for all that a loop does. Therefore no log begins inside of a loop or of a task: the
journal is not in use there, whether a task runs in this thread, another one or another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class Resumable(Protocol):
    """What changes behind the back of a loop that uses it, such as a generator."""

    def get_state(self) -> Any:
        """A value that will not change."""

    def set_state(self, state: Any, /) -> None:
        """Go on from such a value."""


@dataclass
class Log:
    """What is known of a loop; a journal keeps it as it is when a pass ends."""

    kind: str
    entries: list[Any] = field(default_factory=list)
    memory: Any = None  # state of what the loop uses, after the last entry


class Journal:
    """The logs of a fit, and the passes that it has reported.

    It begins with the ``content`` that the journal had in the fit that is repeated, if there is
    one, and hands its own to ``save`` at the end of every so many passes.
    """

    def __init__(
        self, content: tuple[Any, ...] | None, save: Callable[[tuple[Any, ...]], None], every: int
    ) -> None:
        self._random, self._stops, self._logs = content or (None, [], [])
        self._save, self._every = save, every
        self._n_begun, self._n_repeated = 0, 0

    @property
    def content(self) -> tuple[Any, ...]:
        """State of the generator before the fit; by pass, whether it was the last one; logs."""
        return self._random, self._stops, self._logs

    def begin_fit(self, rng: np.random.RandomState) -> None:
        """Set the generator to what it was when the fit began for the first time."""
        if self._random is None:
            self._random = rng.get_state()
        rng.set_state(self._random)

    def begin_log(self, kind: str) -> Log:
        """The log of the loop that begins, which is empty unless it has been here before."""
        if self._n_begun == len(self._logs):
            self._logs.append(Log(kind))
        log: Log = self._logs[self._n_begun]
        self._n_begun += 1
        if log.kind != kind:
            raise describe_difference()
        return log

    @property
    def repeats(self) -> bool:
        """Whether the pass that ends is one that is known."""
        return self._n_repeated < len(self._stops)

    def repeat_pass(self) -> bool:
        """Whether training was asked to stop after the pass that ends."""
        self._n_repeated += 1
        stop: bool = self._stops[self._n_repeated - 1]
        return stop

    def end_pass(self, stop: bool) -> None:
        """Note a pass that is not known, and what callbacks have said to it."""
        self._stops.append(stop)
        self._n_repeated += 1
        if stop or self._n_repeated % self._every == 0:
            self._save(self.content)


_in_use: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def use_journal(journal: Journal | None) -> Iterator[None]:
    """Have the loops inside of the block keep logs; with None they do not."""
    token = _in_use.set(journal)
    try:
        yield
    finally:
        _in_use.reset(token)


def begin_log(kind: str) -> Log | None:
    """The log of the loop that begins, if there is a journal."""
    journal = _in_use.get()
    return None if journal is None else journal.begin_log(kind)


def do_once(function: Callable[[], Any]) -> Any:
    """The result of a function, which is not called if the journal has it."""
    log = begin_log("once")
    if log is None:
        return function()
    if not log.entries:
        with use_journal(None):
            log.entries.append(function())
    return log.entries[0]


def describe_difference() -> RuntimeError:
    """The error of a fit that does not repeat itself."""
    return RuntimeError(
        "The fit does not repeat what its checkpoint says: delete the file to start again. Was it "
        "written on another machine, or with another number of threads?"
    )
