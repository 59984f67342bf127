"""DecoupledGPClassifier."""

from __future__ import annotations

from typing import Any

from skvbgp.base import FORGETTING_OR_WINDOW, ForgetfulClassifier, StrOptions, keep
from skvbgp.decoupled._class_learner import ClassLearner
from skvbgp.decoupled._learner import DecoupledLearner
from skvbgp.decoupled._regressor import CONSTRAINTS


class DecoupledGPClassifier(ForgetfulClassifier):
    """Gaussian process classification with separate bases for the mean and the covariance.

    A probit model of two classes. If there are more, one function for each class versus the
    rest; they share the kernel and the bases, and are trained together. Like
    :class:`DecoupledGPRegressor`, it learns online and grows with the data [Cheng2017]_.

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
        given. None is a squared
        exponential with one length scale per input, which have a weak prior around the
        median distance of the first rows. Training starts from the hyperparameters that
        suit an exact Gaussian process of up to 512 rows best; for a kernel that is given,
        the search for them begins at its own.

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

    learn_hyperparameters : bool, default=True
        False keeps the kernel as it is given (or at the median distance), the noise and
        the basis points at their start, and only learns the coefficients of the mean and
        the covariance.

    max_iter : int, default=None
        Largest number of passes over the data. None is as many as visit about a million
        rows, counted once for each class if there are more than two, but at least two.

    batch_size : int, default=1024
        Rows in a mini-batch.

    learning_rate : float, default=0.05
        First step size of Adam. It falls to zero along a cosine, within each call.

    tol : float, default=1e-5
        Stop when the lower bound rises by less than this share of itself from one average
        over 100 steps to the next.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their rows; 1 for a class that is not
        named. "balanced" gives all classes the same sum, that of all rows over the number of
        classes; where one has few rows, it is taken to be known too well, and weights up to 1 may
        be better. In a stream the sums are of all rows so far; without rows (``replay=0``), what
        has been learned before stays as it is.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the classes all
        from before. A whole number from 2 on is how many of the newest rows are known, all of which
        count alike. With either, `partial_fit` keeps the rows that count, whatever `replay` says,
        and is a fit to these. In `fit` all rows count alike. 1 forgets nothing.

    replay : int, default=50000
        Largest number of rows that are kept for `partial_fit`, a uniform sample of those so far:
        at least 32, or 0. Without rows, the posterior of a call is the prior of the next one, and
        the kernel and the basis points, though more may join, are those of the first call that
        has seen 32 rows. The first call decides for the whole stream.

    warm_start : bool, default=False
        Whether `fit`, and `partial_fit` with `forgetting`, starts from the result of the fit
        before, whose kernel, likelihood and parametrization it then keeps.

    random_state : int, RandomState instance or None, default=None
        Determines mini-batches and basis points.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    kernel_ : kernel
        Learned prior kernel, of all classes.

    mean_basis_ : ndarray of shape (n_mean_basis, n_features)
        Points of the mean's basis, in the space of X.

    cov_basis_ : ndarray of shape (n_cov_basis, n_features)
        Points of the covariance's basis, in the space of X.

    lower_bound_ : float
        Last of `lower_bounds_`.

    lower_bounds_ : list of float
        Estimates of the variational lower bound on log p(y), summed over the classes if there
        are more than two: one for each pass of the last fit, averaged over its mini-batches, and
        one for each later `partial_fit`; with ``replay=0``, the sum of the last one and of an
        estimate for the new rows, given those before.

    n_iter_ : int
        Number of passes of the last fit.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    References
    ----------
    .. [Cheng2017] C.-A. Cheng and B. Boots, "Variational inference for Gaussian process
       models with linear complexity", NIPS 2017, arXiv:1711.10127.

    .. [Salimbeni2018] H. Salimbeni, C.-A. Cheng, B. Boots and M. Deisenroth, "Orthogonally
       decoupled variational Gaussian processes", NeurIPS 2018, arXiv:1809.08820.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvbgp import DecoupledGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DecoupledGPClassifier(n_cov_basis=20, max_iter=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    >>> model.score(X, y) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **CONSTRAINTS,
        "class_weight": [dict, StrOptions({"balanced"}), None],
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
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 1024,
        learning_rate: float = 0.05,
        tol: float = 1e-5,
        class_weight: Any = None,
        forgetting: float = 1.0,
        replay: int = 50_000,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> ClassLearner:
        return ClassLearner(DecoupledLearner.of(self, owners=self._owners), self.class_weight)

    def _check_collections(self) -> None:
        pass
