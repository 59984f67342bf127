"""What the parameter `kernel` of the flagships says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skvbgp.kernels import Kernel, as_kernel


def is_auto(kernel: Any) -> bool:
    """Whether kernels are searched for."""
    if isinstance(kernel, str) and kernel != "auto":
        raise ValueError(f"kernel must be 'auto', a kernel or a list; got {kernel!r}.")
    return isinstance(kernel, str)


def name_kernels(kernel: Any) -> list[tuple[str, Kernel]]:
    """Names and kernels that the user gives."""
    if not isinstance(kernel, Sequence):
        return [_name(kernel)]
    pairs = [_name(entry) for entry in kernel]
    if not pairs:
        raise ValueError("kernel must not be an empty list.")
    return pairs


def _name(entry: Any) -> tuple[str, Kernel]:
    """Name and kernel; a kernel without a name is called as it prints."""
    if isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str):
        return entry[0], as_kernel(entry[1])
    return repr(entry), as_kernel(entry)
