"""Which of several outputs fall where the others rise.

Outputs are turned round until all rise together, as far as the evidence of an exact Gaussian
process of some of their values can tell: its kernel is a squared exponential, times a correlation
between two outputs.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.evidence import scan_variances
from skvbgp._core.linalg import Array, eigh
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates
from skvbgp.base._gaps import Gaps
from skvbgp.kernels import RBF

#: Values of each of two outputs, and most that these are chosen among.
_VALUES, _LOOKED_AT = 100, 5_000
#: What usual length scales are divided by, and the correlation of two outputs.
_FACTORS, _CORRELATION = (1.0, 3.0), 0.9


def find_signs(values: Any, t: int) -> Array:
    """A sign (t,) for each output, the first one's positive; of scaled `Values`."""
    X = values.X[:, :-t]
    if np.isnan(X).any():
        X = Gaps.of(X).fill(X)[0]
    inputs, lead = Coordinates.of(X).scaled(X), np.zeros((t, t))
    keys = number(X)
    rows = [np.flatnonzero(column > 0.0) for column in values.X[:, -t:].T]
    rows = [index[np.argsort(keys[index], kind="stable")[:_LOOKED_AT]] for index in rows]
    for j in range(t):
        for i in range(j):
            first, second = choose(rows[i], rows[j], keys), choose(rows[j], rows[i], keys)
            pair = np.append(first, second)
            lead[i, j] = lead[j, i] = compare_signs(inputs[pair], values.y.y[pair], len(first))
    return align(lead)


def number(X: Array) -> NDArray[np.int64]:
    """A number for each row (n,), the same for equal ones, in an order that means nothing."""
    rows = np.ascontiguousarray(X) + 0.0  # no negative zeros
    return np.fromiter(map(crc32, rows), dtype=np.int64, count=len(rows))


def choose(rows: Index, others: Index, keys: NDArray[np.int64]) -> Index:
    """Some of the rows, those first whose places are among the others', in the order of keys."""
    order = np.lexsort((keys[rows], ~np.isin(keys[rows], keys[others])))
    return rows[order[:_VALUES]]


def compare_signs(X: Array, y: Array, n: int) -> float:
    """Log evidence of a positive correlation of two outputs, over that of a negative one.

    Of scaled rows, the first n of which are of one output.
    """
    second = np.arange(len(y)) >= n
    between = np.where(second[:, None] == second, 1.0, _CORRELATION)
    usual = 0.5 * np.sqrt(X.shape[1])
    best = [
        [scan_variances(K, np.where(second, sign * y, y)) for sign in (1.0, -1.0)]
        for K in (between * RBF(usual / factor)(X) for factor in _FACTORS)
    ]
    positive, negative = np.max(best, axis=0)
    return float(positive - negative)


def align(lead: Array) -> Array:
    """The signs s (t,) with s[0] = 1 of which no single one can raise s' lead s, symmetric."""
    signs = np.where(eigh(lead)[1][:, -1] < 0.0, -1.0, 1.0)
    while np.any(worse := signs * (lead @ signs) < 0.0):
        j = int(np.argmin(np.where(worse, signs * (lead @ signs), np.inf)))
        signs[j] = -signs[j]
    return signs * signs[0]
