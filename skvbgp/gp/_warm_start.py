"""What a fit goes on from where inputs may be encoded by other columns than in the fit before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skvbgp._core.order import Index
from skvbgp._core.owners import Owners, add_inputs, find_first_columns, find_shared
from skvbgp.gp._state import Frames, State
from skvbgp.gp._warp import WarpedCoordinates
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import bind_columns, take_inputs


def list_learned(
    before: State, d: int, owners: Owners, n_outputs: int
) -> list[tuple[str, Kernel, Owners]]:
    """Kernels that were learned, by name, of d columns, and which of these share a length scale."""
    learned = dict(zip(before.kernel_of, before.mixture.processes, strict=True))
    columns = _match_inputs(before, d, owners, n_outputs)
    listed = []
    for i in sorted(learned):
        kernel, tied = before.kernels[i], learned[i].tied
        if columns is not None:
            first, _ = columns
            kernel = bind_columns(take_inputs(kernel, first), d, owners)
            if tied:
                tied = tuple(np.array(tied)[first][list(owners or range(d))].tolist())
        listed.append((before.names[i], kernel, tied))
    return listed


def move_warp(before: State, d: int, owners: Owners, n_outputs: int) -> Frames:
    """The frames of a state, with the warp of the same inputs among d columns."""
    frames, columns = before.frames, _match_inputs(before, d, owners, n_outputs)
    coordinates = frames.coordinates
    if columns is None or not isinstance(coordinates, WarpedCoordinates):
        return frames
    shared = find_shared(d + n_outputs, add_inputs(owners, n_outputs))
    warp = coordinates.warp.moved(*columns, shared)
    return replace(frames, coordinates=replace(coordinates, warp=warp))


def _match_inputs(
    before: State, d: int, owners: Owners, n_outputs: int
) -> tuple[Index, Index] | None:
    """Which columns begin the inputs, in a state before and of d now; None if they stay."""
    known = before.mixture.processes[0].owners
    if known == add_inputs(owners, n_outputs):
        return None
    width = len(before.frames.coordinates.scale) - n_outputs
    return find_first_columns(width, known[:width]), find_first_columns(d, owners)
