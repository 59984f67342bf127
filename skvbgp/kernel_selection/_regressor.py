"""Variational Bayesian kernel selection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.owners import find_first_columns
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base import (
    CATEGORIES,
    FORGETTING,
    DescribesFunction,
    FadingRegressor,
    FillsGaps,
    Interval,
    LeavesOut,
    OutputsLearner,
    OutputsState,
    StrOptions,
    Targets,
    as_count,
    keep,
)
from skvbgp.kernel_selection._description import describe
from skvbgp.kernel_selection._learner import VBKSLearner
from skvbgp.kernel_selection._state import State


@dataclass(frozen=True)
class KernelOutputsLearner(OutputsLearner):
    """The settings of every output."""

    single: VBKSLearner

    def begin(self, start: State, X: Array, y: Targets) -> State:
        """After a single kernel, without warnings of those whose turn has not come."""
        return self.single.search(start, X, y, lambda make: True)

    def prune(self, state: OutputsState, top_k: int) -> OutputsState:
        """The kept kernels of the highest bounds of each output alone."""
        outputs = tuple(self.single.prune(output, top_k) for output in state.outputs)
        return replace(state, outputs=outputs)


class VBKSRegressor(FillsGaps, DescribesFunction, LeavesOut, FadingRegressor):
    """Sparse Gaussian process regression that learns a belief about its kernel (VBKS).

    Each kernel of a list gets a sparse Gaussian process of its own, whose variational lower
    bound L_i on the log evidence tells how well it explains the data; from the bounds follows
    a posterior belief about the kernels, by which the predictions of the best ones are
    averaged [Teng2020]_. By default the list holds kernels for forecasts where X is one column of
    times, and otherwise the 144 kernels that sums and products of three base kernels make. The
    kernels are fitted in parallel.

    Kernels see the inputs about their mean and in their own units, so that length scales and
    periods are in the units of X. Starting values, and bounds that are left at their default,
    come from the data: periods from the spectrum of y.

    X may have missing entries (NaN), in training and in prediction, unless `forgetting` is below 1:
    rows that have them have more noise, by slopes that are learned before, the same for all
    kernels.

    Parameters
    ----------
    kernels : "auto", "grammar" or list, default="auto"
        "grammar" is ``kernel_grammar(depth)``. "auto" is ``series_kernels(X, y)`` where X has
        one column and up to 1,000 rows, and "grammar" where it has more, or if `n_inducing` or
        `batch_size` is given or `hyperparameter_posterior` is "gaussian". Otherwise
        (name, kernel) pairs or kernels, of :mod:`skvbgp.kernels` or scikit-learn. Free
        hyperparameters are searched for anew, within their bounds.

    transforms : "auto" or list of {"identity", "log"}, default="auto"
        Transforms of y, with each of which each kernel is a candidate of the belief. "log" is
        log(y + c) with three values of c, for which the smallest y is 0.01, 0.05 and 0.25 of the
        range of y above -c. "auto" is both for the kernels of a series of at least eight rows,
        and else "identity", as always where `y_var` is given: a variance of y is none of its
        logarithm.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale; in a linear kernel each has an effect of its own.
        Missing values are a category; what `fit` has not seen is as far from all others. A stream
        keeps the categories of its first fit. None is no input.

    depth : int, default=3
        Largest number of base kernels in one kernel of the grammar.

    n_inducing : int, default=None
        Number of inducing inputs. None is every row up to 1,000 rows (exact Gaussian
        processes), and 500 above.

    hyperparameter_posterior : {"point", "gaussian"}, default="point"
        "point" estimates the hyperparameters by the maximum of L_i; "gaussian" learns a
        Gaussian q(theta) of their logarithms with a full covariance, at about sixteen times
        the cost.

    n_trained : int, default=30
        Number of kernels whose hyperparameters are trained further after the search for
        starting values, those of the highest bounds; at least `top_k`. Mini-batches train them in
        rounds: after an eighth of the steps the ten best on all rows go on, and after three
        eighths four. All rows at once train the four best first, and others as long as they may
        come within 20 nats of these. None trains all kernels, and all to the end, at each call of
        `partial_fit`, too, as it is always done with a Gaussian posterior.

    top_k : int, default=10
        Number of kernels that predictions average over.

    n_samples : int, default=2000
        Draws of q(g) that the belief is computed from.

    n_restarts : int, default=3
        Searches for the hyperparameters of each kernel, from so many of the best of sixteen times
        as many random values. The kernels of a series have one, from values of their own.

    max_iter : int, default=None
        Largest number of L-BFGS iterations that train a kernel, or of passes over the data
        with mini-batches. None is 60 iterations (100 for the kernels of a series), or as many
        passes as visit about 300,000 rows, but at least two.

    batch_size : int, default=None
        Rows in a mini-batch. None takes all rows at once up to 2,000 rows, and mini-batches
        of 1,024 rows above.

    learning_rate : float, default=0.03
        First step size of Adam on the logarithms of the hyperparameters, with mini-batches;
        it falls to zero along a cosine.

    tol : float, default=1e-07
        L-BFGS stops when the bound rises by less than this share of itself.

    normalize_y : bool, default=True
        Whether to work with y of zero mean and unit variance. Predictions and bounds are on
        y's own scale; variances in kernels are then relative to the variance of y.

    forgetting : float, default=1.0
        What a row of a stream counts, as a share, when one more has come, between 0 and 1; kept
        rows that count less than a hundredth of the newest are left out, and after an abrupt change
        of the function all from before. 1 forgets nothing. In `fit` all rows count alike.

    random_state : int, RandomState instance or None, default=None
        Determines starting values, inducing inputs, mini-batches and draws. All kernels share
        the same ones, so that they differ by what they explain alone.

    n_jobs : int, default=None
        Number of kernels fitted at the same time, by workers of joblib. None leaves it to the
        active backend of joblib or, if that has one worker, takes as many threads as BLAS would.
        It changes no result.

    Attributes
    ----------
    kernels_ : list of (str, Kernel)
        Names and kernels with their learned hyperparameters: those of the search for starting
        values if a kernel was not trained further. Periods have no meaning of categories, and are
        held at the root of 2.

    kernel_posterior_ : ndarray of shape (n_kernels,)
        Belief about the kernels, eq. (13). A kernel whose L_i is -inf has none.

    g_mean_, g_cov_ : ndarray of shape (n_kernels,) and (n_kernels, n_kernels)
        Mean and covariance of q(g), whose softmax is the belief. Where L_i is -inf, they are those
        of the prior.

    local_lower_bounds_ : ndarray of shape (n_kernels,)
        L_i on all rows, with every constant; a bound is higher the further the kernel was trained.
        It is -inf of a kernel that could not be fitted and, with mini-batches, of those beyond
        `n_trained`, which are not evaluated on all rows.

    lower_bound_ : float
        Variational lower bound on log p(y) with the kernel unknown, eq. (8), among those whose
        L_i is finite.

    transforms_ : list of str
        Transform of y by each entry of `kernels_`.

    best_kernel_ : tuple of (str, Kernel)
        The entry of `kernels_` with the highest bound.

    estimators_ : list of KernelModel
        Models of the kernels that predictions average over, by falling bound.

    estimator_weights_ : ndarray of shape (n_estimators,)
        Belief recomputed on these kernels alone: their weights in predictions.

    feature_importances_ : ndarray of shape (n_features,)
        Mean squared derivative of the predictive mean, times the variance of the input, over at
        most 1,000 rows while these are kept, up to 2,000, and else over the inducing inputs; with a
        sum of one, or all zero where predictions are constant. Of several outputs, the average. It
        is computed when it is asked for.

    feature_importances_std_ : ndarray of shape (n_features,)
        Standard deviation of these shares between the kernels that predictions average over.

    n_iter_ : int
        Largest number of iterations or passes of a kernel's training.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    n_outputs_ : int
        Number of outputs, each with kernels and a belief of its own. Of several ones, every
        attribute that describes a model is a list with one entry for each, or an array if it is a
        number, and `n_iter_` is the sum.

    Warns
    -----
    RuntimeWarning
        If a kernel could not be fitted; it names the kernel.

    Raises
    ------
    ValueError
        In `fit` and `partial_fit` also if `y_var` is given, or an entry of X is missing, where
        logarithms of y are candidates: by `transforms`, or of calls before without it. The
        same in `predict_quantiles`, `predict_interval` and `log_predictive_density`, where one of
        `estimators_` is of a logarithm.

    Notes
    -----
    `partial_fit` keeps the rows while they are at most 2,000. Of all kernels it finds the bound on
    all of them, and trains those further that are within 20 nats of the best, of the `n_trained`
    best, or all of these where new rows say less than earlier ones. Until a search has had 1,000
    rows, it begins from the start whenever their number has doubled (with ``kernels="auto"`` from
    a new list, pruned or not). The call that brings more than 2,000 rows trains the four best by
    mini-batches, or in rounds if it more than doubles the rows; from then on,
    new ones are added to what the averaged kernels know, exactly and in any order, at the
    hyperparameters and inducing inputs of the fit; the other kernels are dropped.

    `loo_predict` leaves a row out of the posterior of each kernel. The belief about the kernels
    and the transforms of y stay those of all rows.

    References
    ----------
    .. [Teng2020] T. Teng, J. Chen, Y. Zhang and B. K. H. Low, "Scalable variational Bayesian
       kernel selection for sparse Gaussian process regression", AAAI 2020, arXiv:1912.02641.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp import VBKSRegressor, kernel_grammar
    >>> rng = np.random.default_rng(0)
    >>> t = np.linspace(0.0, 8.0, 80)
    >>> y = np.sin(2.0 * np.pi * t) + 0.5 * t + 0.1 * rng.standard_normal(80)
    >>> kernels = kernel_grammar(2, base=("LIN", "PER"))
    >>> model = VBKSRegressor(kernels, random_state=0).fit(t[:, None], y)
    >>> model.best_kernel_[0]
    'LIN + PER'
    >>> model.summary().splitlines()[2]
    '- a periodic part of period 1'
    >>> mean, std = model.predict([[8.25]], return_std=True)
    """

    _parameter_constraints: dict[str, Any] = {
        "kernels": [StrOptions({"auto", "grammar"}), "array-like"],
        "transforms": [StrOptions({"auto"}), "array-like"],
        **CATEGORIES,
        "depth": [Interval(Integral, 1, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "hyperparameter_posterior": [StrOptions({"point", "gaussian"})],
        "n_trained": [Interval(Integral, 1, None, closed="left"), None],
        "top_k": [Interval(Integral, 1, None, closed="left")],
        "n_samples": [Interval(Integral, 2, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        **FORGETTING,
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        transforms: Any = "auto",
        categorical_features: Any = None,
        depth: int = 3,
        n_inducing: int | None = None,
        hyperparameter_posterior: str = "point",
        n_trained: int | None = 30,
        top_k: int = 10,
        n_samples: int = 2000,
        n_restarts: int = 3,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        tol: float = 1e-7,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    _outputs_learner = KernelOutputsLearner

    @property
    def _takes_gaps(self) -> bool:
        return self.forgetting == 1.0  # or the first rows would say for ever what is missing

    def _learner(self) -> VBKSLearner:
        return VBKSLearner.of(self, owners=self._owners)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True
    ) -> Array:
        n_samples = as_count(n_samples, "n_samples", least=0)
        X, rng = self._check_inputs(X), check_random_state(random_state)
        X, own = self._fill(X, None)
        posterior = self._posterior()
        with single_blas_thread:
            if self.n_outputs_ == 1:
                draws = posterior.sample(X, n_samples, include_noise, rng)
            else:
                each = [one.sample(X, n_samples, include_noise, rng) for one in posterior.outputs]
                draws = np.stack(each, axis=1)
        if own is not None:
            draws = draws + np.sqrt(own)[..., None] * rng.standard_normal(draws.shape)
        return np.asarray(draws)

    def prune(self, top_k: Any) -> Self:
        """Keep the kernels of the highest belief only, and recompute the belief about them.

        Parameters
        ----------
        top_k : int
            Number of kernels to keep, of each output: at most those of `estimators_`, whatever is
            asked for.

        Returns
        -------
        self : object
            The estimator, whose fitted attributes are those of the kept kernels.
        """
        check_is_fitted(self)
        learner: Any = self._full_learner()
        self._take(learner, learner.prune(self._state, as_count(top_k, "top_k", least=1)))
        return self

    def summary(self) -> str:
        """Describe the best kernel in words.

        Returns
        -------
        text : str
            Its name and belief, and one line for each component of its functions; of several
            outputs, one after the other.
        """
        check_is_fitted(self)
        if self.n_outputs_ == 1:
            return _summarise(self._state)
        outputs = enumerate(self._state.outputs)
        return "\n".join(f"Output {j}: {_summarise(state)}" for j, state in outputs)


def _summarise(state: State) -> str:
    """The best kernel of an output in words."""
    assert state.belief is not None
    model, belief = state.models[0], state.belief.posterior[state.kept[0]]
    whose = "" if model.transform == "identity" else " of log(y + c)"
    lines = [f"{model.name}{whose}, with belief {belief:.2f}, is the sum of"]
    extent = state.scales.extent
    extent = extent[find_first_columns(len(extent), state.candidates[0].kernel.owners)]
    lines += [f"- {phrase}" for phrase in describe(model.kernel, extent)]
    noise = np.sqrt(model.noise_variance)
    return "\n".join([*lines, f"- noise of standard deviation {noise:.3g}"])
