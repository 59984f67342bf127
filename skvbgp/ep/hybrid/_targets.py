"""What the latent-variable model makes of y: class labels, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skvbgp._core.linalg import Array
from skvbgp.base import ForgetsLabels, Labels, fit_method, read_classes, validate_numbers

#: Numbers that more than so many of differ are no classes, where that is to be told from them.
_MOST_CLASSES = 32


class TakesLabels(ForgetsLabels):
    """Reads rows with labels, rows without, and those in front of another estimator."""

    supervised: bool | str
    missing_label: Any
    _fit: Callable[..., Any]
    _state: Any
    _leaves_out_y = False  # whether the first call has found that y is no class

    @fit_method
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model, and infer the latent variables of its rows as :meth:`transform` does.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as :meth:`fit` takes them.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Class labels. With ``supervised="auto"`` and without `missing_label`, what is no class
            is left out, here and in each later `partial_fit`.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
            Means of the latent variables.
        """
        return self._fit(X, y, sample_weight=sample_weight, as_step=True).transform(X)

    def _read_rows(
        self,
        X: Any,
        y: Any,
        *,
        reset: bool,
        as_step: bool = False,
        streams: bool = False,
        classes: Any = None,
    ) -> tuple[Array, Labels]:
        """Rows and labels, in a stream of these ``classes``."""
        if reset:
            may_differ = as_step and self.supervised == "auto" and self.missing_label is None
            self._leaves_out_y = may_differ and not _may_be_class(y)
        known = None if reset else self._state.y.classes
        options: dict[str, Any] = {
            "dtype": np.float64,
            "order": "C",
            "ensure_all_finite": "allow-nan",
            "ensure_min_samples": 2 if reset else 1,
        }
        if not self.supervised or (self.supervised == "auto" and self._leaves_out_y):
            y = None
        if y is None:
            if known is not None and len(known):
                raise ValueError("The first call of partial_fit had labels, this one has none.")
            X = validate_numbers(self, X, reset=reset, **options)
            return X, Labels(np.empty(0), np.full(len(X), -1))
        if known is not None and not len(known):
            raise ValueError("The first call of partial_fit had no labels, this one has.")
        if self.missing_label is None:
            X, y = validate_numbers(self, X, y, reset=reset, **options)
        else:
            X = validate_numbers(self, X, reset=reset, **options)
            check_consistent_length(X, y)
        classes = read_classes(classes, known) if streams else None
        try:
            if self.missing_label is None:
                return X, Labels.of(y, classes)
            return X, Labels.of_some(y, self.missing_label, classes)
        except ValueError as error:
            error.add_note("If y is no class, supervised=False leaves it out.")
            raise


def _may_be_class(y: Any) -> bool:
    """Whether a target looks like class labels; numbers that are missing say nothing."""
    values = np.asarray(y)
    if values.dtype.kind not in "fiu":
        return True
    if values.ndim == 2 and values.shape[1] > 1:
        return False
    different = np.unique(values[~np.isnan(values)])
    return len(different) <= _MOST_CLASSES and bool(np.all(different == np.trunc(different)))
