"""What the user gives, as numbers: rows, weights and parameters, and errors that say what to do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from skvbgp._core.linalg import Array

#: Largest weight of a row; its inverse is the least.
LARGEST_WEIGHT = 1e9
_MAKE_NUMBERS = (
    "Make numbers of dates and durations, such as (dates - dates[0]) / np.timedelta64(1, 'D')."
)
_LABELS = "Labels are all strings or all numbers, and known of every row."
#: What the errors of scikit-learn and NumPy leave open.
_ADVICE = {
    "Input X contains NaN": (
        "VBGPClassifier, EPDTCClassifier, HybridGPLVM, VBDTCRegressor, VBFITCRegressor, "
        "VBPITCRegressor, VBPICRegressor, SVBSSGPRegressor, with Gaussian noise and replay "
        "DecoupledGPRegressor and, unless n_inducing is a number, VBGPRegressor, or forgetting is "
        "below 1, VBKSRegressor take rows with missing entries."
    ),
    "Input y contains NaN": "Leave out the rows in which y is not known.",
    "does not contain any features": "One row has two dimensions as well: df.iloc[[0]], or X[:1].",
    "Input contains NaN": _LABELS,
    "Unknown label type: unknown": _LABELS,
    "NA is ambiguous": _LABELS,
    "'<' not supported": _LABELS,
    "NAType": "In an array of objects a missing entry is NaN, not pandas' NA.",
    "array element with a sequence": (
        "Rows have equally many numbers. A lazy frame has its rows after X.collect()."
    ),
    "string to float": (
        'If X has strings, `categorical_features` says which inputs they are ("from_dtype": '
        "those of a DataFrame after astype('category')). HybridGPLVM takes a column of zeros and "
        "ones for each category, named in `binary_columns`. If y has strings, it is for a "
        "classifier."
    ),
} | dict.fromkeys(
    ["DateTime64", "TimeDelta64", "'Time", "'date", "'time", "'Period"], _MAKE_NUMBERS
)


@contextmanager
def reading(X: Any) -> Iterator[None]:
    """Refuse dates, and add to an error about what is read what may be done."""
    refuse_dates(X)
    try:
        yield
    except (TypeError, ValueError) as error:
        for cause, advice in _ADVICE.items():
            if cause in str(error):
                error.add_note(advice)
                break
        raise


def find_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of some objects are None, NaN or pandas' NA, which says of nothing what it equals."""
    equal = np.equal(values, values, dtype=object)
    known = [
        value is not None and isinstance(same, bool | np.bool_) and bool(same)
        for value, same in zip(values.flat, equal.flat, strict=True)
    ]
    return ~np.array(known, dtype=bool).reshape(values.shape)


