"""The latent-variable model as an estimator."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted

from skvbgp._core.collections import refuse_collections
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.parallel import parallel_map
from skvbgp._core.scaling import check_near
from skvbgp.base import (
    FORGETTING_OR_WINDOW,
    Interval,
    PredictsClasses,
    StrOptions,
    VariationalEstimator,
    choose_columns,
    fit_method,
    keep,
    reading,
    validate_numbers,
)
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import LIKELIHOODS
from skvbgp.ep.hybrid._learner import HybridLearner
from skvbgp.ep.hybrid._posterior import HybridPosterior
from skvbgp.ep.hybrid._targets import TakesLabels

#: Rows of one task of a prediction.
_TASK_ROWS = 1024
#: Beyond it, slopes of the bound have squares that no floating-point number can be.
_LARGEST_PRIOR_WEIGHT = 1e100


class HybridGPLVM(
    ClassNamePrefixFeaturesOutMixin,
    PredictsClasses,
    ClassifierMixin,
    TakesLabels,
    TransformerMixin,
    VariationalEstimator,
):
    r"""Latent-variable model of continuous and binary columns and class labels.

    All columns of X and the labels are Gaussian processes of a few latent variables x_i that
    each row has, q(x_i) = N(mu_i, diag(S_i)): continuous columns with Gaussian noise, binary
    columns and the labels (one versus the rest) with a logistic or probit likelihood and sites of
    expectation propagation. Kernel, inducing inputs, noise and the map from a row's entries to
    its latents maximise a joint lower bound [Andrade2014]_. Entries of X may be missing (NaN),
    in training and later.

    Parameters
    ----------
    n_components : int, default=2
        Number of latent variables.

    n_inducing : int, default=20
        Number of inducing inputs, at most that of distinct rows. Cost grows with its square;
        more latent variables may want more.

    binary_columns : array-like, default=None
        Columns of X that have at most two values: their indices, their names or a mask. None
        treats every column as continuous.

    latents : {"map", "free"}, default="map"
        "map" makes the latents of a row a function of its entries, the same in training and
        prediction. "free" gives each training row a mean and variances of its own; those of a
        new row maximise its bound, with all else fixed. For labels, "free" wants
        ``prior_weight=1``: with less, the latents of training rows move to those of their class,
        which new rows cannot do.

    likelihood : {"logistic", "probit"}, default="logistic"
        Likelihood of the labels and of binary columns. The logistic function bears a row on the
        wrong side better than the probit, which is what [Andrade2014]_ has.

    supervised : {"auto", True, False}, default="auto"
        Whether `y` holds class labels. False leaves `y` out, whatever it is. "auto" is True, but
        in front of another estimator, where `fit_transform` is called, a `y` that is no class is
        left out, so that latents in front of a regressor are those of X alone: that is one of
        several columns, of fractions, or of more than 32 different numbers. With `missing_label`,
        "auto" always takes `y` for labels.

    missing_label : object, default=None
        Value of `y` where the label is not known, such as -1 or NaN: such rows tell of X alone.
        NaN and pandas' NA are whatever is missing. None is without unknown labels.

    prior_weight : float, default=0.005
        Weight of the generative part, the model of X, against the discriminative part, the
        model of the labels given the latents. 1 is the joint model; less makes the latents
        tell more about the labels and less about X. Without labels it has no effect.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out. A whole number from 2 on is how many of the
        newest rows are known, all of which count alike. With either, `partial_fit` is a fit to the
        rows that count, with a latent space of its own. In `fit` all rows count alike. 1 forgets
        nothing.

    max_iter : int, default=200
        Largest number of L-BFGS iterations.

    tol : float, default=1e-5
        Stop when the bound rises by less than this share of itself per iteration.

    random_state : int, RandomState instance or None, default=None
        Determines k-means, and the start of more latent variables than X has columns.

    n_jobs : int, default=None
        Workers for many rows in `transform`, `predict_proba` and `impute`. It changes no
        result.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted; only after a fit with labels.

    lower_bound_ : float
        The joint bound of the training data, its generative part times `prior_weight`: an
        approximation where there are labels or binary columns.

    objective_values_ : ndarray of shape (n_iterations,)
        Bound, with the log prior of a map to the latents, after each iteration. It may fall
        where sites have been brought up to date.

    length_scale_ : ndarray of shape (n_components,)
        Length scales of the kernel over the latent space.

    relevance_ : ndarray of shape (n_components,)
        Variance of each latent variable over the training rows, in squared length scales: near 0
        where automatic relevance determination has switched it off.

    projection_ : ndarray of shape (n_features, n_components), or None
        Change of the latent means with the entries of a row, in units of the columns' spread;
        None if the latents are free.

    inducing_inputs_ : ndarray of shape (n_inducing, n_components)
        Inducing inputs in the latent space.

    noise_variance_ : ndarray of shape (n_features,)
        Variance of the noise of each continuous column, in squared units of X; NaN for binary
        ones.

    n_iter_ : int
        Number of L-BFGS iterations.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of columns of X.

    References
    ----------
    .. [Andrade2014] R. Andrade-Pacheco, J. Hensman, M. Zwiessele and N. D. Lawrence, "Hybrid
       discriminative-generative approach with Gaussian processes", AISTATS 2014, supplement.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skvbgp import HybridGPLVM
    >>> X, y = load_iris(return_X_y=True)
    >>> X[::3, 2] = np.nan  # missing entries
    >>> model = HybridGPLVM(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.predict_proba(X[:2]).round(1)
    array([[1., 0., 0.],
           [1., 0., 0.]])
    >>> bool(abs(model.impute(X[:1])[0, 2] - 1.4) < 0.3)  # what was hidden
    True

    A stream may know its newest rows only:

    >>> stream = HybridGPLVM(forgetting=60, random_state=0)
    >>> for rows in np.random.RandomState(0).permutation(150).reshape(3, 50):
    ...     stream = stream.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    >>> stream.predict_proba(X[:2]).round(1)
    array([[1., 0., 0.],
           [1., 0., 0.]])
    >>> stream.n_samples_seen_
    150
    """

    _doc_link_template = VariationalEstimator._doc_link_template.replace(
        "{estimator_module}", "skvbgp.ep"
    )

    # With scikit-learn's metadata routing, a pipeline asks its last step alone.
    __metadata_request__transform = {"return_std": False}
    __metadata_request__inverse_transform = {"return_std": False}

    _parameter_constraints: dict[str, list[Any] | str] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "binary_columns": ["array-like", None],
        "latents": [StrOptions({"map", "free"})],
        "likelihood": [StrOptions({"logistic", "probit"})],
        "supervised": [StrOptions({"auto"}), "boolean"],
        "missing_label": "no_validation",  # any value
        "prior_weight": [Interval(Real, 0, _LARGEST_PRIOR_WEIGHT, closed="right")],
        **FORGETTING_OR_WINDOW,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_inducing: int = 20,
        binary_columns: Any = None,
        latents: str = "map",
        likelihood: str = "logistic",
        supervised: bool | str = "auto",
        missing_label: Any = None,
        prior_weight: float = 0.005,
        forgetting: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = False
        return tags

    @fit_method
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least two rows; NaN is a missing entry. Every column has an entry.
        y : array-like of shape (n_samples,), default=None
            Class labels, of at least two classes. None models X alone, and so does whatever is
            given where `supervised` is False.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out, though its
            label is still one of the classes. None is 1.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit(X, y, sample_weight=sample_weight)

    @fit_method
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`. Each later one brings the columns' functions up to date
        with all rows; hyperparameters, inducing inputs and the map to the latents (or the latents
        of the rows before, where they are free) stay, unless the rows before were fewer than 32,
        without one of the new classes, or with a column that has been constant until now: then
        the model is fitted again to all rows. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows; a single one is enough after the first call.
        y : array-like of shape (n_samples,), default=None
            Class labels, maybe of a single class. None if the first call had none.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call if there are labels.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Infer the latent variables of rows, whose labels are taken to be unknown.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN is a missing entry.
        return_std : bool, default=False
            Whether to return the standard deviations.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_components)
            Means of the latent variables.
        std : ndarray of shape (n_samples, n_components)
            Their standard deviations, only if `return_std` is True.
        """
        mean, variance = self._in_tasks(_infer, self._rows(X))
        return (mean, np.sqrt(variance)) if return_std else mean

    def inverse_transform(self, X: Any, return_std: bool = False) -> Any:
        """Predict the entries of rows from their latent variables.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Latent variables, without uncertainty.
        return_std : bool, default=False
            Whether to return the standard deviations.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_features)
            Expected entries; that of a binary column lies between its two values.
        std : ndarray of shape (n_samples, n_features)
            Standard deviations of an entry, noise included, only if `return_std` is True.
        """
        check_is_fitted(self)
        refuse_collections("inverse_transform", X)
        X = check_near(check_array(X, dtype=np.float64, input_name="X"), "X")
        n_latents = self._n_features_out
        if X.shape[1] != n_latents:
            raise ValueError(f"X has {X.shape[1]} columns, but there are {n_latents} latents.")
        mean, std = self._in_tasks(_find_entries, X)
        return (mean, std) if return_std else mean

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """Fill in missing entries with their expected values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN is a missing entry.
        return_std : bool, default=False
            Whether to return the standard deviations.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows; a missing entry of a binary column lies between its two values.
        std : ndarray of shape (n_samples, n_features)
            Standard deviations of the missing entries, noise included, and 0 of the others;
            only if `return_std` is True.
        """
        X = self._rows(X)
        missing = np.isnan(X)
        mean, std = self._in_tasks(_impute, X)
        filled = np.where(missing, mean, X)
        return (filled, np.where(missing, std, 0.0)) if return_std else filled

    @property
    def _n_features_out(self) -> int:
        """Number of latent variables."""
        return len(self.length_scale_)

    # -- prediction ------------------------------------------------------------------------------

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        refuse_collections("This method", X)
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        with reading(X):
            X = validate_numbers(self, X, reset=False, order="C", **options)
        self._state.posterior.columns.check(X)
        return X

    def _decisions(self, X: Any) -> Array:
        check_is_fitted(self)
        if not len(self._state.classes):
            raise NotFittedError(
                "This HybridGPLVM has been fitted without labels: it cannot predict classes."
            )
        return self._in_tasks(_decide, self._rows(X))[0]

    def _in_tasks(self, function: Callable[..., tuple[Array, ...]], rows: Array) -> list[Array]:
        """``function(posterior, rows)``, a tuple of arrays, over tasks of some rows."""
        tasks = [(rows[some],) for some in cut(len(rows), _TASK_ROWS)]
        shared = (self._state.posterior,)
        parts = parallel_map(function, tasks, n_jobs=self.n_jobs, shared=shared)
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    # -- hooks of the template -------------------------------------------------------------------

    def _learner(self) -> HybridLearner:
        names = getattr(self, "feature_names_in_", None)
        return HybridLearner.of(
            self,
            binary=choose_columns(
                self.binary_columns, self.n_features_in_, names, "binary_columns"
            ),
            free=self.latents == "free",
            likelihood=LIKELIHOODS[self.likelihood],
        )


def _infer(posterior: HybridPosterior, X: Array) -> tuple[Array, Array]:
    latents = posterior.latents(X)
    return latents.mean, latents.variance


def _find_entries(posterior: HybridPosterior, latents: Array) -> tuple[Array, Array]:
    return posterior.entries(Inputs(latents, np.zeros_like(latents)))


def _impute(posterior: HybridPosterior, X: Array) -> tuple[Array, Array]:
    return posterior.entries(posterior.latents(X))


def _decide(posterior: HybridPosterior, X: Array) -> tuple[Array]:
    return (posterior.decisions(posterior.latents(X)),)
