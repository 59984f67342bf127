"""What training starts from."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut, draw_distinct
from skvbgp._core.parallel import single_openmp_thread
from skvbgp._core.shards import ShardedColumns

#: Rows that starting values are computed from.
SUBSAMPLE = 10_000
#: Fewer rows than this do not set hyperparameters: later calls start again with all rows.
START_ROWS = 32
#: Rows that are compared at a time.
_TILE_ROWS = 2**16


def choose_rows(n: int, rng: np.random.RandomState) -> slice | Index:
    """Indices of at most SUBSAMPLE random rows of n, a slice if that is all of them."""
    return slice(None) if n <= SUBSAMPLE else draw_distinct(n, SUBSAMPLE, rng)


def at_one_place(X: Array | ShardedColumns) -> bool:
    """Whether all rows are equal: they tell nothing about how fast the function varies.

    Missing entries (NaN) are equal to each other.
    """
    if isinstance(X, ShardedColumns):
        return X.rows.at_one_place
    tiles = (X[rows] for rows in cut(len(X), _TILE_ROWS))
    return all(
        np.array_equal(tile, np.broadcast_to(X[0], tile.shape), equal_nan=True) for tile in tiles
    )


def says_too_little(X: Array | ShardedColumns, *, learns: bool, n_known: int | None = None) -> bool:
    """Whether rows set nothing for good, so that a stream starts again with all of them.

    They are too few for hyperparameters, if these are learned, or at one place, which has no unit.
    Of places X there may be more rows ``n_known``.
    """
    n = len(X) if n_known is None else n_known
    return (learns and n < START_ROWS) or at_one_place(X)


def is_outgrown(
    known_X: Array,
    known_labels: NDArray[Any],
    X: Array,
    labels: NDArray[Any],
    *,
    learns: bool,
    n_known: int | None = None,
) -> bool:
    """Whether new rows are a reason to train again from the start.

    They are if the known rows (``n_known`` of them, if X are places) say too little. If
    hyperparameters are learned, they also are if they have a class that the known rows have not, or
    vary in a column in which these are constant.
    """
    if says_too_little(known_X, learns=learns, n_known=n_known):
        return True
    new_class = len(np.setdiff1d(labels, known_labels)) > 0
    return learns and (new_class or brings_variation(known_X, X))


def brings_variation(
    known: Array, X: Array, among: NDArray[np.bool_] | np.bool_ = np.True_
) -> bool:
    """Whether rows X vary in a column that is constant, or all missing, in the known rows.

    Columns (d,) may be those ``among`` others.
    """
    constant = find_constant(known) & among
    value = np.fmin.reduce(known[:, constant], axis=0)  # NaN if all are
    return bool(np.any(~np.isnan(X[:, constant]) & (X[:, constant] != value)))


def find_constant(X: Array) -> NDArray[np.bool_]:
    """Which columns (d,) of rows X are constant, or all missing."""
    return ~(np.fmin.reduce(X, axis=0) < np.fmax.reduce(X, axis=0))


def choose_inducing_inputs(
    X: Array, m: int, rng: np.random.RandomState, weight: Array | None = None
) -> Array:
    """m distinct inputs that cover the rows of X (scaled), or fewer if X has fewer.

    Rows may have positive weights (n,).
    All distinct rows if there are at most m of them, otherwise centres of a short k-means. It
    runs on one thread: its sums are rounded differently by every number of them.
    """
    distinct, owner = np.unique(X, axis=0, return_inverse=True)
    if len(distinct) <= m:
        return distinct
    if 2 * len(distinct) <= len(X):  # equal rows would be several of the centres
        X, weight = distinct, np.bincount(owner.ravel(), weight).astype(np.float64)
    from sklearn.cluster import KMeans  # some tenths of a second that others can do without

    kmeans = KMeans(m, init="random", n_init=1, max_iter=10, random_state=rng)
    with single_openmp_thread(), warnings.catch_warnings():  # of rows that are nearly equal
        warnings.simplefilter("ignore", ConvergenceWarning)
        centers = kmeans.fit(X, sample_weight=weight).cluster_centers_
    _, first = np.unique(centers, axis=0, return_index=True)
    return centers[np.sort(first)]
