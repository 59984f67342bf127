"""The regressor: its parameters and what they mean."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from skvbgp._core.linalg import Array
from skvbgp.base import (
    CATEGORIES,
    FORGETTING_OR_WINDOW,
    LEARNING,
    DescribesFunction,
    FillsGaps,
    ForgetfulRegressor,
    Interval,
    LeavesOut,
    StrOptions,
    keep,
)
from skvbgp.spectrum._learner import MOST_JOINT, SpectrumLearner
from skvbgp.spectrum._spread import SpreadBlocks
from skvbgp.spectrum._state import State


class SVBSSGPRegressor(FillsGaps, DescribesFunction, LeavesOut, ForgetfulRegressor):
    """Stochastic variational Bayesian sparse spectrum Gaussian process (sVBSSGP).

    The kernel is a sum of cosines, k(x, x') = sigma_s^2 / m sum_i cos(2 pi r_i' (x - x')).
    The m frequencies r_i and the weights s of their cosines and sines have a joint Gaussian
    posterior. Predictions combine the global function, phi(x)' s, with the Gaussian process of
    the rows in the new row's own block of the training data [Hoang2017]_, or of its neighbours.

    X may have missing entries (NaN), in training and in prediction: rows that have them have more
    noise, by slopes that are learned before.

    Parameters
    ----------
    n_frequencies : int, default=100
        Number m of frequencies; there are twice as many features.

    gamma : float, default=0.0
        Between -1 and 1: 0 predicts from the rows nearest to the new row (or from those of
        its block, see `n_neighbors`), 1 from the global function alone, values between from
        both. May be changed after `fit`.

    posterior : {"auto", "joint", "factorised", "point"}, default="auto"
        One Gaussian of all frequencies and weights ("joint", sVBSSGP); independent r_1, ..., r_m
        and s ("factorised", VSSGP); or frequencies without uncertainty ("point", SSGP). The cost
        of "joint" grows with the cube of n_frequencies * (n_features + 2), which may be 5,000 at
        most (each category is an input there, and one more for unknown ones). "auto" is "joint" up
        to 2,000 (18 inputs of 100 frequencies), "factorised" beyond.

    objective : {"blocks", "bound"}, default="blocks"
        What the means of the frequencies and sigma_s^2 maximise: the evidence of every block
        as a Gaussian process of its own, which is the model that gamma=0 predicts with, or
        the variational bound like all the rest, as in [Hoang2017]_.

    solver : {"natural", "adam"}, default="natural"
        How the bound is maximised: by natural gradients with curvature, or by the paper's
        reparameterised gradient in M and b with steps of Adam, which gets less far in as many
        passes. Rows of `partial_fit` enter by natural steps with either.

    n_blocks : "auto" or int, default="auto"
        Number of blocks that the rows are divided into, by location. "auto" makes blocks of
        about 60 rows. Of a Dask collection every worker divides the rows of its region, into
        its share of the blocks, or into one at least.

    n_neighbors : int or None, default=40
        Number of training rows that each new row is predicted from: the nearest ones of all,
        by the distance of standardised inputs. None takes the rows of its block, as in
        [Hoang2017]_. Training is by block in either case. May be changed after `fit`.

    n_samples : int, default=20
        Draws of frequencies and weights in prediction. May be changed after `fit`.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale, and have frequencies of their own. Missing values
        are a category; what `fit` has not seen is as far from all others. A stream, and
        `warm_start`, keeps the categories of its first fit. None is no input.

    length_scale : float or array-like of shape (n_features,), default=None
        Starting length scales, in the units of X. None is the spread of each input times
        the square root of their number or, with objective="blocks", if no variance is given
        either and a sample of the rows speaks for a smooth function, what the evidence of an
        exact Gaussian process with a squared exponential says, which sets all of the start.

    signal_variance : float, default=None
        Starting sigma_s^2, on the squared scale of y. None is the variance of y.

    noise_variance : float, default=None
        Starting sigma_n^2 and starting noise of the local conditional, on the squared scale
        of y. None is a tenth of the variance of y. Where neither this nor `signal_variance` nor
        `length_scale` is given, up to 512 rows that speak for a rough function say what both
        variances are.

    learn_hyperparameters : bool, default=True
        False keeps the length scales and variances at their start, and the means of the frequencies
        at their random ones, unless objective="bound" moves these, as it does if posterior is not
        "point".

    max_iter : int, default=None
        Largest number of passes over the data in each phase of training. None is as many as
        visit 1,500,000 rows (120,000 when the bound is maximised), from 2 to 300 (to 30 in a
        second phase that holds the frequencies), and with fewer than 900 rows one for every three
        of them, but at least ten.

    batch_size : int, default=512
        Rows in a mini-batch of blocks.

    learning_rate : float, default=0.02
        First step size of Adam on the evidence of the blocks; it falls to zero along a
        cosine. With ``solver="adam"`` that on the bound is 2.5 times as large.

    tol : float, default=0.0
        Stop a phase when the average of its objective over 100 steps rises by less than this
        share of itself. 0 takes all passes, which the falling step sizes are made for.

    normalize_y : bool, default=True
        Whether to work with y of zero mean (that of the first call). Everything that is
        returned is on y's own scale.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the function
        all from before. A whole number from 2 on is how many of the newest rows are known, all of
        which count alike. With either, `partial_fit` is a fit to the rows that count, as long as it
        may take. In `fit` all rows count alike. 1 forgets nothing.

    warm_start : bool, default=False
        Whether `fit`, and `partial_fit` with `forgetting`, starts from the frequencies and
        hyperparameters of the fit before.

    random_state : int, RandomState instance or None, default=None
        Determines starting frequencies, mini-batches and draws.

    n_jobs : int, default=None
        Number of jobs of `predict`, each for some blocks or rows, with the same result for any
        number. None is what ``joblib.parallel_config`` says, or else the threads of BLAS.
        Training steps depend on each other and run in one. May be changed after `fit`.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_frequencies, n_features)
        Posterior mean of the frequencies, in units of 1 / X. With categories, in columns for the
        numbers, then for each category, then for unknown ones.

    q_mean_ : ndarray of shape (n_frequencies * (n_features + 2),)
        Posterior mean b of alpha = vec(theta, s): frequencies in units of 1 / X, row by row,
        then the weights of cos(2 pi r_1' u), sin(2 pi r_1' u), cos(2 pi r_2' u), ... on the
        scale of y, where u is X minus `input_mean_`. With categories, n_features is the number of
        columns of `frequencies_`.

    q_chol_ : ndarray of shape (n_frequencies * (n_features + 2),) * 2
        Lower triangular M of alpha = M z + b, in the same order and units. Formed at each
        access; an AttributeError where M would have more than 5,000 rows. With categories,
        n_features is the number of columns of `frequencies_`.

    input_mean_ : ndarray of shape (n_features,)
        Origin of the features: the mean of X in the first call. With categories, in the columns of
        `frequencies_`, and 0 in those of categories.

    length_scale_ : ndarray of shape (n_features,)
        Length scales l of the prior r_i ~ N(0, 1 / (2 pi l)^2), in the units of X.

    signal_variance_, noise_variance_ : float
        sigma_s^2 and sigma_n^2, on the squared scale of y.

    local_noise_variance_ : float
        Noise of the local conditional, learned from the evidence of the blocks.

    lower_bound_ : float
        Variational lower bound on log p(y), with every constant (for "point" on
        log p(y | theta)). An average over draws: an estimate.

    lower_bounds_ : list of float
        The bound in each pass that maximises it, and after each `partial_fit`, of which the last
        10,000 are kept.

    feature_importances_ : ndarray of shape (n_features,)
        Mean squared derivative of the predictive mean, over at most 1,000 training rows, times the
        variance of the input; with a sum of one, or all zero where predictions are constant. Of
        several outputs, the average. It is computed when it is asked for.

    feature_importances_std_ : ndarray of shape (n_features,)
        Standard deviation of these shares between the draws of `n_samples`.

    n_iter_ : int
        Number of passes, of both phases.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    n_outputs_ : int
        Number of outputs. Of several ones, every attribute that describes a model is an array, of
        numbers, or a list with one entry for each, and `n_iter_` is the sum.

    References
    ----------
    .. [Hoang2017] Q. M. Hoang, T. N. Hoang and K. H. Low, "A generalized stochastic
       variational Bayesian hyperparameter learning framework for sparse spectrum Gaussian
       process regression", AAAI 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import SVBSSGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SVBSSGPRegressor(20, max_iter=20, random_state=0).fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> mean.shape, std.shape
    ((42,), (42,))
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "n_frequencies": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, -1, 1, closed="both")],
        "posterior": [StrOptions({"auto", "joint", "factorised", "point"})],
        "objective": [StrOptions({"blocks", "bound"})],
        "solver": [StrOptions({"natural", "adam"})],
        "n_blocks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "signal_variance": [Interval(Real, 0, None, closed="neither"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "normalize_y": ["boolean"],
        **FORGETTING_OR_WINDOW,
        **CATEGORIES,
        **LEARNING,
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        n_frequencies: int = 100,
        *,
        gamma: float = 0.0,
        posterior: str = "auto",
        objective: str = "blocks",
        solver: str = "natural",
        n_blocks: int | str = "auto",
        n_neighbors: int | None = 40,
        n_samples: int = 20,
        categorical_features: Any = None,
        length_scale: Any = None,
        signal_variance: float | None = None,
        noise_variance: float | None = None,
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 512,
        learning_rate: float = 0.02,
        tol: float = 0.0,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SpectrumLearner:
        return SpectrumLearner.of(self, q_form=self.posterior, owners=self._owners)

    def _check_collections(self) -> None:
        pass

    @property
    def _keeps_on_workers(self) -> bool:
        return isinstance(getattr(self._state, "rows", None), SpreadBlocks)

    @property
    def q_chol_(self) -> Array | list[Array]:
        """M; no attribute that is kept, because the factorised q would not fit in memory."""
        if self.n_outputs_ > 1:
            return [_find_chol(output) for output in self._state.outputs]
        return _find_chol(self._state)


def _find_chol(state: State) -> Array:
    q = state.q
    if len(q.mean) > MOST_JOINT:  # scikit-learn's HTML display reads every property
        raise AttributeError(f"q_chol_ would have {len(q.mean)} rows, over {MOST_JOINT}.")
    return q.cholesky(state.units)
