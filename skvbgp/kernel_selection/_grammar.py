"""Kernels composed by + and * from a few base kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Any, NamedTuple

from skvbgp.base import as_count
from skvbgp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    as_kernel,
)

BASE_KERNELS: dict[str, Kernel] = {
    "SE": RBF(),
    "RQ": RationalQuadratic(),
    "LIN": Linear(),
    "PER": Periodic(),
    "M12": Matern(nu=0.5),
    "M32": Matern(nu=1.5),
    "M52": Matern(nu=2.5),
}
#: Kernels that a list may have: some 2 GB.
_MOST_KERNELS = 1_000_000


class Expression(NamedTuple):
    """A sum or product in canonical form: sorted, and flat (no sum in a sum)."""

    operation: str  # "+", "*" or "" of a base kernel
    parts: tuple[Any, ...]  # Expressions, or the one index of a base kernel

    def under(self, operation: str) -> tuple[Any, ...]:
        """What this expression contributes to a sum or product."""
        return self.parts if self.operation == operation else (self,)


def expressions(n_base: int, depth: int) -> list[Expression]:
    """All expressions of at most `depth` base kernels, distinct up to order, by depth."""
    levels = [[Expression("", (i,)) for i in range(n_base)]]
    for size in range(2, depth + 1):
        found: dict[Expression, None] = {}  # an ordered set
        for left_size in range(1, size // 2 + 1):
            pairs = product(levels[left_size - 1], levels[size - left_size - 1])
            for operation, (left, right) in product("+*", pairs):
                parts = (*left.under(operation), *right.under(operation))
                found[Expression(operation, tuple(sorted(parts)))] = None
        levels.append(list(found))
    return [expression for level in levels for expression in level]


def count_expressions(n_base: int) -> Iterator[int]:
    """Numbers of distinct expressions of one base kernel, of two, and so on, without a limit.

    A sum is a multiset of base kernels and products, and as many sums as products are of a size.
    So with t_n expressions of size n and c_n = t_n / 2 of these products, but for c_1 = t_1,
    Euler's transform of c is t: n t_n = D_1 t_(n-1) + ... + D_n t_0, where t_0 = 1 and D_k is the
    sum of d c_d over the divisors d of k.
    """
    t, c, D = [1], [0], [0]
    while True:
        n = len(t)
        own = sum(d * c[d] for d in range(1, n) if n % d == 0)  # D_n without n c_n
        rest = own + sum(D[k] * t[n - k] for k in range(1, n))
        c.append(rest // n if n > 1 else n_base)
        t.append(2 * c[n] if n > 1 else n_base)
        D.append(own + n * c[n])
        yield t[n]


def kernel_grammar(
    depth: int = 3, base: Sequence[Any] = ("SE", "RQ", "LIN", "PER")
) -> list[tuple[str, Kernel]]:
    """Kernels built by + and * from at most `depth` base kernels each.

    Every combination appears once, whatever the order and the brackets of its sums and
    products. A base kernel may be repeated.

    Parameters
    ----------
    depth : int, default=3
        Largest number of base kernels in one kernel.
    base : sequence of str or (str, kernel), default=("SE", "RQ", "LIN", "PER")
        The base kernels: "SE" (squared exponential), "RQ" (rational quadratic), "LIN"
        (linear), "PER" (periodic), "M12", "M32" and "M52" (Matern of smoothness 1/2, 3/2 and
        5/2: levels that wander, trends that bend), or pairs of a name and a kernel, of
        :mod:`skvbgp.kernels` or scikit-learn.

    Returns
    -------
    kernels : list of (str, Kernel)
        Names such as ``"PER * (SE + LIN)"`` and kernels, by growing number of base kernels.
        Every term of a sum has an amplitude of its own.

    Raises
    ------
    ValueError
        If there would be more than a million.

    Examples
    --------
    >>> from skvbgp.kernel_selection import kernel_grammar
    >>> len(kernel_grammar())
    144
    >>> kernels = dict(kernel_grammar(2, base=("LIN", "M32")))
    >>> list(kernels)
    ['LIN', 'M32', 'LIN + LIN', 'LIN + M32', 'M32 + M32', 'LIN * LIN', 'LIN * M32', 'M32 * M32']
    """
    depth = as_count(depth, "depth", least=1)
    pairs = [_base_kernel(entry) for entry in base]
    names = [name for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"base must hold different base kernels, got {names!r}.")
    counts = zip(range(1, depth + 1), accumulate(count_expressions(len(pairs))), strict=False)
    for size, n_kernels in counts:
        if n_kernels > _MOST_KERNELS:
            raise ValueError(
                f"depth must be less than {size} with {len(pairs)} base kernels, of which up to "
                f"{size} make {n_kernels:,} kernels, more than {_MOST_KERNELS:,}; got {depth}."
            )
    return [
        (_name(expression, names), _with_amplitude(*_kernel(expression, pairs)))
        for expression in expressions(len(pairs), depth)
    ]


def _base_kernel(entry: Any) -> tuple[str, Kernel]:
    """Name and kernel of an entry of `base`."""
    if isinstance(entry, str):
        if entry not in BASE_KERNELS:
            raise ValueError(f"Base kernels are {', '.join(BASE_KERNELS)}; got {entry!r}.")
        return entry, BASE_KERNELS[entry]
    name, kernel = entry
    return name, as_kernel(kernel)


def _name(expression: Expression, names: list[str]) -> str:
    if not expression.operation:
        return names[expression.parts[0]]
    parts = (
        f"({_name(part, names)})"
        if (part.operation, expression.operation) == ("+", "*")
        else _name(part, names)
        for part in expression.parts
    )
    return f" {expression.operation} ".join(parts)


def _kernel(expression: Expression, base: list[tuple[str, Kernel]]) -> tuple[Kernel, bool]:
    """The kernel of an expression, and whether it can take any amplitude by itself."""
    if not expression.operation:
        _, kernel = base[expression.parts[0]]
        return kernel, _has_amplitude(kernel)
    parts = [_kernel(part, base) for part in expression.parts]
    if expression.operation == "*":
        kernels, amplitudes = zip(*parts, strict=True)
        return Product(*kernels), any(amplitudes)
    return Sum(*(_with_amplitude(*part) for part in parts)), True


def _with_amplitude(kernel: Kernel, has_amplitude: bool) -> Kernel:
    return kernel if has_amplitude else Constant() * kernel


def _has_amplitude(kernel: Kernel) -> bool:
    """Whether a kernel of the user's, or a linear one, has a free variance of its own."""
    if isinstance(kernel, Sum):
        return all(map(_has_amplitude, kernel.kernels))
    if isinstance(kernel, Product):
        return any(map(_has_amplitude, kernel.kernels))
    if isinstance(kernel, Linear):
        return kernel.length_scale_bounds != "fixed"
    return isinstance(kernel, Constant) and kernel.value_bounds != "fixed"
