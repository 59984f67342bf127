"""What a fit goes on from where a category has another number of columns than before."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp._core.owners import add_inputs
from skvbgp._core.scaling import Coordinates
from skvbgp.gp._warm_start import list_learned, move_warp
from skvbgp.gp._warp import Warp, WarpedCoordinates
from skvbgp.kernels import Matern

#: A number, a category of two columns, and another number; then the category has three.
KNOWN, NOW = (0, 1, 1, 2), (0, 1, 1, 1, 2)


@dataclass(frozen=True)
class Framed:
    coordinates: Coordinates


def make_state(owners, kernels=(), tied=(), coordinates=None):
    """With a process for each kernel, in the opposite order."""
    processes = tuple(SimpleNamespace(owners=owners, tied=one) for one in tied[::-1])
    return SimpleNamespace(
        names=tuple("abc"[: len(kernels)]),
        kernels=kernels,
        kernel_of=tuple(range(len(kernels)))[::-1],
        mixture=SimpleNamespace(processes=processes or (SimpleNamespace(owners=owners),)),
        frames=Framed(coordinates or Coordinates(np.zeros(4), np.ones(4))),
    )


@pytest.mark.parametrize("n_outputs", [0, 2])
def test_kernels_keep_the_length_scales_of_their_inputs(n_outputs):
    """Those that share one still do; columns that tell outputs apart have none."""
    kernels = Matern([1.0, 2.0, 2.0, 3.0]), Matern([4.0, 5.0, 5.0, 5.0])
    numbers = Coordinates(np.zeros(4 + n_outputs), np.ones(4 + n_outputs))
    known = add_inputs(KNOWN, n_outputs)
    state = make_state(known, kernels, ((), (1, 0, 0, 0)), numbers)
    one, other = list_learned(state, 5, NOW, n_outputs)
    assert one[0] == "a" and other[0] == "b"
    assert_array_equal(one[1].length_scale, [1.0, 2.0, 2.0, 2.0, 3.0])
    assert_array_equal(other[1].length_scale, [4.0, 5.0, 5.0, 5.0, 5.0])
    assert (one[2], other[2]) == ((), (1, 0, 0, 0, 0))


@pytest.mark.parametrize("owners", [(), KNOWN])
def test_where_columns_stay_so_does_everything(owners):
    kernel = Matern([1.0, 2.0, 2.0, 3.0])
    state = make_state(owners, (kernel,), ((0, 1, 1, 2),))
    ((_, found, tied),) = list_learned(state, 4, owners, 0)
    assert found is kernel and tied == (0, 1, 1, 2)
    assert move_warp(state, 4, owners, 0) is state.frames


@pytest.mark.parametrize("n_outputs", [0, 2])
@pytest.mark.parametrize(
    ("known", "now", "columns", "expected"),
    [
        (KNOWN, NOW, [0, 3], [0, 4]),
        # as `Categories` encode an input between two numbers, and one in front of them
        ((0, 2, 1, 1), (0, 2, 1, 1, 1), [0, 1], [0, 1]),
        ((1, 2, 0, 0), (1, 2, 0, 0, 0), [0, 1], [0, 1]),
    ],
)
def test_a_warp_is_of_the_same_inputs(n_outputs, known, now, columns, expected):
    warp = Warp(np.array(columns), *np.arange(8.0).reshape(4, 2))
    offset = np.zeros(4 + n_outputs)
    known = add_inputs(known, n_outputs)
    state = make_state(known, coordinates=WarpedCoordinates(offset, offset + 1.0, warp))
    found = move_warp(state, 5, now, n_outputs).coordinates.warp
    assert_array_equal(found.columns, expected)
    assert_array_equal([found.centre, found.width], [[0.0, 1.0], [2.0, 3.0]])
