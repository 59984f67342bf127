"""Nominal against observed coverage."""

from typing import Any

import numpy as np

from skvbgp.inspection._drawing import REFERENCE_STYLE, axes_or_new, display_name, with_defaults
from skvbgp.metrics import coverage
from skvbgp.metrics._response import predict_gaussian

#: Levels of the central intervals, by default.
_LEVELS = np.linspace(0.05, 0.95, 19)


class CalibrationDisplay:
    """Share of the observations in central prediction intervals of every level.

    A calibrated regressor is on the diagonal. Below it, intervals are too narrow; above it,
    too wide. Use :meth:`from_estimator` or :meth:`from_predictions` to make one.

    Parameters
    ----------
    nominal : array-like of shape (n_levels,)
        Probabilities of the central intervals.
    observed : array-like of shape (n_levels,)
        Shares of the observations within them.
    estimator_name : str, default=None
        Label of the curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the curve, after :meth:`plot`.
    figure_ : matplotlib Figure
        Figure of the curve.
    line_ : matplotlib Line2D
        The curve.

    See Also
    --------
    skvbgp.metrics.coverage : The same at a single level.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.inspection import CalibrationDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X[:300], y[:300])
    >>> display = CalibrationDisplay.from_estimator(model, X[300:], y[300:])
    """

    def __init__(self, nominal: Any, observed: Any, *, estimator_name: str | None = None) -> None:
        self.nominal = nominal
        self.observed = observed
        self.estimator_name = estimator_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        levels: Any = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> "CalibrationDisplay":
        """Coverage of a fitted regressor on rows that it has not seen.

        Parameters
        ----------
        estimator : estimator
            Fitted, maybe a pipeline or a search; ``predict`` takes ``return_std=True``.
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.
        y : array-like of shape (n_samples,)
            Observed targets.
        levels : float or array-like of shape (n_levels,), default=None
            Probabilities of the central intervals. None is 0.05, 0.1, ..., 0.95.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        name : str, default=None
            Label of the curve. None is the name of the regressor's class.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : CalibrationDisplay
        """
        return cls.from_predictions(
            y,
            *predict_gaussian(estimator, X),
            levels=levels,
            sample_weight=sample_weight,
            name=display_name(estimator, name),
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        mean: Any,
        std: Any,
        *,
        weights: Any = None,
        levels: Any = None,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> "CalibrationDisplay":
        """Coverage of predictive distributions.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Observed targets.
        mean : array-like of shape (n_samples,) or (n_samples, n_components)
            Predictive means, or those of a mixture's components.
        std : array-like of the same shape
            Predictive standard deviations.
        weights : array-like of shape (n_components,) or (n_samples, n_components), default=None
            Weights of the components. None is equal weights.
        levels : float or array-like of shape (n_levels,), default=None
            Probabilities of the central intervals. None is 0.05, 0.1, ..., 0.95.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        name : str, default=None
            Label of the curve.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : CalibrationDisplay
        """
        nominal = _LEVELS if levels is None else np.sort(np.atleast_1d(levels))
        observed = coverage(
            y_true, mean, std, level=nominal, weights=weights, sample_weight=sample_weight
        )
        return cls(nominal, observed, estimator_name=name).plot(ax=ax, **kwargs)

    def plot(
        self, ax: Any = None, *, name: str | None = None, ref_line: bool = True, **kwargs: Any
    ) -> "CalibrationDisplay":
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        name : str, default=None
            Label of the curve. None is `estimator_name`.
        ref_line : bool, default=True
            Whether to draw the diagonal of perfect calibration.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.plot` for the curve.

        Returns
        -------
        display : CalibrationDisplay
        """
        ax = axes_or_new(ax)
        reference = "Perfectly calibrated"
        if ref_line and reference not in ax.get_legend_handles_labels()[1]:
            ax.plot([0.0, 1.0], [0.0, 1.0], label=reference, **REFERENCE_STYLE)
        label = self.estimator_name if name is None else name
        style = with_defaults({"marker": "o", "markersize": 4.0, "label": label}, kwargs)
        (self.line_,) = ax.plot(self.nominal, self.observed, **style)
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
        ax.set(xlabel="Level of the central interval", ylabel="Observed coverage")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left")
        self.ax_, self.figure_ = ax, ax.figure
        return self