def validate_numbers(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """scikit-learn's ``validate_data`` of a table in which no column may be dates.

    Polars and Arrow make numbers of them, also beside others.
    """
    refuse_dates(X, quantity=any)
    return validate_data(estimator, X, *y, **options)


def refuse_dates(
    values: Any, name: str = "X", quantity: Callable[[list[bool]], bool] = all
) -> None:
    """Months as numbers differ from the same months as days, which nobody would notice.

    Tables are refused all or any of whose columns are dates: beside others they may be categories.
    """
    kinds = [str(kind).lower() for kind in list_types(values)]
    are_dates = [kind.startswith(("date", "time", "duration", "period")) for kind in kinds]
    if (kinds and quantity(are_dates)) or _lists_dates(values):
        raise ValueError(
            f"{name} has dates or durations, whose numbers depend on their unit. {_MAKE_NUMBERS}"
        )


def list_types(values: Any) -> NDArray[Any]:
    """The types of a table's columns, or that of all entries; none of lists."""
    for name in ("dtypes", "dtype", "type"):  # the last one of Arrow's columns
        types = getattr(values, name, None)
        if types is not None:
            return np.ravel(types)
    return np.ravel(getattr(getattr(values, "schema", None), "types", []))  # of its tables


def _lists_dates(values: Any) -> bool:
    """Whether the first row of lists or objects has NumPy's dates, which would become numbers."""
    is_object = isinstance(values, np.ndarray) and values.dtype.kind == "O" and values.ndim > 0
    if not (isinstance(values, list | tuple) or is_object) or not len(values):
        return False
    entries = values[0] if isinstance(values[0], list | tuple | np.ndarray) else [values[0]]
    return any(isinstance(entry, np.datetime64 | np.timedelta64) for entry in entries)


def as_row_values(value: Any, n: int, name: str, default: float) -> Array:
    """A number for each of n rows, none of them negative; ``default`` where None is given."""
    values = as_vector(default if value is None else value, n, name, positive=False)
    if np.any(values < 0.0):
        raise ValueError(f"{name} must not be negative; the smallest is {values.min():g}.")
    return values


def as_weights(value: Any, n: int, name: str = "sample_weight") -> Array:
    """Weights (n,) of rows, 1 where None is given; some of them may be zero."""
    weight = as_row_values(value, n, name, 1.0)
    positive = weight[weight > 0.0]
    if len(positive) == 0:
        raise ValueError(f"{name} must not be zero for all rows.")
    if positive.max() > LARGEST_WEIGHT or positive.min() < 1.0 / LARGEST_WEIGHT:
        raise ValueError(f"{name} must be between 1 / {LARGEST_WEIGHT:g} and its inverse.")
    return weight


def as_count(value: Any, name: str, *, least: int) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}.")
    return int(value)


def as_probabilities(values: Any, name: str) -> Array:
    """Numbers between 0 and 1, of shape () or (k,)."""
    p = _as_numbers(values, name)
    if p.ndim > 1 or p.size == 0 or not np.all((p > 0.0) & (p < 1.0)):
        raise ValueError(f"{name} must be between 0 and 1; got {values!r}.")
    return p


def as_vector(value: Any, size: int, name: str, *, positive: bool) -> Array:
    """A number, or several, as a finite vector of a given size."""
    vector = _as_numbers(value, name)
    if vector.ndim > 1 or (vector.ndim == 1 and len(vector) != size):
        raise ValueError(f"{name} must be a number or have shape ({size},); got {vector.shape}.")
    if not np.isfinite(vector).all() or (positive and not (vector > 0.0).all()):
        kind = "finite and positive" if positive else "finite"
        raise ValueError(f"{name} must be {kind}; got {value!r}.")
    return np.broadcast_to(vector, (size,)).copy()


def _as_numbers(values: Any, name: str) -> Array:
    refuse_dates(values, name, any)
    if any(str(kind).startswith("complex") for kind in list_types(values)):
        raise ValueError(f"{name} must hold real numbers; got {values!r}.")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers; got {values!r}.") from None


def choose_columns(
    columns: Any, n_features: int, names: Sequence[str] | None, name: str
) -> NDArray[np.bool_]:
    """A mask of columns that are given by their names, indices or a mask; None is none of them."""
    chosen, mask = np.asarray([] if columns is None else columns), np.zeros(n_features, dtype=bool)
    is_list, kind = chosen.ndim == 1, chosen.dtype.kind
    if is_list and kind == "b" and len(chosen) == n_features:
        return chosen.copy()
    if is_list and kind in "UO" and len(chosen) and names is not None:
        unknown = sorted(set(map(str, chosen)) - set(names))
        if unknown:
            raise ValueError(f"{name} has names that X has not: {unknown}.")
        mask[[list(names).index(str(one)) for one in chosen]] = True
    elif is_list and kind in "iu" and np.all((chosen >= -n_features) & (chosen < n_features)):
        mask[chosen] = True
    elif chosen.size:
        raise ValueError(
            f"{name} must be names of columns, indices below {n_features} or a mask of "
            f"{n_features} booleans; got {columns!r}."
        )
    return mask
