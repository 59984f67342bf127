"""Prediction intervals and what was observed."""

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d

from skvbgp._core.mixture import NormalMixture
from skvbgp.inspection._drawing import REFERENCE_STYLE, axes_or_new, display_name, with_defaults
from skvbgp.metrics import prediction_interval
from skvbgp.metrics._response import predict_gaussian


class PredictionIntervalDisplay:
    """Observations and their prediction intervals.

    Along one input the intervals are a band around the predictive mean; without one, they
    are bars over the predictive mean itself. Observations outside are red. Use
    :meth:`from_estimator` or :meth:`from_predictions` to make one.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        Observed targets.
    mean : ndarray of shape (n_samples,)
        Predictive means.
    lower, upper : ndarray of shape (n_samples,)
        Ends of the intervals.
    x : ndarray of shape (n_samples,), default=None
        Places on the horizontal axis, such as times. None is the predictive means.
    level : float, default=0.95
        Probability of the intervals, for the legend.
    estimator_name : str, default=None
        Title.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the picture, after :meth:`plot`.
    figure_ : matplotlib Figure
        Figure of the picture.
    scatter_ : matplotlib PathCollection
        The observations.
    intervals_ : matplotlib FillBetweenPolyCollection or LineCollection
        The band, or the bars.
    line_ : matplotlib Line2D
        The predictive mean.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.inspection import PredictionIntervalDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X[:300], y[:300])
    >>> display = PredictionIntervalDisplay.from_estimator(model, X[300:], y[300:])
    """

    def __init__(
        self,
        y_true: Any,
        mean: Any,
        lower: Any,
        upper: Any,
        *,
        x: Any = None,
        level: float = 0.95,
        estimator_name: str | None = None,
    ) -> None:
        self.y_true = y_true
        self.mean = mean
        self.lower = lower
        self.upper = upper
        self.x = x
        self.level = level
        self.estimator_name = estimator_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        level: float = 0.95,
        subsample: int | None = 1000,
        random_state: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> "PredictionIntervalDisplay":
        """Intervals of a fitted regressor; along the input if there is just one.

        Parameters
        ----------
        estimator : estimator
            Fitted, maybe a pipeline or a search; ``predict`` takes ``return_std=True``.
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.
        y : array-like of shape (n_samples,)
            Observed targets.
        level : float, default=0.95
            Probability of the intervals.
        subsample : int or None, default=1000
            Draw at most so many rows, chosen at random. None draws all.
        random_state : int, RandomState instance or None, default=None
            Determines the rows.
        name : str, default=None
            Title. None is the name of the regressor's class.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        x = None
        if np.ndim(X) == 2 and np.shape(X)[1] == 1:
            x = np.ravel(X.toarray() if issparse(X) else X)
        return cls.from_predictions(
            y,
            *predict_gaussian(estimator, X),
            x=x,
            level=level,
            subsample=subsample,
            random_state=random_state,
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
        x: Any = None,
        level: float = 0.95,
        subsample: int | None = 1000,
        random_state: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> "PredictionIntervalDisplay":
        """Intervals of predictive distributions.

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
        x : array-like of shape (n_samples,), default=None
            Places on the horizontal axis, such as times. None is the predictive means.
        level : float, default=0.95
            Probability of the intervals.
        subsample : int or None, default=1000
            Draw at most so many rows, chosen at random. None draws all.
        random_state : int, RandomState instance or None, default=None
            Determines the rows.
        name : str, default=None
            Title.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        y_true = column_or_1d(y_true)
        centre = NormalMixture.of(mean, std, weights).expectation()
        columns = [y_true, centre, *prediction_interval(mean, std, level=level, weights=weights)]
        if x is not None:
            columns.append(column_or_1d(x))
        check_consistent_length(*columns)
        if subsample is not None and subsample < len(y_true):
            rng = check_random_state(random_state)
            rows = rng.choice(len(y_true), subsample, replace=False)
            columns = [column[rows] for column in columns]
        x = None if x is None else columns.pop()
        return cls(*columns, x=x, level=level, estimator_name=name).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
        interval_kwargs: dict[str, Any] | None = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> "PredictionIntervalDisplay":
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        name : str, default=None
            Title. None is `estimator_name`.
        scatter_kwargs : dict, default=None
            Passed to `matplotlib.axes.Axes.scatter` for the observations.
        interval_kwargs : dict, default=None
            Passed to `matplotlib.axes.Axes.fill_between` for a band, or `vlines` for bars.
        line_kwargs : dict, default=None
            Passed to `matplotlib.axes.Axes.plot` for the predictive mean.

        Returns
        -------
        display : PredictionIntervalDisplay
        """
        ax = axes_or_new(ax)
        x = self.mean if self.x is None else self.x
        order = np.argsort(x, kind="stable")
        x, y, mean, lower, upper = (
            np.asarray(a)[order] for a in (x, self.y_true, self.mean, self.lower, self.upper)
        )
        label = f"{100.0 * self.level:g} % interval"
        if self.x is None:
            style = {"color": "C0", "alpha": 0.3, "linewidth": 1.0, "label": label}
            self.intervals_ = ax.vlines(x, lower, upper, **with_defaults(style, interval_kwargs))
            style = {**REFERENCE_STYLE, "label": "Predictive mean"}
            ax.set(xlabel="Predicted", ylabel="Observed")
        else:
            style = {"color": "C0", "alpha": 0.2, "linewidth": 0.0, "label": label}
            self.intervals_ = ax.fill_between(
                x, lower, upper, **with_defaults(style, interval_kwargs)
            )
            style = {"color": "C0", "label": "Predictive mean"}
            ax.set_ylabel("Target")
        (self.line_,) = ax.plot(x, mean, **with_defaults(style, line_kwargs))
        outside = (y < lower) | (y > upper)
        order = np.argsort(outside, kind="stable")  # the legend has the colour of the first
        style = {"s": 8.0, "zorder": 3, "label": "Observation"} | (scatter_kwargs or {})
        if "c" not in style:  # Matplotlib takes one of the two
            style = {"color": np.where(outside, "C3", "0.2")[order]} | style
        self.scatter_ = ax.scatter(x[order], y[order], **style)
        title = self.estimator_name if name is None else name
        if title is not None:
            ax.set_title(title)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
