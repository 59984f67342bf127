"""Parameters by name, as scikit-learn has them: ``name__parameter`` is one of a part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any


def list_params(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, and the parameters of those that have some."""
    params = dict(parts)
    for name, part in parts.items():
        inner = part.get_params() if _has_params(part) else list_params(name_entries(part))
        params.update({f"{name}__{key}": value for key, value in inner.items()})
    return params


def change_params(
    owner: Any, parts: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """The parts after some were replaced, and then parameters of some were."""
    changed, groups = dict(parts), group_params(params)
    for name in groups:
        if name not in parts:
            raise ValueError(
                f"Invalid parameter {name!r} for {owner!r}. Valid parameters are: {list(parts)!r}."
            )
    changed.update({name: params[name] for name in groups if name in params})
    changed.update({name: change_kernel(changed[name], own) for name, own in groups.items() if own})
    return changed


def group_params(params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name of a part: parameters of this part, none if it is itself what is given."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in params.items():
        name, is_inner, inner = key.partition("__")
        groups[name].update({inner: value} if is_inner else {})
    return groups


def change_kernel(kernel: Any, params: Mapping[str, Any]) -> Any:
    """A kernel, or a list of kernels with names, with other values of some parameters."""
    if _has_params(kernel):  # one of scikit-learn's is changed itself
        return getattr(kernel, "with_params", kernel.set_params)(**params)
    changed = change_params(kernel, name_entries(kernel), params)
    return type(kernel)(
        (entry[0], changed[entry[0]]) if has_name(entry) and entry[0] in changed else entry
        for entry in kernel
    )


def has_name(entry: Any) -> bool:
    """Whether an entry of a list of kernels is one with its name."""
    is_pair = isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2
    return is_pair and isinstance(entry[0], str)


def name_entries(kernels: Any) -> dict[str, Any]:
    """Kernels of a list by their names, without those that share one or have none."""
    if not isinstance(kernels, list | tuple):
        return {}
    pairs = [tuple(entry) for entry in kernels if has_name(entry) and _has_params(entry[1])]
    counts = Counter(name for name, _ in pairs)
    return {name: kernel for name, kernel in pairs if counts[name] == 1}


def _has_params(part: Any) -> bool:
    return hasattr(part, "get_params") and not isinstance(part, type)
