"""The estimator."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

from skvbgp._core.linalg import Array
from skvbgp._core.row_methods import lazily
from skvbgp.base import (
    CATEGORIES,
    COLUMNS,
    FORGETTING_OR_WINDOW,
    LEARNING,
    ForgetfulClassifier,
    Interval,
    Labels,
    StrOptions,
    class_probabilities,
    count_rows,
    fit_method,
    is_sparse,
    keep,
    make_dense,
)
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._learner import EPLearner
from skvbgp.ep._schedules import Schedule
from skvbgp.kernels import as_kernel


class EPDTCClassifier(ForgetfulClassifier):
    r"""Sparse Gaussian process classification by expectation propagation (EP-DTC).

    The latent function f has a Gaussian process prior that is carried by `n_inducing`
    inducing inputs, and y is 1 with probability Phi(f(x)). Expectation propagation
    approximates each likelihood by a Gaussian site, at a cost linear in the number of rows;
    hyperparameters and inducing inputs maximise its approximation of the log evidence
    [Andrade2014]_. Entries of X may be missing (NaN) or uncertain (`X_var`), in training and
    in prediction. More than two classes are one versus the rest, with a kernel and inducing
    inputs that they share.

    Parameters
    ----------
    n_inducing : int, default=100
        Number of inducing inputs: more are more accurate, at a cost that grows with their
        square. At most the number of distinct rows is used.

    kernel : kernel, default=None
        Covariance function of f, of :mod:`skvbgp.kernels` or scikit-learn, over the columns of
        X that have an entry. Uncertain or missing inputs need a squared exponential one. None
        is such a kernel with one length scale for each column, starting at its spread times
        the square root of their number, and a weak prior that the length scales are alike
        relative to the spreads. A given kernel has no prior but its bounds.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale. Missing values are a category; what `fit` has not
        seen is as far from all others. A stream, and `warm_start`, keeps the categories of its
        first fit. None is no input.

    inducing_inputs : array-like of shape (n_inducing, n_features), default=None
        Inducing inputs to start with, in the space of X, whose number takes the place of
        `n_inducing`; a stream adds none to them. None chooses them by k-means.

    approximation : {"dtc", "fitc"}, default="dtc"
        What becomes of the part of f that the inducing inputs do not carry: "dtc" leaves it
        out of the sites and corrects the evidence by a trace term, "fitc" takes it as
        independent noise of each row.

    refine : {"column", "entry"} or None, default="column"
        What training learns of missing entries, beyond what the joint Gaussian of the columns
        says of each: a shift and a spread of each column, which also hold for new rows, or of
        each missing entry of the training rows, which makes probabilities too certain. None
        learns nothing.

    schedule : {"parallel", "sequential"}, default="parallel"
        Whether EP updates all sites at once or one after the other. Both have the same fixed
        point; a sequential pass is far slower.

    max_ep_iter : int, default=100
        Largest number of passes over the sites in one run of EP.

    damping : float, default=0.0
        Share of a site's old parameters in its new ones, below 1. It increases by itself
        where the sites oscillate.

    learn_hyperparameters : bool, default=True
        False keeps the kernel and the inducing inputs at their start, and missing entries as
        the joint Gaussian of the columns has them.

    learn_inducing_inputs : bool, default=None
        Whether training moves the inducing inputs. None does so for "dtc" alone: for "fitc",
        nothing guards them against overfitting. True needs `learn_hyperparameters`.

    n_restarts : int, default=0
        Number of further starts, at random hyperparameters around the first. The one with the
        largest evidence is kept.

    max_iter : int, default=100
        Largest number of L-BFGS iterations from one start.

    tol : float, default=1e-4
        Stop when the log evidence rises by less than this share of itself.

    multi_class : {"one_vs_rest"}, default="one_vs_rest"
        How more than two classes are modelled: each has its own f, against all the others, of
        the same Gaussian process.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their rows; 1 for a class that is not
        named. "balanced" gives all classes the same sum, that of all rows over the number of
        classes; where one has few rows, it is taken to be known too well, and weights up to 1 may
        be better.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the classes all
        from before. A whole number from 2 on is how many of the newest rows are known, all of which
        count alike. With either, `partial_fit` is a fit to the rows that count. In `fit` all rows
        count alike. 1 forgets nothing.

    warm_start : bool, default=False
        Whether `fit`, and `partial_fit` with `forgetting`, starts from the kernel, the inducing
        inputs and the model of missing entries of the fit before.

    random_state : int, RandomState instance or None, default=None
        Determines k-means and the restarts.

    n_jobs : int, default=None
        Workers for the prediction of many rows. It changes no result.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.

    kernel_ : kernel
        Learned covariance function of f, over the columns of `observed_features_`.

    inducing_inputs_ : ndarray of shape (n_inducing, d)
        Inducing inputs, in the space of the columns of `observed_features_`. With categories, in
        columns for the numbers, then for each category, then for unknown ones.

    observed_features_ : ndarray of shape (n_features,)
        Whether a column of X had an entry in the first training data. The others are ignored.

    log_marginal_likelihood_value_ : float, or ndarray of shape (n_classes,)
        EP's approximation of the log evidence log p(y), with the trace correction for "dtc".

    site_precision_, site_mean_ : ndarray of shape (n_samples,) or (n_classes, n_samples)
        The Gaussian in f that stands for the likelihood of each row (with `forgetting`, of those
        that are kept), of one copy of it if it has a weight; no precision where that is 0. The mean
        is 0 where the precision has underflown to 0.

    exclusion_ : float
        How much the probability of one of more than two classes depends on what excludes the
        others, from 0 to 1: it is Phi(z) / Phi(-z)**exclusion_ of its score z, normalised.
        Learned from what EP says of each training row without its own sites.

    n_iter_ : int
        Number of L-BFGS iterations from all starts; 1 without learning.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    References
    ----------
    .. [Andrade2014] R. Andrade-Pacheco, J. Hensman, M. Zwiessele and N. D. Lawrence, "Hybrid
       discriminative-generative approach with Gaussian processes", AISTATS 2014, supplement.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skvbgp import EPDTCClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> X[::3, 2] = np.nan  # missing entries
    >>> model = EPDTCClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).round(1)
    array([[1., 0., 0.],
           [1., 0., 0.]])
    """

    _parameter_constraints: dict[str, list[Any] | str] = {
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "kernel": "no_validation",  # as_kernel says what it can be
        **CATEGORIES,
        "inducing_inputs": ["array-like", None],
        "approximation": [StrOptions({"dtc", "fitc"})],
        "refine": [StrOptions({"column", "entry"}), None],
        "schedule": [StrOptions({"parallel", "sequential"})],
        "max_ep_iter": [Interval(Integral, 1, None, closed="left")],
        "damping": [Interval(Real, 0, 1, closed="left")],
        "learn_inducing_inputs": ["boolean", None],
        "n_restarts": [Interval(Integral, 0, None, closed="left")],
        **LEARNING,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "multi_class": [StrOptions({"one_vs_rest"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        **FORGETTING_OR_WINDOW,
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        n_inducing: int = 100,
        *,
        kernel: Any = None,
        categorical_features: Any = None,
        inducing_inputs: Any = None,
        approximation: str = "dtc",
        refine: str | None = "column",
        schedule: str = "parallel",
        max_ep_iter: int = 100,
        damping: float = 0.0,
        learn_hyperparameters: bool = True,
        learn_inducing_inputs: bool | None = None,
        n_restarts: int = 0,
        max_iter: int = 100,
        tol: float = 1e-4,
        multi_class: str = "one_vs_rest",
        class_weight: Any = None,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    _takes_gaps = True

    @fit_method
    def fit(self, X: Any, y: Any, X_var: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs; NaN is a missing entry.
        y : array-like of shape (n_samples,)
            Class labels, of at least two classes.
        X_var : array-like of shape (n_samples, n_features), default=None
            Variance of each entry of X, which is then the mean of an uncertain input. Those of
            missing entries are ignored. None is zero.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out, though its
            label is still one of the classes. None is 1. Weights of a survey, which are not
            counts, are to be divided by their mean.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit(X, y, X_var=X_var, sample_weight=sample_weight)

    @fit_method
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, X_var: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`. Each later one adds rows with sites of their own, and
        brings all sites to their new fixed point; the hyperparameters stay, and inducing
        inputs are added up to `n_inducing`. Where the rows before were fewer than 32, or had
        no row of a class or no variation of a column that the new ones have, the
        hyperparameters are learned again from all rows. A call that fails leaves the
        estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New inputs; a single row is enough. NaN is a missing entry.
        y : array-like of shape (n_samples,)
            Class labels, maybe of a single class.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call.
        X_var : array-like of shape (n_samples, n_features), default=None
            Variance of each entry of X, see :meth:`fit`.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(X, y, classes=classes, X_var=X_var, sample_weight=sample_weight)

    @lazily(COLUMNS["predict"], rows=("X_var",))
    def predict(self, X: Any, X_var: Any = None) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at; NaN is a missing entry.
        X_var : array-like of shape (n_samples, n_features), default=None
            Variance of each entry of X, see :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class labels.
        """
        return self._labels(self._decisions(X, X_var=X_var))

    @lazily(COLUMNS["predict_proba"], rows=("X_var",))
    def predict_proba(self, X: Any, X_var: Any = None) -> Array:
        """Predict the probability of each class, averaged over f and over uncertain inputs.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at; NaN is a missing entry.
        X_var : array-like of shape (n_samples, n_features), default=None
            Variance of each entry of X, see :meth:`fit`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Those of more than two classes are made of the scores of
            each one versus the rest, see `exclusion_`.
        """
        return self._probabilities(self._decisions(X, X_var=X_var))

    @lazily(COLUMNS["decision_function"], rows=("X_var",))
    def decision_function(self, X: Any, X_var: Any = None) -> Array:
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at; NaN is a missing entry.
        X_var : array-like of shape (n_samples, n_features), default=None
            Variance of each entry of X, see :meth:`fit`.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Mean of f over the standard deviation of f plus the likelihood's unit noise: their
            normal distribution function is the probability of the second class, or of each
            class versus the rest if there are more than two.
        """
        return self._scores(self._decisions(X, X_var=X_var))

    # -- hooks of the template -------------------------------------------------------------------

    def _learner(self) -> EPLearner:
        learn_inducing = self.learn_inducing_inputs
        if learn_inducing is None:
            learn_inducing = self.approximation == "dtc"
        elif learn_inducing and not self.learn_hyperparameters:
            raise ValueError("learn_inducing_inputs=True needs learn_hyperparameters=True.")
        return EPLearner.of(
            self,
            kernel=None if self.kernel is None else as_kernel(self.kernel),
            inducing_inputs=self._read_inducing_inputs(),
            schedule=Schedule(self.schedule, self.max_ep_iter, self.damping),
            learn_inducing=learn_inducing,
            owners=self._owners,
        )

    def _probabilities(self, decisions: Array) -> Array:
        return class_probabilities(decisions, self._state.exclusion)

    def _count(self, inputs: Inputs, labels: Labels, sample_weight: Any) -> tuple[Inputs, Labels]:
        counted = count_rows(inputs.table, labels.codes, sample_weight)
        return inputs.rows(counted.rows), labels.counted(counted)

    @staticmethod
    def _as_columns(inputs: Inputs) -> tuple[Array, ...]:
        return inputs.mean, inputs.variance

    @staticmethod
    def _of_columns(*columns: Array) -> Inputs:
        return Inputs(*columns)

    def _inputs(self, X: Array, X_var: Any = None) -> Inputs:
        if X_var is None:
            return Inputs(X, np.zeros_like(X))
        shape = len(X), self.n_features_in_
        if np.shape(X_var) != shape:
            raise ValueError(
                f"X_var has shape {np.shape(X_var)}, but X has {shape}: give a variance for each "
                "entry, 0 where it is exact."
            )
        if hasattr(X_var, "columns") and hasattr(self, "feature_names_in_"):
            validate_data(self, X_var, reset=False, skip_check_array=True)  # columns of X, in order
        if is_sparse(X_var):
            X_var = make_dense(X_var)
        if self._categories is not None:
            X_var = self._categories.encode_variances(X_var)
        X_var = np.where(np.isnan(X), 0.0, X_var)
        X_var = check_array(X_var, dtype=np.float64, order="C", input_name="X_var")
        if np.any(X_var < 0.0):
            raise ValueError("X_var holds variances: it must not be negative.")
        return Inputs(X, X_var)
