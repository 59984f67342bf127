"""Errors about the user's X and y that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

_MAKE_NUMBERS = (
    "Make numbers of dates and durations, such as (dates - dates[0]) / np.timedelta64(1, 'D')."
)
#: What the errors of scikit-learn and NumPy leave open.
_ADVICE = {
    "Input X contains NaN": (
        "VBGPClassifier, EPDTCClassifier, HybridGPLVM and, unless n_inducing is a number, "
        "VBGPRegressor take rows with missing entries."
    ),
    "Input y contains NaN": "Leave out the rows in which y is not known.",
    "does not contain any features": "One row has two dimensions as well: df.iloc[[0]], or X[:1].",
    "'<' not supported": "Labels are all strings or all numbers, and known of every row.",
    "string to float": (
        "If X has strings, `categorical_features` of VBGPRegressor says which inputs they are "
        "(\"from_dtype\": those of a DataFrame after astype('category')); other estimators need "
        "numbers. If y has strings, it is for a classifier."
    ),
} | dict.fromkeys(["DateTime64", "TimeDelta64", "'Time", "'date", "'time"], _MAKE_NUMBERS)


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


def what_is_finite(estimator: Any) -> bool | str:
    """scikit-learn's ``ensure_all_finite``: the tag says whether entries of X may be missing."""
    return "allow-nan" if get_tags(estimator).input_tags.allow_nan else True


def find_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of some objects are None, NaN or pandas' NA, which says of nothing what it equals."""
    equal = np.equal(values, values, dtype=object)
    known = [
        value is not None and isinstance(same, bool | np.bool_) and bool(same)
        for value, same in zip(values.flat, equal.flat, strict=True)
    ]
    return ~np.array(known, dtype=bool).reshape(values.shape)


def refuse_dates(values: Any, name: str = "X") -> None:
    """Months as numbers differ from the same months as days, which nobody would notice."""
    types: Any = getattr(values, "dtypes", getattr(values, "dtype", None))  # of columns, or one
    kinds = {getattr(kind, "kind", None) for kind in np.ravel(types)}
    if (kinds and kinds <= {"M", "m"}) or _lists_dates(values):
        raise ValueError(
            f"{name} has dates or durations, whose numbers depend on their unit. {_MAKE_NUMBERS}"
        )


def _lists_dates(values: Any) -> bool:
    """Whether the first row of lists or objects has NumPy's dates, which would become numbers."""
    is_object = isinstance(values, np.ndarray) and values.dtype.kind == "O" and values.ndim > 0
    if not (isinstance(values, list | tuple) or is_object) or not len(values):
        return False
    entries = values[0] if isinstance(values[0], list | tuple | np.ndarray) else [values[0]]
    return any(isinstance(entry, np.datetime64 | np.timedelta64) for entry in entries)
