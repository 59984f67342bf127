"""DecoupledGPRegressor."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import Tags, check_random_state

from skvbgp._core.linalg import Array
from skvbgp.base import (
    CATEGORIES,
    FORGETTING_OR_WINDOW,
    LEARNING,
    START_ROWS,
    DescribesFunction,
    FillsGaps,
    ForgetfulRegressor,
    Interval,
    StrOptions,
    keep,
)
from skvbgp.decoupled._learner import DecoupledLearner

#: Counts beyond it are told apart more finely than steps can follow.
_MAX_COUNT = 1e8
#: What the classifier takes, too.
CONSTRAINTS: dict[str, Any] = {
    "n_mean_basis": [Interval(Integral, 0, None, closed="left")],
    "n_cov_basis": [Interval(Integral, 1, None, closed="left")],
    "parametrization": [StrOptions({"orthogonal", "hybrid", "decoupled"})],
    "kernel": "no_validation",  # as_kernel says what it takes
    **CATEGORIES,
    "generalized_length_scales": ["boolean", StrOptions({"per_input"})],
    "basis_growth": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "replay": [
        Interval(Integral, 0, 1, closed="left"),
        Interval(Integral, START_ROWS, None, closed="left"),
    ],
    **LEARNING,
}


class DecoupledGPRegressor(FillsGaps, DescribesFunction, ForgetfulRegressor):
    """Gaussian process regression with separate bases for the mean and the covariance.

    The posterior mean has a basis of its own, at a cost linear in its size, so that it may
    be many times larger than that of the covariance, whose cost is cubic. Everything is
    learned online, from mini-batches: the model starts from the first batch and grows with
    the data, in `fit` as in `partial_fit` [Cheng2017]_.

    With ``likelihood="gaussian"``, X may have missing entries (NaN), in training and in prediction:
    rows that have them have more noise, by slopes that are learned before. With ``replay=0``, which
    keeps no rows to learn them from, it may not.

    Parameters
    ----------
    n_mean_basis : int, default=2000
        Largest number of points of the mean's basis. The cost of a step is linear in it.

    n_cov_basis : int, default=200
        Largest number of points of the covariance's basis. The cost of a step is cubic in it.

    parametrization : {"orthogonal", "hybrid", "decoupled"}, default="orthogonal"
        "hybrid" has a conventional sparse Gaussian process on the covariance's basis, with
        natural gradients, and adds the mean's basis to its mean. "orthogonal" is the same
        family in better coordinates: the mean's basis acts on what the covariance's basis
        cannot express [Salimbeni2018]_. "decoupled" shares nothing between the two and is
        trained by Adam alone.

    kernel : kernel, default=None
        Prior kernel, of :mod:`skvbgp.kernels` or scikit-learn, over the inputs as they are
        given, and on the squared scale of the normalised y. None is a squared
        exponential with one length scale per input, which have a weak prior around the
        median distance of the first rows. Training starts from the hyperparameters that
        suit an exact Gaussian process of up to 512 rows best; for a kernel that is given,
        the search for them begins at its own. With noise that is learned, it has no
        :class:`~skvbgp.kernels.White`.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale. Missing values are a category; what `fit` has not
        seen is as far from all others. A stream, and `warm_start`, keeps the categories of its
        first fit. None is no input.

    generalized_length_scales : bool or "per_input", default=True
        Whether each basis point has a learned multiplier of the length scales: one for all
        inputs, or one for each ("per_input"), at a higher cost. Only for the default kernel.

    basis_growth : int, default=128
        Largest number of points that a mini-batch (a call of `partial_fit`) adds to each
        basis, until they have their sizes. New points are rows of it.

    likelihood : {"gaussian", "student_t", "poisson"}, default="gaussian"
        Distribution of y given the latent function f: Gaussian noise; noise of Student's
        distribution with four degrees of freedom, against outliers; or counts, up to 1e8, of
        which f is the logarithm of the rate. What is said of f then, with ``include_noise=False``,
        by `sample_function` and by `predict_gradient`, is of that logarithm, not on the scale of y.
        `partial_fit` and `warm_start` refuse to go on with another one.

    learn_hyperparameters : bool, default=True
        False keeps the kernel as it is given (or at the median distance), the noise and
        the basis points at their start, and only learns the coefficients of the mean and
        the covariance.

    max_iter : int, default=None
        Largest number of passes over the data. None is as many as visit about a million rows, but
        at least two and at most 200. Up to `n_cov_basis` rows (and 512), all of which become points
        of the covariance's basis, a few are enough with Gaussian noise that is learned, and no more
        are made, but for parametrization="decoupled" and ``replay=0``.

    batch_size : int, default=1024
        Rows in a mini-batch.

    learning_rate : float, default=0.05
        First step size of Adam. It falls to zero along a cosine, within each call.

    tol : float, default=1e-5
        Stop when the lower bound rises by less than this share of itself from one average
        over 100 steps to the next.

    normalize_y : bool, default=True
        Whether to work with y of zero mean and unit variance, for Student's likelihood after
        outliers have been cut off. Everything that is returned is on y's own scale. Counts
        are never normalised.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the function
        all from before. A whole number from 2 on is how many of the newest rows are known, all of
        which count alike. With either, `partial_fit` keeps the rows that count, whatever `replay`
        says, and is a fit to these, as long as it may take. In `fit` all rows count alike. 1
        forgets nothing.

    replay : int, default=50000
        Largest number of rows that are kept for `partial_fit`, a uniform sample of those so far:
        at least 32, or 0. Without rows, the posterior of a call is the prior of the next one, and
        the kernel and the basis points, though more may join, are those of the first call that
        has seen 32 rows. The first call decides for the whole stream.

    warm_start : bool, default=False
        Whether `fit`, and `partial_fit` with `forgetting`, starts from the result of the fit
        before, whose kernel and parametrization it then keeps.

    random_state : int, RandomState instance or None, default=None
        Determines mini-batches and basis points.

    Attributes
    ----------
    kernel_ : kernel
        Learned prior kernel, on the squared scale of y.

    mean_basis_ : ndarray of shape (n_mean_basis, n_features)
        Points of the mean's basis, in the space of X. With categories, in columns for the numbers,
        then for each category, then for unknown ones.

    cov_basis_ : ndarray of shape (n_cov_basis, n_features)
        Points of the covariance's basis, in the space of X. With categories, in columns for the
        numbers, then for each category, then for unknown ones.

    noise_variance_ : float
        Variance of the noise, on the squared scale of y. Not with ``likelihood="poisson"``.

    lower_bound_ : float
        Last of `lower_bounds_`.

    lower_bounds_ : list of float
        Estimates of the variational lower bound on log p(y), with every constant: one for
        each pass of the last fit, averaged over its mini-batches, and one for each later
        `partial_fit` (10,000 at most); with ``replay=0``, the sum of the last one and of an
        estimate for the new rows, given those before.

    feature_importances_ : ndarray of shape (n_features,)
        Mean squared derivative of the predictive mean of the latent function, times the variance of
        the input, over at most 1,000 of the rows that `replay` keeps or else the points of the
        mean's basis; with a sum of one, or all zero where predictions are constant. Of several
        outputs, the average. It is computed when it is asked for.

    feature_importances_std_ : ndarray of shape (n_features,)
        Zero: the hyperparameters have values and no distribution.

    n_iter_ : int
        Number of passes of the last fit.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    n_outputs_ : int
        Number of outputs. Of several ones, every attribute that describes a model is an array, of
        numbers, or a list with one entry for each, and `n_iter_` is the sum.

    References
    ----------
    .. [Cheng2017] C.-A. Cheng and B. Boots, "Variational inference for Gaussian process
       models with linear complexity", NIPS 2017, arXiv:1711.10127.

    .. [Salimbeni2018] H. Salimbeni, C.-A. Cheng, B. Boots and M. Deisenroth, "Orthogonally
       decoupled variational Gaussian processes", NeurIPS 2018, arXiv:1809.08820.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import DecoupledGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DecoupledGPRegressor(n_cov_basis=20, max_iter=50, random_state=0)
    >>> model = model.fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> mean.shape, std.shape
    ((42,), (42,))
    """

    _parameter_constraints: dict = {
        **CONSTRAINTS,
        "likelihood": [StrOptions({"gaussian", "student_t", "poisson"})],
        "normalize_y": ["boolean"],
        **FORGETTING_OR_WINDOW,
    }

    def __init__(
        self,
        n_mean_basis: int = 2000,
        n_cov_basis: int = 200,
        *,
        parametrization: str = "orthogonal",
        kernel: Any = None,
        categorical_features: Any = None,
        generalized_length_scales: bool | str = True,
        basis_growth: int = 128,
        likelihood: str = "gaussian",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 1024,
        learning_rate: float = 0.05,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        replay: int = 50_000,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.likelihood == "poisson"
        return tags

    @property
    def _takes_gaps(self) -> bool:
        return self.likelihood == "gaussian" and self.replay > 0  # or no row may be kept

    def _learner(self) -> DecoupledLearner:
        return DecoupledLearner.of(self, owners=self._owners)

    def _check_collections(self) -> None:
        if self.likelihood == "poisson":
            raise TypeError('likelihood="poisson" needs rows in memory, not Dask collections.')

    def _check_known_noise(self) -> None:
        if self.likelihood != "gaussian":
            raise ValueError(
                'y_var needs likelihood="gaussian": variances do not add to what '
                f"likelihood={self.likelihood!r} says of y."
            )

    def _check_targets(self, y: Any) -> None:
        if self.likelihood == "poisson" and (np.any(y < 0.0) or np.any(y != np.round(y))):
            raise ValueError('likelihood="poisson" needs y of non-negative whole numbers.')
        if self.likelihood == "poisson" and np.max(y, initial=0.0) > _MAX_COUNT:
            raise ValueError(
                f'likelihood="poisson" takes counts up to {_MAX_COUNT:.0e}. Their logarithms can '
                'be learned with likelihood="gaussian".'
            )

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True
    ) -> Array:
        rng = check_random_state(random_state)
        f = super().sample_y(X, n_samples, rng, include_noise=False)
        if not include_noise:
            return f
        posterior = self._posterior()
        if self.n_outputs_ == 1:
            return posterior.sample(f, rng)
        draws = [one.sample(f[:, j], rng) for j, one in enumerate(posterior.outputs)]
        return np.stack(draws, axis=1)
