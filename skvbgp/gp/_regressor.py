"""The regressor: its parameters and what they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.shards import ShardedColumns
from skvbgp.base import (
    JOINT_OUTPUTS,
    DescribesFunction,
    JoinsOutputs,
    NoticesFunctions,
    Observations,
    StrOptions,
    VariationalRegressor,
    as_noise,
    as_weights,
    keep,
    lengthen,
)
from skvbgp.gp._joint_outputs import GPJointLearner
from skvbgp.gp._learner import GPLearner
from skvbgp.gp._outputs import GPOutputsLearner, SharedLearner
from skvbgp.gp._rows import Rows
from skvbgp.gp._spread import SpreadRows
from skvbgp.gp._stream import Forgetting
from skvbgp.gp.search._choice import COMMON, count_known

#: `output_covariance` and `output_hyperparameters`: nothing in common, and one model of all.
_OWN, _JOINT = (None, "own"), ("learned", "own")
#: Kernels of less belief are not named.
_LEAST_SHARE = 0.005


class VBGPRegressor(JoinsOutputs, DescribesFunction, NoticesFunctions, VariationalRegressor):
    """Gaussian process regression that learns its kernel: the one to start with.

    Every place is predicted from its nearest rows or from all, always up to 400 rows, and up to
    3,000 where that predicts better. A greedy search finds the kernels: Matern, rational quadratic
    and squared exponential, their products and, of more than 400 rows, sums, with one length scale
    for each input or one for all, and with straight lines where these help. Predictions average
    over the kernels that matter. How much each does depends on the place, as does the scale of
    function and noise where there are more than 400 rows, so that intervals are wide where the
    function is rough. Intervals and quantiles have the shape of the errors of training rows, each
    left out: skewed, or with heavy tails.

    Parameters
    ----------
    kernel : "auto", Kernel or list, default="auto"
        "auto" searches. Otherwise a kernel of :mod:`skvbgp.kernels` or scikit-learn, or a list
        of such kernels or of (name, kernel) pairs, whose free hyperparameters are learned from
        where they start, within their bounds. Length scales are in the units of X, variances
        relative to that of y. Kernels see X without its mean, which matters to linear ones.

    n_neighbors : "auto" or int, default="auto"
        Nearest rows that a prediction is made from. Up to so many rows, the process is exact, and
        predictions average over draws of the hyperparameters. "auto" is exact up to 400 rows;
        with more of them, 64, 128, 256 or 400 neighbours predict, or of up to 3,000 rows all, as
        many as training rows that are left out say that it pays. Of 3,000 to 50,000 rows, places
        may then be predicted by cells instead, from the rows around each, four times as many or
        512; a place whose nearest row is not one of these has neighbours.

    n_inducing : "auto", int or None, default="auto"
        Inducing inputs of a global part of the function, a sparse process of all rows, which may
        have straight lines; near rows then say what that leaves. "auto" has 500 where, with 2,000
        rows or more, rows that are left out are predicted better so. There is none with
        ``learn_hyperparameters=False``, `forgetting`, a learned `output_covariance`, shared
        `output_hyperparameters`, missing entries of X and Dask collections, where a number is an
        error; and none with a `kernel` of your own, where a number is allowed. Up to as many rows
        as neighbours there is none; None and 0 are none, too. With a number, X has no missing
        entries, in predictions neither.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale. Missing values are a category; what `fit` has not
        seen is as far from all others. None is no input.

    output_covariance : "learned" or None, default=None
        How several outputs go together. None is a model for each. "learned" is one model in which
        they learn from each other: they share the kernels and the belief in them, and their
        covariance is learned, as is a noise variance of each. Rows are then the values that were
        observed, also where numbers of rows are compared with `n_neighbors`. An output of which
        rows that are left out are predicted better by a model of its own has one
        (`learns_from_others_`); the others still learn from it. Draws are joint in the
        outputs; ``return_cov`` and `log_predictive_density` take each by itself. What is left out,
        in `loo_predict` and `log_predictive_density_`, is one value, given the others of its row.
        Of one output it changes nothing.

    output_hyperparameters : "own" or "shared", default="own"
        What several outputs have in common that are models each. "own" is nothing. "shared" is all
        that is learned: the kernels and the belief in them, length scales, the number of neighbours
        and, in units of each output, variances and noise; the outputs together choose them. Their
        functions remain independent. With a learned `output_covariance`, which has an answer of its
        own, it has to be "own". Of one output it changes nothing.

    learn_hyperparameters : bool, default=True
        Whether to learn the kernels' hyperparameters, the noise and the belief. False keeps
        them where they start, the noise at a tenth of the variance of y, and the outputs without
        covariance.

    max_iter : int, default=None
        Largest number of L-BFGS iterations that train a kernel. None is 40 for exact processes;
        for others 15 in the search, 8 where a kernel starts from what the one before it has
        learned, and 12 more for kernels that are kept.

    tol : float, default=1e-05
        Training of a kernel stops when the log evidence rises by less than this share of itself.

    normalize_y : bool, default=True
        Whether to subtract the mean of y, which is divided by its spread in either case.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth of the newest are left out, and after an abrupt change of
        the function all from before. A whole number from 2 on is how many of the newest rows are
        known, all of which count alike. Both bound the time and the memory of `partial_fit`. In
        `fit` all rows count alike. 1 forgets nothing.

    warm_start : bool, default=False
        Whether later fits start from the kernels of the one before, even if `kernel` has changed.

    random_state : int, RandomState instance or None, default=None
        Determines which groups of rows train the kernels, and which rows judge them.

    n_jobs : int, default=None
        Workers of joblib that predict from neighbours, which change no result. None is those of an
        active ``joblib.parallel_config``, or else the threads of BLAS, the quickest on one machine.

    Attributes
    ----------
    kernels_ : list of (str, Kernel)
        Names of the kernels that predictions average over, and these with the hyperparameters
        found. Length scales are in the units of X, variances relative to that of y. Of an input
        that is warped, the length scale is that at its mean.

    kernel_posterior_ : ndarray of shape (n_kernels,)
        Belief in the kernels, averaged over rows.

    n_neighbors_ : int
        Rows that a prediction is made from: places, where many rows are at few of them.

    n_inducing_ : int
        Inducing inputs of the global part, 0 without it. With it, `kernels_` are those of what it
        leaves, relative to the variance of that.

    input_warp_ : ndarray of shape (n_features, 2)
        Centre m and width s, in the units of X, of the function asinh((x - m) / s) that is taken of
        each input: about a straight line near the centre, a logarithm beyond the width. NaN and
        infinity where the input is as it is given, as it is with kernels of your own.

    noise_variance_ : float
        Variance of the noise, averaged over kernels, one number for all places, on the squared
        scale of y. Where a place has a scale of its own (more than 400 rows), or noise varies with
        the prediction, the variance of an observation may be below it.

    log_predictive_density_ : float
        Average log density of training rows, each left out in turn, under normal distributions
        with the moments of `predict`, on the scale of y. It estimates what `predict` is worth on
        new rows, and compares models of the same y; a bound on the evidence it is not. NaN if
        hyperparameters are not learned.

    feature_importances_ : ndarray of shape (n_features,)
        Mean squared derivative of the predictive mean, over at most 1,000 training rows, times the
        variance of the input; with a sum of one, or all zero where predictions are constant. It is
        computed when it is asked for.

    feature_importances_std_ : ndarray of shape (n_features,)
        Standard deviation of these shares between the kernels and hyperparameters that predictions
        average over; zero if these are one.

    n_iter_ : int
        Number of kernels trained.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`.

    n_features_in_ : int
        Number of inputs.

    n_outputs_ : int
        Number of outputs. Of several ones, what describes a model is a list or an array with one
        entry for each; with a learned `output_covariance` or shared `output_hyperparameters`, that
        is `noise_variance_` alone. The others are those of the model of all outputs, but
        that `log_predictive_density_`, `noise_variance_` and importances are of whoever predicts
        an output.

    learns_from_others_ : ndarray of shape (n_outputs,)
        Whether each output is predicted by the model of all of them. False where
        `output_covariance` is None, and where a model of its own is better.

    output_covariance_ : ndarray of shape (n_outputs, n_outputs)
        Prior covariance of the outputs' functions at one place, on the squared scale of y, averaged
        over kernels and, if it depends on the place, over at most 1,000 training rows. Diagonal
        where `output_covariance` is None; otherwise that of the model of all outputs, also of those
        that it does not predict. It is computed when it is asked for.

    Notes
    -----
    X may have missing entries (NaN) in memory: each is an uncertain input, given the row's others.
    Rows of a Dask collection have none; the user guide's page about scaling says what else they
    cannot have. Weights and forgetting need kernels without a :class:`~skvbgp.kernels.White` part.

    `partial_fit` knows new rows at once. Hyperparameters are learned again, from all rows, in every
    call as long as fewer than 32 were known, and then whenever their number has doubled, or before:
    when they become too many for all to be neighbours, or if they are few and their scale has
    changed. With `forgetting`, it is from then on whenever as many rows are new as had been seen
    before or, if that is less, as the window has, or as it takes a row to count a twentieth; in a
    window, after a change of the function, as many have to be new since then. The global part is
    learned again with them, and stays as it is in between. The categories of inputs are those of
    the first call.

    With more rows than neighbours, ``return_cov`` gives the variances that ``return_std`` gives,
    and correlations given the rows that are near to any of the rows asked for.

    See :doc:`/theory/gp` for the model, :doc:`/theory/gp_choices` for what was measured.

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

    _parameter_constraints: dict[str, Any] = {
        **COMMON,
        **JOINT_OUTPUTS,
        "output_hyperparameters": [StrOptions({"own", "shared"})],
        "normalize_y": ["boolean"],
    }

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        n_neighbors: int | str = "auto",
        n_inducing: int | str | None = "auto",
        categorical_features: Any = None,
        output_covariance: str | None = None,
        output_hyperparameters: str = "own",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def loo_predict(self) -> tuple[Array, Array]:
        """Predict each training row from the others.

        The hyperparameters, the belief in the kernels, and the mean and the unit of y are those of
        all rows. Up to as many rows as neighbours, it is exact and costs no more than a prediction;
        with more, a row is predicted from its nearest others.

        Returns
        -------
        mean, std : ndarray of shape (n_samples_seen,) or (n_samples_seen, n_outputs)
            Predictive moments of the observations, on the scale of y, in the order in which the
            rows were given. Equal rows of a call are left out together; those of weight 0, what was
            not observed and what a stream has forgotten are NaN.

        Raises
        ------
        TypeError
            If the model has its rows on Dask's workers.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X[:100], y[:100])
        >>> mean, std = model.loo_predict()
        >>> mean.shape
        (100,)
        """
        self._posterior()  # with the `n_jobs` of now
        with single_blas_thread:
            mean, variance = self._state.leave_out_all()
        return mean, np.sqrt(variance)

    @property
    def output_covariance_(self) -> Array:
        """Prior covariance of the outputs' functions at one place, (n_outputs, n_outputs)."""
        check_is_fitted(self)
        return self._state.covariance

    def summary(self) -> str:
        """Describe what has been learned in words.

        Returns
        -------
        text : str
            The kernels with the belief in them, and the noise.
        """
        check_is_fitted(self)
        known = self.kernels_, self.kernel_posterior_, self.noise_variance_
        if self.n_outputs_ == 1:
            return _describe("The function", *known)
        if isinstance(self.kernel_posterior_, list):
            parts = enumerate(zip(*known, strict=True))
            return "\n".join(_describe(f"Output {j}", *part) for j, part in parts)
        lines, apart = [_describe("Every output", *known)], ~self.learns_from_others_ & self._joins
        lines += [f"Output {j} has a model of its own." for j in np.flatnonzero(apart)]
        return "\n".join(lines)

    # -- hooks of the templates --------------------------------------------------------------------

    _needs_variation = _learns_of_columns = False
    _counts_zeros = True
    _joint_learner = GPJointLearner

    @property
    def _joins(self) -> bool:
        return self._form == _JOINT

    @property
    def _outputs_learner(self) -> type[GPOutputsLearner]:
        return GPOutputsLearner if self._form == _OWN else SharedLearner

    @property
    def _takes_gaps(self) -> bool:
        return self.n_inducing in ("auto", None, 0)

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any, streams: bool = False
    ) -> tuple[Any, Any]:
        """`Rows` and their targets, or what has been observed of each of several outputs."""
        self._check_places(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        X, y = self._read_rows(X, y, reset=reset)
        self._bind_form(reset=reset)
        if isinstance(X, ShardedColumns):
            return SpreadRows.at(X.rows), y
        t = self.n_outputs_
        weight, variance = as_weights(sample_weight, len(y)), as_noise(y_var, y.shape)
        learner = self._learner()
        if streams:
            weight = learner.forgetting.weigh(weight)
        is_weighted = sample_weight is not None or learner.forgetting.fades

        def make(X: Array, y: Array, weight: Array, variance: Array) -> tuple[Rows, Array]:
            rows = learner.make_rows(X, y, weight, variance, is_weighted)
            if streams and learner.forgetting.fades:
                rows = rows.newest(None)
            return rows, rows.y

        if t == 1:
            return make(X, y, weight, variance)
        if self._joins:
            seen = ~np.isnan(y.ravel())
            each = np.nan_to_num(y.ravel()), np.repeat(weight, t) * seen, variance.ravel()
            return make(lengthen(X, t), *each)
        return Observations.of(
            y, weight, lambda rows, j: make(X[rows], y[rows, j], weight[rows], variance[rows, j])
        )

    def _prepare_after(self, n: int, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Any, Any]:
        rows, targets = self._prepare(X, y, reset=False, streams=True, **metadata)
        if isinstance(rows, Observations):
            index = tuple(known + n for known in rows.index)
            return replace(rows, n=rows.n + n, index=index), targets
        return rows.beginning_after(n * (self.n_outputs_ if self._joins else 1)), targets

    def _bind_form(self, *, reset: bool) -> None:
        """Note how several outputs go together, which streams and warm starts do not change."""
        names = "output_covariance", "output_hyperparameters"
        form = tuple(getattr(self, name) for name in names)
        if form == ("learned", "shared"):
            raise ValueError(
                'output_hyperparameters="shared" is for outputs that are models each: with '
                'output_covariance="learned" they share the kernels, and each has its noise.'
            )
        form = _OWN if self.n_outputs_ == 1 else form
        before = form if reset and not self.warm_start else getattr(self, "_form", form)
        for name, now, then in zip(names, form, before, strict=True):
            if now != then:
                raise ValueError(f"{name} has changed since the outputs were learned.")
        self._form = form

    def _check_collections(self) -> None:
        for name, is_used in [
            ("output_covariance", self.output_covariance is not None),
            ("output_hyperparameters", self.output_hyperparameters != "own"),
            ("forgetting", self.forgetting != 1.0),
        ]:
            if is_used:
                raise TypeError(f"{name} needs rows in memory, not Dask collections.")

    @property
    def _keeps_on_workers(self) -> bool:
        return isinstance(getattr(self._state, "rows", None), SpreadRows)

    @property
    def _most_fetched(self) -> int:
        return self._learner().few

    def _learner(self) -> GPLearner:
        return GPLearner.of(
            self,
            forgetting=Forgetting(float(self.forgetting)),
            n_known=count_known(self),
            owners=self._owners,
        )


def _describe(name: str, kernels: list[tuple[str, Any]], belief: Array, noise: Any) -> str:
    shares: dict[str, float] = {}  # kernels of the same name may differ in their hyperparameters
    for (kernel, _), share in zip(kernels, belief.tolist(), strict=True):
        shares[kernel] = shares.get(kernel, 0.0) + share
    ranked = sorted(shares, key=lambda kernel: -shares[kernel])
    lines = [f"{name} is believed to have"]
    lines += [f"- {shares[one]:.2f}: {one}" for one in ranked if shares[one] >= _LEAST_SHARE]
    std = ", ".join(f"{one:.3g}" for one in np.sqrt(np.atleast_1d(noise)))
    return "\n".join([*lines, f"and noise of standard deviation {std}."])
