"""Several outputs, with a belief about the kernels of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skvbgp._core.linalg import Array
from skvbgp.base import OutputsLearner, OutputsState, Targets
from skvbgp.kernel_selection._learner import VBKSLearner
from skvbgp.kernel_selection._state import State


@dataclass(frozen=True)
class KernelOutputsLearner(OutputsLearner):
    """The settings of every output."""

    single: VBKSLearner

    def begin(self, start: State, X: Array, y: Targets) -> State:
        """After a single kernel, without warnings of those whose turn has not come."""
        return self.single.search(start, X, y, lambda make: True)

    def prune(self, state: OutputsState, top_k: int) -> OutputsState:
        """The kept kernels of the highest bounds of each output alone."""
        outputs = tuple(self.single.prune(output, top_k) for output in state.outputs)
        return replace(state, outputs=outputs)
