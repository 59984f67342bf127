"""The regressor: its parameters and what they mean."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skvbgp.base import Interval, StrOptions, VariationalRegressor
from skvbgp.gp._learner import GPLearner


class VBGPRegressor(VariationalRegressor):
    """Gaussian process regression that learns its kernel: the one to start with.

    Every place is predicted by Gaussian processes of its nearest rows; with few rows these are
    all of them, and the process is exact. The kernels are found by a greedy search over Matern,
    rational quadratic and squared exponential kernels, their products and sums, each with one
    length scale per input. Predictions average over those that matter, by a belief that follows
    how well each explains the rows around a place; the scale of the function and of the noise
    is uncertain there as well, so that intervals widen where the function is rough.

    Parameters
    ----------
    kernel : "auto", Kernel or list, default="auto"
        "auto" searches. Otherwise a kernel of :mod:`skvbgp.kernels` or scikit-learn, or a list
        of such kernels or of (name, kernel) pairs, whose free hyperparameters are learned from
        where they start, within their bounds. Length scales are in the units of X, variances
        relative to that of y.

    n_neighbors : "auto" or int, default="auto"
        Nearest rows that a prediction is made from. "auto" is 256. Up to so many rows, the
        process is exact, and predictions average over draws of the hyperparameters.

    learn_hyperparameters : bool, default=True
        Whether to learn the kernels' hyperparameters, the noise and the belief. False keeps
        them where they start, the noise at a tenth of the variance of y.

    max_iter : int, default=None
        Largest number of L-BFGS iterations that train a kernel. None is 40 for exact processes;
        for others 15 in the search, and 12 more for kernels that are kept.

    tol : float, default=1e-05
        Training of a kernel stops when the log evidence rises by less than this share of itself.

    normalize_y : bool, default=True
        Whether to work with y of zero mean and unit variance. Predictions are on y's own scale.

    warm_start : bool, default=False
        Whether a later `fit` starts from the kernels of the one before instead of searching.

    random_state : int, RandomState instance or None, default=None
        Determines which groups of rows train the kernels, and which rows judge them.

    n_jobs : int, default=None
        Number of workers that predictions are made on. None is the threads that BLAS would use.
        It changes no result.

    Attributes
    ----------
    kernels_ : list of (str, Kernel)
        Names of the kernels that predictions average over, and these with the hyperparameters
        found. Length scales are in the units of X, variances relative to that of y.

    kernel_posterior_ : ndarray of shape (n_kernels,)
        Belief in the kernels, averaged over rows.

    noise_variance_ : float
        Variance of the noise, averaged over kernels, on the squared scale of y.

    log_predictive_density_ : float
        Average log predictive density of training rows, each left out in turn, on the scale of
        y. It estimates what `predict` is worth on new rows, and compares models of the same y; a
        bound on the evidence it is not. NaN if hyperparameters are not learned.

    n_iter_ : int
        Number of kernels trained.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`.

    n_features_in_ : int
        Number of inputs.

    Notes
    -----
    `partial_fit` knows new rows at once. Hyperparameters are learned again, from all rows, whenever
    their number has doubled.

    With more rows than neighbours, ``return_cov`` gives the variances that ``return_std`` gives,
    and correlations given the rows that are near to any of the rows asked for.

    See :doc:`/theory/gp` for the model, and for what was measured.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VBGPRegressor(random_state=0).fit(X[:100], y[:100])
    >>> mean, std = model.predict(X[100:], return_std=True)
    >>> mean.shape, std.shape
    ((342,), (342,))
    """

    _parameter_constraints: dict[str, list[Any] | str] = {
        "kernel": "no_validation",  # as_kernel says what it takes
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "learn_hyperparameters": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        n_neighbors: int | str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-5,
        normalize_y: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.tol = tol
        self.normalize_y = normalize_y
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _learner(self) -> GPLearner:
        return GPLearner(
            kernel=self.kernel,
            n_neighbors=self.n_neighbors,
            learn_hyperparameters=self.learn_hyperparameters,
            max_iter=self.max_iter,
            tol=self.tol,
            normalize_y=self.normalize_y,
            n_jobs=self.n_jobs,
        )

    def summary(self) -> str:
        """Describe what has been learned in words.

        Returns
        -------
        text : str
            The kernels with the belief in them, and the noise.
        """
        check_is_fitted(self)
        order = self.kernel_posterior_.argsort()[::-1]
        lines = ["The function is believed to have"]
        lines += [f"- {self.kernel_posterior_[i]:.2f}: {self.kernels_[i][0]}" for i in order]
        noise = f"noise of standard deviation {self.noise_variance_**0.5:.3g}"
        return "\n".join([*lines, f"and {noise}."])
