"""Variational Bayesian kernel selection."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale, Target, check_unit
from skvbgp.base import (
    FormerRegressor,
    Interval,
    StrOptions,
    choose_inducing_inputs,
    subsample,
)
from skvbgp.kernel_selection._bound import parameters
from skvbgp.kernel_selection._frame import Frame
from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._local import LocalFit
from skvbgp.kernel_selection._model import mixture_joint, mixture_moments
from skvbgp.kernel_selection._start import DataScales
from skvbgp.kernel_selection._state import State
from skvbgp.kernel_selection._training import COLLAPSED_ROWS, Monitor, Trainer
from skvbgp.kernel_selection._words import describe
from skvbgp.kernels import Kernel, as_kernel

#: n_inducing=None is every row up to so many rows, and else fewer.
_DENSE_ROWS = 1_000
_SPARSE_INDUCING = 500


class VBKSRegressor(FormerRegressor):
    """Sparse Gaussian process regression that learns a belief about its kernel (VBKS).

    Each kernel of a list gets a sparse Gaussian process of its own, whose variational lower
    bound L_i on the log evidence tells how well it explains the data; from the bounds follows
    a posterior belief about the kernels, by which the predictions of the best ones are
    averaged [Teng2020]_. By default the list holds the 144 kernels that sums and products of
    three base kernels make. The kernels are fitted in parallel.

    Kernels see the inputs about their mean and in their own units, so that length scales and
    periods are in the units of X. Starting values, and bounds that are left at their default,
    come from the data: periods from the spectrum of y.

    Parameters
    ----------
    kernels : "grammar" or list, default="grammar"
        "grammar" is ``kernel_grammar(depth)``. Otherwise (name, kernel) pairs or kernels, of
        :mod:`skvbgp.kernels` or scikit-learn. Free hyperparameters are searched for anew,
        within their bounds.

    depth : int, default=3
        Largest number of base kernels in one kernel of the grammar.

    n_inducing : int, default=None
        Number of inducing inputs. None is every row up to 1,000 rows (exact Gaussian
        processes), and 500 above.

    hyperparameter_posterior : {"point", "gaussian"}, default="point"
        "point" estimates the hyperparameters by the maximum of L_i; "gaussian" learns a
        Gaussian q(theta) of their logarithms with a full covariance, at about sixteen times
        the cost.

    top_k : int, default=10
        Number of kernels that predictions average over.

    n_samples : int, default=2000
        Draws of q(g) that the belief is computed from.

    n_restarts : int, default=3
        Searches for the hyperparameters of each kernel. Each starts from the best of sixteen
        random values.

    max_iter : int, default=None
        Largest number of L-BFGS iterations that train a kernel, or of passes over the data
        with mini-batches. None is 60 iterations, or as many passes as visit about 300,000
        rows, but at least two.

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

    random_state : int, RandomState instance or None, default=None
        Determines starting values, inducing inputs, mini-batches and draws. All kernels share
        the same ones, so that they differ by what they explain alone.

    n_jobs : int, default=None
        Number of kernels fitted at the same time. It changes no result.

    Attributes
    ----------
    kernels_ : list of (str, Kernel)
        Names and kernels with their learned hyperparameters.

    kernel_posterior_ : ndarray of shape (n_kernels,)
        Belief about the kernels, eq. (13). A kernel that could not be fitted has none.

    g_mean_, g_cov_ : ndarray of shape (n_kernels,) and (n_kernels, n_kernels)
        Mean and covariance of q(g), whose softmax is the belief.

    local_lower_bounds_ : ndarray of shape (n_kernels,)
        L_i on all rows, with every constant.

    lower_bound_ : float
        Variational lower bound on log p(y) with the kernel unknown, eq. (8).

    best_kernel_ : tuple of (str, Kernel)
        The entry of `kernels_` with the highest bound.

    estimators_ : list of KernelModel
        Models of the kernels that predictions average over, by falling bound.

    estimator_weights_ : ndarray of shape (n_estimators,)
        Belief recomputed on these kernels alone: their weights in predictions.

    n_iter_ : int
        Largest number of iterations or passes of a kernel's training.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`.

    n_features_in_ : int
        Number of inputs.

    Warns
    -----
    RuntimeWarning
        If a kernel could not be fitted; it names the kernel.

    Notes
    -----
    `partial_fit` keeps the rows while they are at most 2,000 and trains all kernels further
    on all of them, from the start again whenever their number has doubled. With more rows,
    new ones are added to what the averaged kernels know, exactly and in any order, at the
    hyperparameters and inducing inputs of the fit; the other kernels are dropped.

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

    _parameter_constraints = {
        "kernels": [StrOptions({"grammar"}), "array-like"],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "hyperparameter_posterior": [StrOptions({"point", "gaussian"})],
        "top_k": [Interval(Integral, 1, None, closed="left")],
        "n_samples": [Interval(Integral, 2, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        kernels="grammar",
        *,
        depth=3,
        n_inducing=None,
        hyperparameter_posterior="point",
        top_k=10,
        n_samples=2000,
        n_restarts=3,
        max_iter=None,
        batch_size=None,
        learning_rate=0.03,
        tol=1e-7,
        normalize_y=True,
        random_state=None,
        n_jobs=None,
    ):
        self.kernels = kernels
        self.depth = depth
        self.n_inducing = n_inducing
        self.hyperparameter_posterior = hyperparameter_posterior
        self.top_k = top_k
        self.n_samples = n_samples
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -- training --------------------------------------------------------------------

    def _trainer(self) -> Trainer:
        return Trainer(
            self.hyperparameter_posterior == "gaussian",
            self.top_k,
            self.n_samples,
            self.n_restarts,
            self.max_iter,
            self.batch_size,
            self.learning_rate,
            self.tol,
            self.n_jobs,
        )

    def _max_passes(self, n: int) -> int:
        return self._trainer().n_tasks(n, len(self._named_kernels()))

    def _max_update_passes(self, state: State, X: Array, y: Array) -> int:
        return 1 if state.rows is None else self._max_passes(state.n + len(X))

    def _named_kernels(self) -> list[tuple[str, Kernel]]:
        if isinstance(self.kernels, str):
            return kernel_grammar(self.depth)
        pairs = [_named(entry) for entry in self.kernels]
        if not pairs:
            raise ValueError("kernels must not be empty.")
        return pairs

    def _start(self, X: Array, y: Array) -> State:
        names, kernels = zip(*self._named_kernels(), strict=True)
        return self._framed(X, y, names, kernels)

    def _framed(
        self, X: Array, y: Array, names: tuple[str, ...], kernels: tuple[Kernel, ...]
    ) -> State:
        """State before training: everything that only the data decide."""
        n, d = X.shape
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rng = np.random.RandomState(seed)
        summary, target = RunningScale.of(X), RunningScale.of(y[:, None])
        check_unit(summary.unit, "X")
        check_unit(target.unit, "y")
        frame = Frame(
            summary.mean,
            summary.unit,
            Target(float(target.mean[0]), float(target.unit[0]))
            if self.normalize_y
            else Target(0.0, 1.0),
        )
        is_collapsed = self._trainer().is_collapsed(n)
        m = self.n_inducing or (n if n <= _DENSE_ROWS else _SPARSE_INDUCING)
        Z = None
        if not is_collapsed or self.hyperparameter_posterior == "gaussian" or n > m:
            sample = (subsample(X, rng) - summary.mean) / summary.unit
            Z = choose_inducing_inputs(sample, m, rng) * summary.unit
        index = np.sort(rng.choice(n, min(n, COLLAPSED_ROWS), replace=False))
        scales = DataScales.of(*frame.scaled(X[index], y[index]))
        return State(
            names=tuple(names),
            kernels=tuple(kernel.bind(d) for kernel in kernels),
            frame=frame,
            Z=Z,
            scales=scales,
            seed=seed,
            n=n,
            rows=(X, y) if n <= COLLAPSED_ROWS else None,
        )

    def _train(self, state: State, X: Array, y: Array, progress: Any) -> State:
        state = self._trainer().train(state, X, y, self._monitor(state, X, y, progress))
        _warn_of_failures(state)
        return state

    def _monitor(self, state: State, X: Array, y: Array, progress: Any) -> Monitor:
        def monitor(fits: Sequence[LocalFit]) -> bool:
            def reconstruction() -> dict[str, Any]:
                now = self._trainer().concluded(state, X, y, fits, lambda _: False)
                return self._reconstruction(now)

            return progress.end_pass(reconstruction)

        return monitor

    def _update(self, state: State, X: Array, y: Array, progress: Any) -> State:
        trainer = self._trainer()
        if state.rows is None:
            state = trainer.updated(state, X, y)
            progress.end_pass(lambda: self._reconstruction(state))
            return state
        X = np.concatenate([state.rows[0], X])
        y = np.concatenate([state.rows[1], y])
        fresh = self._framed(X, y, state.names, state.kernels)
        monitor = self._monitor(fresh, X, y, progress)
        if len(X) >= 2 * state.n_screened:
            return self._train(fresh, X, y, progress)
        fresh = replace(fresh, fits=state.fits, n_screened=state.n_screened)
        return trainer.retrain(fresh, X, y, monitor)

    def prune(self, top_k):
        """Keep the kernels of the highest belief only, and recompute the belief about them.

        Parameters
        ----------
        top_k : int
            Number of kernels to keep.

        Returns
        -------
        self : object
            The estimator, whose fitted attributes are those of the kept kernels.
        """
        check_is_fitted(self)
        if not isinstance(top_k, Integral) or top_k < 1:
            raise ValueError(f"top_k must be a positive integer, got {top_k!r}.")
        self._state = self._trainer().pruned(self._state, top_k)
        for name, value in self._attributes(self._state).items():
            setattr(self, name, value)
        return self

    def summary(self):
        """Describe the best kernel in words.

        Returns
        -------
        text : str
            Its name and belief, and one line for each component of its functions.
        """
        check_is_fitted(self)
        name, kernel = self.best_kernel_
        best = self._state.kept[0]
        lines = [f"{name}, with belief {self.kernel_posterior_[best]:.2f}, is the sum of"]
        lines += [f"- {phrase}" for phrase in describe(kernel, self._state.scales.extent)]
        noise = np.sqrt(self.estimators_[0].noise_variance)
        return "\n".join([*lines, f"- noise of standard deviation {noise:.3g}"])

    # -- fitted attributes and prediction ----------------------------------------------

    def _attributes(self, state: State) -> dict[str, Any]:
        assert state.belief is not None
        kernels = [
            (name, kernel if fit.failure else parameters(kernel, fit.x)[0])
            for name, kernel, fit in zip(state.names, state.kernels, state.fits, strict=True)
        ]
        return {
            "kernels_": kernels,
            "kernel_posterior_": state.belief.posterior,
            "g_mean_": state.belief.mean,
            "g_cov_": state.belief.covariance,
            "local_lower_bounds_": state.local_bounds,
            "lower_bound_": state.belief.lower_bound,
            "best_kernel_": kernels[state.kept[0]],
            "estimators_": list(state.models),
            "estimator_weights_": state.weights,
            "n_iter_": max(fit.n_iter for fit in state.fits),
            "n_samples_seen_": state.n,
        }

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        parts = [model._moments(X, include_noise) for model in state.models]
        return mixture_moments(parts, state.weights)

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        return mixture_joint([m._joint(X, include_noise) for m in state.models], state.weights)


def _named(entry: Any) -> tuple[str, Kernel]:
    """Name and kernel of an entry of `kernels`; a kernel without a name is called as it prints."""
    if isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str):
        name, kernel = entry
        return name, as_kernel(kernel)
    return repr(entry), as_kernel(entry)


def _warn_of_failures(state: State) -> None:
    for name, fit in zip(state.names, state.fits, strict=True):
        if fit.failure:
            warnings.warn(
                f"Kernel {name!r} could not be fitted and gets no belief. {fit.failure}",
                RuntimeWarning,
                stacklevel=2,
            )
