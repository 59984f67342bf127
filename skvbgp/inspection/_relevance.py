"""Which inputs matter: inverse length scales or importances, with what is uncertain in them."""

from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.pipeline import Pipeline

from skvbgp.inspection._drawing import (
    REFERENCE_STYLE,
    axes_or_new,
    find_fitted_model,
    refuse_outputs,
    with_defaults,
)
from skvbgp.metrics._response import find_best_estimator


class RelevanceDisplay:
    """Relevance of the inputs with posterior intervals, the largest at the top.

    That is an inverse length scale, or an importance: an input where it is near zero plays no part.
    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    mean : array-like of shape (n_features,)
        Posterior means.
    std : array-like of shape (n_features,)
        Posterior standard deviations.
    feature_names : sequence of str
        Names of the inputs.
    label : str, default="Inverse length scale"
        Label of the horizontal axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the chart, after :meth:`plot`.
    figure_ : matplotlib Figure
        Figure of the chart.
    errorbar_ : matplotlib ErrorbarContainer
        The means and their intervals, from the top.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.inspection import RelevanceDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(model, X)
    """

    def __init__(
        self, mean: Any, std: Any, feature_names: Any, *, label: str = "Inverse length scale"
    ) -> None:
        self.mean = mean
        self.std = std
        self.feature_names = feature_names
        self.label = label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        feature_names: Any = None,
        max_features: int | None = 20,
        ax: Any = None,
        **kwargs: Any,
    ) -> "RelevanceDisplay":
        """Inverse length scales or importances of a fitted regressor.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `inverse_length_scale_mean_` and `inverse_length_scale_var_`, such as
            :class:`~skvbgp.VBDTCRegressor`, or else with `feature_importances_` and
            `feature_importances_std_`, as :class:`~skvbgp.VBGPRegressor` is; maybe at the end of
            a pipeline, or in a search.
        X : array-like of shape (n_samples, n_features), default=None
            Rows whose standard deviations the inverse length scales are multiplied by, so
            that inputs in different units compare. None leaves them in units of one over the
            input. Importances have no unit, and are the same with X and without.
        feature_names : sequence of str, default=None
            Names of the regressor's inputs. None is those of the data frame that it was
            fitted on, or those that the pipeline makes, or x0, x1, ...
        max_features : int or None, default=20
            Show at most so many inputs, those of the largest mean. None shows all.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : RelevanceDisplay
        """
        whole = find_best_estimator(estimator)
        before = whole[:-1] if isinstance(whole, Pipeline) and len(whole) > 1 else None
        model = find_fitted_model(
            estimator, "inverse_length_scale_mean_", "feature_importances_std_"
        )
        if not hasattr(model, "inverse_length_scale_mean_"):
            mean, std = _read_importances(model)
            label = "Share in the variation of predictions"
        else:
            refuse_outputs(model, "inverse_length_scale_mean_")
            mean, std = model.inverse_length_scale_mean_, np.sqrt(model.inverse_length_scale_var_)
            label = "Inverse length scale"
            if X is not None:
                X = X if before is None else before.transform(X)
                if np.shape(X)[1:] != mean.shape:
                    raise ValueError(
                        f"X has shape {np.shape(X)}, but there are {len(mean)} inputs."
                    )
                spread = _measure_spread(model, X)
                mean, std = mean * spread, std * spread
                label += " × spread of the input"
        if feature_names is None:
            feature_names = _find_names(model, before)
        if len(feature_names) != len(mean):
            raise ValueError(f"There are {len(mean)} inputs, but {len(feature_names)} names.")
        order = np.argsort(-mean, kind="stable")[:max_features]
        names = [str(feature_names[i]) for i in order]
        return cls(mean[order], std[order], names, label=label).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, level: float = 0.95, **kwargs: Any) -> "RelevanceDisplay":
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        level : float, default=0.95
            Posterior probability of the intervals.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.errorbar`.

        Returns
        -------
        display : RelevanceDisplay
        """
        ax = axes_or_new(ax)
        places = np.arange(len(self.feature_names))
        half_width = ndtri(0.5 + 0.5 * level) * np.asarray(self.std)
        style = with_defaults({"fmt": "o", "markersize": 5.0, "elinewidth": 2.0}, kwargs)
        ax.axvline(0.0, **REFERENCE_STYLE)
        self.errorbar_ = ax.errorbar(self.mean, places, xerr=half_width, **style)
        ax.set(yticks=places, yticklabels=list(self.feature_names))
        ax.set_xlabel(f"{self.label}, {100.0 * level:g} % interval")
        ax.invert_yaxis()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _read_importances(model: Any) -> Any:
    """Means and standard deviations (n_features,), which a regressor of ours measures at once."""
    if hasattr(model, "_posterior"):
        return model._posterior().relevance
    return model.feature_importances_, model.feature_importances_std_


def _measure_spread(model: Any, X: Any) -> Any:
    """Standard deviations (n_features,) of the inputs, of categories between their codes."""
    variance = np.nanvar(model._read(X, reset=False), axis=0)
    return np.sqrt(variance if model._categories is None else np.bincount(model._owners, variance))


def _find_names(model: Any, before: Pipeline | None) -> Any:
    """Names of the inputs of the model."""
    if hasattr(model, "feature_names_in_"):
        return model.feature_names_in_
    if before is not None:
        return before.get_feature_names_out()
    return [f"x{i}" for i in range(model.n_features_in_)]
