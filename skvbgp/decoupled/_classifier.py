"""DecoupledGPClassifier."""

from __future__ import annotations

from typing import Any

from skvbgp._core.linalg import Array
from skvbgp.base import (
    FORGETTING_OR_WINDOW,
    ForgetfulClassifier,
    StrOptions,
    class_probabilities,
    documented_like,
    keep,
)
from skvbgp.decoupled._class_learner import ClassLearner
from skvbgp.decoupled._learner import DecoupledLearner
from skvbgp.decoupled._regressor import CONSTRAINTS, DecoupledGPRegressor

_OF_FUNCTION = ["noise_variance_", "feature_importances_", "feature_importances_std_", "n_outputs_"]


@documented_like(DecoupledGPRegressor, without=_OF_FUNCTION)
class DecoupledGPClassifier(ForgetfulClassifier):
    """Gaussian process classification with separate bases for the mean and the covariance.

    A probit model of two classes. If there are more, one function for each class versus the
    rest; they share the kernel and the bases, and are trained together. Like
    :class:`DecoupledGPRegressor`, it learns online and grows with the data [Cheng2017]_.

    Parameters
    ----------
    kernel : kernel, default=None
        Prior kernel, of :mod:`skvbgp.kernels` or scikit-learn, over the inputs as they are
        given. None is a squared exponential with one length scale per input, which have a weak
        prior around the median distance of the first rows. Training starts from the
        hyperparameters that suit an exact Gaussian process of up to 512 rows best; for a kernel
        that is given, the search for them begins at its own.

    max_iter : int, default=None
        Largest number of passes over the data. None is as many as visit about a million
        rows, counted once for each class if there are more than two, but at least two and at most
        200.

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

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    kernel_ : kernel
        Learned prior kernel, of all classes.

    exclusion_ : float
        How much the probability of one of more than two classes depends on what excludes the
        others, from 0 to 1: it is Phi(z) / Phi(-z)**exclusion_ of its score z, normalised.
        Learned from what the model says of each row without its own label, of up to 512 rows.
        Those of a stream are among the ones that are kept; where these are fewer, and some are
        gone (``replay=0``), it stays as it is.

    lower_bounds_ : list of float
        Estimates of the variational lower bound on log p(y), summed over the classes if there
        are more than two: one for each pass of the last fit, averaged over its mini-batches, and
        one for each later `partial_fit` (10,000 at most); with ``replay=0``, the sum of the last
        one and of an estimate for the new rows, given those before.

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
        learner = DecoupledLearner.of(
            self, likelihood="probit", normalize_y=False, owners=self._owners
        )
        return ClassLearner(learner, self.class_weight)

    def _probabilities(self, decisions: Array) -> Array:
        return class_probabilities(decisions, self._state.exclusion)

    def _check_collections(self) -> None:
        pass
