"""X as all estimators take it: numbers, categories that become numbers, and sparse tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import validate_data

from skvbgp._core.collections import make_example
from skvbgp._core.linalg import Array
from skvbgp.base._categories import Categories, is_sparse, make_dense
from skvbgp.base._validation import refuse_dates, validate_numbers


class ReadsInputs:
    """The part of an estimator that makes numbers of X.

    An estimator that takes categories has the constructor parameter ``categorical_features``.
    """

    _categories: Categories | None = None  # of the last fit
    inducing_inputs: Any  # a constructor parameter of some estimators
    n_features_in_: int
    _takes_gaps: Any = False  # whether entries of X may be missing (NaN)
    #: Whether what is learned is about the columns that are read, so that a warm start keeps them.
    _learns_of_columns = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_gaps
        tags.input_tags.categorical = self._given_categories is not None
        return tags

    @property
    def _given_categories(self) -> Any:
        """What the user says which inputs are categories; None is none."""
        return getattr(self, "categorical_features", None)

    @property
    def _check_options(self) -> dict[str, Any]:
        """What scikit-learn makes of X."""
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        return {"dtype": np.float64, "order": "C", "ensure_all_finite": finite}

    def _read(self, X: Any, *, reset: bool) -> Array:
        """X as an array of numbers."""
        features = self._given_categories if reset else self._categories
        if features is None and not is_sparse(X):
            if reset and self._categories is not None:
                self._categories = self._find_categories(X)  # refuses to leave those it keeps
            return np.asarray(validate_numbers(self, X, reset=reset, **self._check_options))
        validate_data(self, X, reset=reset, skip_check_array=True)
        if is_sparse(X):
            X = make_dense(X)
        if reset:
            self._categories = self._find_categories(X)
        if self._categories is not None:
            X = self._categories.encode(X)
        X = check_array(X, estimator=self, input_name="X", **self._check_options)
        return np.asarray(X)

    def _find_categories(self, X: Any) -> Categories | None:
        """The categories of a fit to X; those of the fit before if it goes on from that."""
        new, known = Categories.of(X, self._given_categories), self._categories
        goes_on = getattr(self, "warm_start", False) and hasattr(self, "_state")
        if known is None or not (goes_on and self._learns_of_columns):
            return new
        if new is None or new.columns != known.columns:
            raise ValueError("warm_start: other inputs are categories than in the fit before.")
        return known

    def _read_inducing_inputs(self) -> Array | None:
        """The places that the parameter of this name has, if any, in the columns that are read."""
        places = self.inducing_inputs
        if places is None:
            return None
        if np.ndim(places) != 2 or 0 in np.shape(places):
            raise ValueError(
                "inducing_inputs must have the shape (n_inducing, n_features); got "
                f"{np.shape(places)}."
            )
        width, d = np.shape(places)[1], self.n_features_in_
        if width != d:
            raise ValueError(f"inducing_inputs has {width} columns, but X has {d}.")
        refuse_dates(places, "inducing_inputs", any)
        if self._categories is not None:
            places = self._categories.encode(places)
        return np.asarray(check_array(places, dtype=np.float64, input_name="inducing_inputs"))

    def _read_example(self, X: Any, *, reset: bool) -> None:
        """Check a row like those of a Dask collection, whose inputs are numbers."""
        if (self._given_categories if reset else self._categories) is not None:
            raise TypeError("categorical_features needs rows in memory, not Dask collections.")
        self._read(make_example(X, 0.0), reset=reset)

    @property
    def _owners(self) -> tuple[int, ...]:
        """By column of what is read: the input that it encodes; of numbers alone, none."""
        return () if self._categories is None else tuple(self._categories.owners.tolist())

    def _pick(self, slopes: Array) -> Array:
        """Derivatives (..., d) along inputs, NaN of categories, from those along what is read."""
        return slopes if self._categories is None else self._categories.pick(slopes)
