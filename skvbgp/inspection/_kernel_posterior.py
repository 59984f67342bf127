"""Bar chart of the belief about the kernel."""

from typing import Any

import numpy as np

from skvbgp.inspection._drawing import axes_or_new, find_fitted_model, refuse_outputs


class KernelPosteriorDisplay:
    """Bar chart of the posterior probabilities of kernels.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    names : sequence of str
        Names of the kernels.
    posterior : array-like of shape (n_kernels,)
        Their probabilities.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the chart, after :meth:`plot`.
    figure_ : matplotlib Figure
        Figure of the chart.
    bars_ : matplotlib BarContainer
        The bars, from the top.

    Examples
    --------
    >>> from skvbgp.inspection import KernelPosteriorDisplay
    >>> display = KernelPosteriorDisplay(["SE", "LIN"], [0.9, 0.1]).plot()
    """

    def __init__(self, names: Any, posterior: Any) -> None:
        self.names = names
        self.posterior = posterior

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, max_kernels: int | None = 10, ax: Any = None, **kwargs: Any
    ) -> "KernelPosteriorDisplay":
        """Chart of a fitted estimator that has a belief about kernels.

        Parameters
        ----------
        estimator : VBGPRegressor, VBGPClassifier or VBKSRegressor
            Fitted; maybe at the end of a pipeline, or in a search.
        max_kernels : int or None, default=10
            Show at most so many kernels, those of the highest belief. None shows all.
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : KernelPosteriorDisplay
        """
        model = find_fitted_model(estimator, "kernel_posterior_")
        refuse_outputs(model, "kernel_posterior_")
        posterior = np.asarray(model.kernel_posterior_)
        order = np.argsort(-posterior, kind="stable")[:max_kernels]
        names = [model.kernels_[i][0] for i in order]
        return cls(names, posterior[order]).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> "KernelPosteriorDisplay":
        """Draw the chart.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a figure.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : KernelPosteriorDisplay
        """
        ax = axes_or_new(ax)
        places = np.arange(len(self.names))
        self.bars_ = ax.barh(places, self.posterior, **kwargs)
        ax.set(yticks=places, yticklabels=list(self.names), xlim=(0.0, 1.0))
        ax.set_xlabel("Belief")
        ax.invert_yaxis()
        self.ax_, self.figure_ = ax, ax.figure
        return self
