"""The classifier: its parameters and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp.base import (
    ForgetfulClassifier,
    Labels,
    StrOptions,
    as_weights,
    keep,
)
from skvbgp.gp._stream import Forgetting
from skvbgp.gp.classes._learner import ClassGPLearner
from skvbgp.gp.classes._votes import Labelled, count_votes, merge_places
from skvbgp.gp.search._choice import COMMON, count_known


class VBGPClassifier(ForgetfulClassifier):
    """Gaussian process classification that learns its kernel: the one to start with.

    One Gaussian process for each class, all of which share the kernel, is regressed on the
    labels, and a link of mean and variance gives the probabilities. Kernels, noise and link
    are learned by what they say of rows that are left out, which has a closed form.
    Matern, rational quadratic and squared exponential kernels are tried, with one length scale
    for all inputs or one for each, and predictions average over those that predict best together,
    with up to 500 rows also over draws of their hyperparameters, and the best kernel is also tried
    plus lines. As long as all rows predict, kernels are also tried with inputs in units of their
    ranges instead of their spreads, and with skewed inputs through a function. Kernels of two
    classes are tried with a probit likelihood, of up to ten (of 501 to 2,000 rows, five) with one
    of each versus the rest. Far from all rows the probabilities are the frequencies of the classes.

    Parameters
    ----------
    kernel : "auto", Kernel or list, default="auto"
        "auto" searches. Otherwise a kernel of :mod:`skvbgp.kernels` or scikit-learn, or a list
        of such kernels or of (name, kernel) pairs, whose free hyperparameters are learned from
        where they start, within their bounds. Length scales are in the units of X.

    n_neighbors : "auto" or int, default="auto"
        Nearest rows that a prediction is made from; up to so many rows, it is made from all of
        them. "auto" is all of up to 2000 rows, and 256 of more; `n_inducing` is for those.

    n_inducing : "auto", int or None, default="auto"
        Inducing inputs through which each kernel is also told of all rows (of 20,000 at random,
        where there are more), and predicts a second time. Up to ten classes, so is a kernel with a
        likelihood of labels. Rows that are left out say how much these predictions share in those
        of the model. "auto" has 500 for more than 2,000 rows, and none if rows are forgotten or
        hyperparameters not learned, where a number is an error. Up to as many rows as neighbours
        there are none; None and 0 are none, too.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale. Missing values are a category; what `fit` has not
        seen is as far from all others. None is no input.

    learn_hyperparameters : bool, default=True
        Whether to learn the kernels' hyperparameters, the noise, the link and the belief.
        False keeps them where they start.

    max_iter : int, default=None
        Largest number of L-BFGS iterations that train a kernel. None is 20 in the search, 6 more
        for kernels that are kept, 10 with a likelihood of labels, and 10 more on random rows, for
        what predicts through inducing inputs.

    tol : float, default=1e-05
        Training of a kernel stops when its score rises by less than this share of itself.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which the odds of predictions are multiplied: what is predicted
        is of rows among which a class is so many times as frequent as among those known. 1 for a
        class that is not named; "balanced" makes all classes equally frequent. What is learned
        does not depend on them: they are no rows, which `sample_weight` is.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the classes all
        from before. A whole number from 2 on is how many of the newest rows are known, all of which
        count alike. With either, `partial_fit` is a fit to the rows that count, once a quarter of
        them is new: until then, their hyperparameters stay. In `fit` all rows count alike. 1
        forgets nothing.

    warm_start : bool, default=False
        Whether later fits start from the kernels of the one before, even if `kernel` has changed.

    random_state : int, RandomState instance or None, default=None
        Determines which rows train the kernels, and which rows judge them.

    n_jobs : int, default=None
        Workers of joblib that predict from neighbours, which change no result. None is those of an
        active ``joblib.parallel_config``, or else the threads of BLAS.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.

    class_prior_ : ndarray of shape (n_classes,)
        Frequencies of the classes, with one more row shared by all classes, times their weights.

    kernels_ : list of (str, Kernel)
        Names of the kernels that predictions average over, and these with the hyperparameters
        found. Length scales are in the units of X, at the mean of an input that is warped. What
        predicts through inducing inputs is named so, and so are kernels of warped inputs.

    kernel_posterior_ : ndarray of shape (n_kernels,)
        Shares of the kernels in predictions.

    input_warp_ : ndarray of shape (n_features, 2)
        Centre m and width s, in the units of X, of the function asinh((x - m) / s) that is taken of
        each input where a kernel is "warped": about a straight line near the centre, a logarithm
        beyond the width. NaN and infinity where the input is as it is given, as it is if no such
        kernel shares in predictions.

    n_inducing_ : int
        Inducing inputs of those kernels that predict through them, 0 if none does.

    log_predictive_probability_ : float
        Average log probability of labels of training rows, each left out in turn: minus the
        log-loss that new rows may have. A little too good with few rows, because it has chosen
        the hyperparameters. `class_weight` has no part in it. NaN if these are not learned.

    n_iter_ : int
        Number of kernels trained; those through inducing inputs do not count.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    Notes
    -----
    NaN in X is a missing entry: an uncertain input, given the row's others. A sparse X is made
    dense.

    A row of weight w counts as w equal rows.

    `partial_fit` knows new rows at once. Hyperparameters are learned again, from all rows, in every
    call as long as fewer than 32 were known, and then whenever their number has doubled, with
    `forgetting` whenever a quarter of the rows that count (or of those after which a row counts a
    twentieth) is new, and when a class has its first row. The categories of inputs are those of the
    first call.

    See :doc:`/theory/gp_classes` for the model,
    :doc:`/theory/gp_class_choices` for what was measured.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvbgp import VBGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = VBGPClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X[::50]).round(1)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    >>> model.predict_proba([[1e5, 0.0, 0.0, 0.0]]).round(2)  # nothing like the data
    array([[0.33, 0.33, 0.33]])

    Inputs may be categories:

    >>> X = [["north", 1.0], ["south", 1.2], ["north", 2.0], ["south", 2.1]] * 5
    >>> y = ["dry", "wet", "dry", "wet"] * 5
    >>> model = VBGPClassifier(categorical_features=[0], random_state=0).fit(X, y)
    >>> model.predict([["south", 1.5], ["north", 1.5]])
    array(['wet', 'dry'], dtype='<U3')
    """

    _parameter_constraints = COMMON | {"class_weight": [dict, StrOptions({"balanced"}), None]}

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        n_neighbors: int | str = "auto",
        n_inducing: int | str | None = "auto",
        categorical_features: Any = None,
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-5,
        class_weight: Any = None,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    _takes_gaps, _learns_of_columns = True, False

    def decision_function(self, X: Any) -> Array:
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Log odds of the second class, or the log probability of each class if there are more
            than two.
        """
        return super().decision_function(X)

    def summary(self) -> str:
        """Describe what has been learned in words.

        Returns
        -------
        text : str
            The kernels with their shares, and what left-out rows say of predictions.
        """
        check_is_fitted(self)
        order = self.kernel_posterior_.argsort()[::-1]
        lines = ["The classes are told apart by"]
        lines += [f"- {self.kernel_posterior_[i]:.2f}: {self.kernels_[i][0]}" for i in order]
        loss = f"with a log-loss of {-self.log_predictive_probability_:.3g} on rows left out"
        return "\n".join([*lines, f"{loss}."])

    # -- hooks of the template -------------------------------------------------------------------

    def _learner(self) -> ClassGPLearner:
        return ClassGPLearner.of(
            self,
            owners=self._owners,
            forgetting=Forgetting(float(self.forgetting)),
            n_known=count_known(self),
        )

    def _learns_anew(self, inputs: Array, targets: Labelled) -> bool:
        forgets = super()._learns_anew(inputs, targets)
        return forgets and self._learner().is_due(self._state, inputs, targets)

    def _count(self, inputs: Array, labels: Labels, sample_weight: Any) -> tuple[Array, Labelled]:
        """Distinct rows that have a weight, and the votes of each."""
        weights = as_weights(sample_weight, len(inputs))
        counts, kept = count_votes(labels.codes, len(labels.classes), weights), weights > 0.0
        if not kept.all():
            inputs, counts = inputs[kept], counts[kept]
        places, counts = merge_places(inputs, counts)
        return places, Labelled(labels.classes, counts, int(kept.sum()) + labels.n_copies)

    def _labels(self, decisions: Array) -> NDArray[Any]:
        return self._state.classes[np.argmax(decisions, axis=1)]

    def _probabilities(self, decisions: Array) -> Array:
        return np.exp(decisions)

    @staticmethod
    def _scores(decisions: Array) -> Array:
        return decisions[:, 1] - decisions[:, 0] if decisions.shape[1] == 2 else decisions
