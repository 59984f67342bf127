"""The lower bound in the course of training."""

from typing import Any

import numpy as np

from skvbgp.inspection._drawing import axes_or_new, display_name, find_fitted_model, refuse_outputs


class LowerBoundDisplay:
    """Lower bound on the log evidence after each pass of training.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    lower_bounds : array-like of shape (n_passes,)
        The bounds, in order.
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

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.inspection import LowerBoundDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X, y)
    >>> display = LowerBoundDisplay.from_estimator(model)
    """

    def __init__(self, lower_bounds: Any, *, estimator_name: str | None = None) -> None:
        self.lower_bounds = lower_bounds
        self.estimator_name = estimator_name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **kwargs: Any
    ) -> "LowerBoundDisplay":
        """Bounds of a fitted regressor.

        Parameters
        ----------
        estimator : estimator
            Fitted, with the attribute `lower_bounds_`; maybe a pipeline or a search.
        name : str, default=None
            Label of the curve. None is the name of the regressor's class.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.plot`.

        Returns
        -------
        display : LowerBoundDisplay
        """
        model = find_fitted_model(estimator, "lower_bounds_")
        refuse_outputs(model, "lower_bounds_")
        display = cls(model.lower_bounds_, estimator_name=display_name(estimator, name))
        return display.plot(ax=ax, **kwargs)

    def plot(
        self, ax: Any = None, *, name: str | None = None, **kwargs: Any
    ) -> "LowerBoundDisplay":
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        name : str, default=None
            Label of the curve. None is `estimator_name`.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.plot`.

        Returns
        -------
        display : LowerBoundDisplay
        """
        ax = axes_or_new(ax)
        label = self.estimator_name if name is None else name
        passes = np.arange(1, len(self.lower_bounds) + 1)
        (self.line_,) = ax.plot(passes, self.lower_bounds, **{"label": label, **kwargs})
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel="Pass", ylabel="Lower bound on the log evidence")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self
