"""The regressor: constructor parameters, phases of training, partial_fit, predictions."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, RunningScale, Target, check_unit
from skvbgp.base import FormerRegressor, Interval, StrOptions, as_vector
from skvbgp.spectrum._blocks import Blocks
from skvbgp.spectrum._features import start_frequencies
from skvbgp.spectrum._posterior import Structure
from skvbgp.spectrum._prediction import Predictor
from skvbgp.spectrum._state import Hyperparameters, State
from skvbgp.spectrum._training import final_bound, fit_blocks, fit_bound, updated

#: Rows of a block for n_blocks="auto": fewer than the features of the default spectrum.
_BLOCK_ROWS = 60
#: max_iter=None: rows that each phase visits, and most passes.
_VISITED_ROWS = {"blocks": 1_500_000, "bound": 120_000}
_MOST_PASSES = 300
#: Up to so many rows, partial_fit trains again whenever their number has doubled.
_RETRAINED_ROWS = 1_000
#: Most entries of alpha whose joint covariance is formed: 0.2 GB a matrix.
_MOST_JOINT = 5_000


class SVBSSGPRegressor(FormerRegressor):
    """Stochastic variational Bayesian sparse spectrum Gaussian process (sVBSSGP).

    The kernel is a sum of cosines, k(x, x') = sigma_s^2 / m sum_i cos(2 pi r_i' (x - x')).
    The m frequencies r_i and the weights s of their cosines and sines have a joint Gaussian
    posterior. Predictions combine the global function, phi(x)' s, with the Gaussian process of
    the rows in the new row's own block of the training data [Hoang2017]_.

    Parameters
    ----------
    n_frequencies : int, default=100
        Number m of frequencies; there are twice as many features.

    gamma : float, default=0.0
        Between -1 and 1: 0 predicts from the rows of the new row's block, 1 from the global
        function alone, values between from both. May be changed after `fit`.

    posterior : {"joint", "factorised", "point"}, default="joint"
        One Gaussian of all frequencies and weights (sVBSSGP); independent r_1, ..., r_m and
        s (VSSGP); or frequencies without uncertainty (SSGP). "joint" needs
        n_frequencies * (n_features + 2) <= 5,000: its cost grows with the cube of that.

    objective : {"blocks", "bound"}, default="blocks"
        What the means of the frequencies and sigma_s^2 maximise: the evidence of every block
        as a Gaussian process of its own, which is the model that gamma=0 predicts with, or
        the variational bound like all the rest, as in [Hoang2017]_.

    n_blocks : "auto" or int, default="auto"
        Number of blocks that the rows are divided into, by location. "auto" makes blocks of
        about 60 rows.

    n_samples : int, default=20
        Draws of frequencies and weights in prediction. May be changed after `fit`.

    length_scale : float or array-like of shape (n_features,), default=None
        Starting length scales, in the units of X. None is the spread of each input times
        the square root of their number.

    signal_variance : float, default=None
        Starting sigma_s^2, on the squared scale of y. None is the variance of y.

    noise_variance : float, default=None
        Starting sigma_n^2 and starting noise of the local conditional, on the squared scale
        of y. None is a tenth of the variance of y.

    learn_hyperparameters : bool, default=True
        False keeps the length scales and variances at their start. With posterior="point",
        frequencies are hyperparameters, too.

    max_iter : int, default=None
        Largest number of passes over the data in each phase of training. None is as many as
        visit 1,500,000 rows (120,000 when the bound is maximised), from 2 to 300.

    batch_size : int, default=512
        Rows in a mini-batch of blocks.

    learning_rate : float, default=0.02
        First step size of Adam on the evidence of the blocks; it falls to zero along a
        cosine.

    tol : float, default=0.0
        Stop a phase when the average of its objective over 100 steps rises by less than this
        share of itself. 0 takes all passes, which the falling step sizes are made for.

    normalize_y : bool, default=True
        Whether to work with y of zero mean (that of the first call). Everything that is
        returned is on y's own scale.

    warm_start : bool, default=False
        Whether `fit` starts from the frequencies and hyperparameters of the fit before.

    random_state : int, RandomState instance or None, default=None
        Determines starting frequencies, mini-batches and draws.

    n_jobs : int, default=None
        Has no effect: training steps depend on each other, and predictions run on the
        threads of BLAS.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_frequencies, n_features)
        Posterior mean of the frequencies, in units of 1 / X.

    q_mean_ : ndarray of shape (n_frequencies * (n_features + 2),)
        Posterior mean b of alpha = vec(theta, s): frequencies in units of 1 / X, row by row,
        then the weights of cos(2 pi r_1' u), sin(2 pi r_1' u), cos(2 pi r_2' u), ... on the
        scale of y, where u is X minus `input_mean_`.

    q_chol_ : ndarray of shape (n_frequencies * (n_features + 2),) * 2
        Lower triangular M of alpha = M z + b, in the same order and units. Formed at each
        access; an AttributeError where M would have more than 5,000 rows.

    input_mean_ : ndarray of shape (n_features,)
        Origin of the features: the mean of X in the first call.

    length_scale_ : ndarray of shape (n_features,)
        Length scales l of the prior r_i ~ N(0, 1 / (2 pi l)^2), in the units of X.

    signal_variance_, noise_variance_ : float
        sigma_s^2 and sigma_n^2, on the squared scale of y.

    local_noise_variance_ : float
        Noise of the local conditional, learned from the evidence of the blocks.

    lower_bound_ : float
        Variational lower bound on log p(y), with every constant (for "point" on
        log p(y | theta)). An average over draws.

    lower_bounds_ : list of float
        The bound in each pass that maximises it, and after each `partial_fit`.

    n_iter_ : int
        Number of passes, of both phases.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`.

    n_features_in_ : int
        Number of inputs.

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
        "posterior": [StrOptions({"joint", "factorised", "point"})],
        "objective": [StrOptions({"blocks", "bound"})],
        "n_blocks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "signal_variance": [Interval(Real, 0, None, closed="neither"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "learn_hyperparameters": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        n_frequencies=100,
        *,
        gamma=0.0,
        posterior="joint",
        objective="blocks",
        n_blocks="auto",
        n_samples=20,
        length_scale=None,
        signal_variance=None,
        noise_variance=None,
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=512,
        learning_rate=0.02,
        tol=0.0,
        normalize_y=True,
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        self.n_frequencies = n_frequencies
        self.gamma = gamma
        self.posterior = posterior
        self.objective = objective
        self.n_blocks = n_blocks
        self.n_samples = n_samples
        self.length_scale = length_scale
        self.signal_variance = signal_variance
        self.noise_variance = noise_variance
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -- start -------------------------------------------------------------------------

    def _start(self, X: Array, y: Array) -> State:
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        coordinates, summary = Coordinates.of(X), RunningScale.of(y[:, None])
        mean = float(summary.mean[0]) if self.normalize_y else 0.0
        target = Target(mean, float(summary.unit[0]))
        check_unit(coordinates.scale, "X")
        check_unit(target.unit, "y")
        self._check_size(X.shape[1])
        before = getattr(self, "_state", None)
        if before is None or not self.warm_start:
            R, hyper = self._cold_start(coordinates.scale, target.unit, seed)
        else:
            R, hyper = self._warm_start(before, coordinates.scale, target.unit)
        return State(coordinates, target, hyper, R, seed)

    def _cold_start(self, scale: Array, unit: float, seed: int) -> tuple[Array, Hyperparameters]:
        """Frequencies and hyperparameters from the data, or as the user gives them."""
        d = len(scale)
        length_scale = np.full(d, np.sqrt(d))
        if self.length_scale is not None:
            length_scale = as_vector(self.length_scale, d, "length_scale", positive=True) / scale
        # one division after the other: the square of the unit may be too large a number
        signal = 1.0 if self.signal_variance is None else self.signal_variance / unit / unit
        noise = 0.1 if self.noise_variance is None else self.noise_variance / unit / unit
        values = np.array([*length_scale, signal, noise])
        if not (np.all(values > 1e-100) and np.all(values < 1e100) and signal < 1e14 * noise):
            raise ValueError(
                "The starting length_scale, signal_variance or noise_variance is out of range "
                "for these data: it is too far from their spread, or the noise is too small for "
                "the signal. Rescale X or y, or leave it to the data."
            )
        R = start_frequencies(self.n_frequencies, length_scale, np.random.RandomState(seed))
        return R, Hyperparameters(length_scale, signal, noise, noise)

    def _warm_start(
        self, before: State, scale: Array, unit: float
    ) -> tuple[Array, Hyperparameters]:
        """Frequencies and hyperparameters of the fit before, on the data's scale."""
        structure = before.q.structure
        if (structure.m, structure.d) != (self.n_frequencies, len(scale)):
            raise ValueError(
                f"warm_start: the fit before had {structure.m} frequencies of {structure.d} "
                f"features, but now there are {self.n_frequencies} of {len(scale)}."
            )
        stretch, ratio = scale / before.coordinates.scale, (before.target.unit / unit) ** 2
        hyper = before.hyper
        return structure.frequencies(before.q.mean) * stretch, Hyperparameters(
            hyper.length_scale / stretch,
            hyper.signal_variance * ratio,
            hyper.noise_variance * ratio,
            hyper.local_noise_variance * ratio,
        )

    # -- fit ---------------------------------------------------------------------------

    def _structure(self, d: int) -> Structure:
        return Structure(self.n_frequencies, d, self.posterior)

    def _check_size(self, d: int) -> None:
        size = self._structure(d).size
        if self.posterior == "joint" and size > _MOST_JOINT:
            raise ValueError(
                f'posterior="joint" of {self.n_frequencies} frequencies of {d} features has a '
                f"covariance of {size} x {size}, more than {_MOST_JOINT} x {_MOST_JOINT}: take "
                'posterior="factorised" or "point", or a smaller n_frequencies.'
            )

    def _phase_passes(self, n: int) -> dict[str, int]:
        """Largest number of passes of each phase that the callbacks are told about."""
        passes = {
            phase: self.max_iter or int(np.clip(round(rows / n), 2, _MOST_PASSES))
            for phase, rows in _VISITED_ROWS.items()
        }
        if not self._trains_blocks:
            passes["blocks"] = 0
        return passes

    @property
    def _trains_blocks(self) -> bool:
        return self.learn_hyperparameters and self.objective == "blocks"

    def _max_passes(self, n: int) -> int:
        return sum(self._phase_passes(n).values())

    def _train(self, state: State, X: Array, y: Array, progress: Any) -> State:
        n = len(y)
        n_blocks = max(1, round(n / _BLOCK_ROWS)) if self.n_blocks == "auto" else self.n_blocks
        blocks = Blocks.of(X, y, state.coordinates, state.target, min(n_blocks, n))
        state = replace(state, blocks=blocks, n=n, n_trained=n)
        n_passes = 0
        if self._trains_blocks:

            def monitor(R: Array, hyper: Hyperparameters) -> bool:
                return progress.end_pass(
                    lambda: self._reconstruction(self._fit_q(replace(state, R=R, hyper=hyper)))
                )

            R, hyper, n_passes = self._fit_blocks(state, noise_only=False, monitor=monitor)
            state = replace(state, R=R, hyper=hyper)
        state = self._fit_q(state, progress)
        return replace(state, n_iter=state.n_iter + n_passes)

    def _fit_blocks(self, state: State, *, noise_only: bool, monitor: Any = None) -> Any:
        passes = np.clip(round(_VISITED_ROWS["blocks"] / state.n), 2, _MOST_PASSES)
        return fit_blocks(
            state.R,
            state.hyper,
            state.blocks,
            noise_only=noise_only,
            max_iter=self.max_iter or int(passes),
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tol=self.tol,
            rng=np.random.RandomState(state.seed),
            monitor=monitor,
        )

    def _fit_q(self, state: State, progress: Any = None) -> State:
        """The posterior around the frequencies, and with objective="bound" these as well."""
        structure = self._structure(state.R.shape[1])
        moves = self.objective == "bound" and (
            self.learn_hyperparameters or self.posterior != "point"
        )
        offset = state.n * float(np.log(state.target.unit))
        lower_bounds: list[float] = []

        def monitor(q: Any, hyper: Hyperparameters, lower_bound: float) -> bool:
            lower_bounds.append(lower_bound - offset)
            if progress is None:
                return False
            reached = replace(
                state,
                q=q,
                hyper=hyper,
                lower_bound=lower_bounds[-1],
                lower_bounds=tuple(lower_bounds),
            )
            return progress.end_pass(lambda: self._reconstruction(reached))

        q, hyper, _ = fit_bound(
            structure,
            state.R,
            state.hyper,
            state.blocks,
            moves_frequencies=moves,
            learns=self.learn_hyperparameters,
            max_iter=self._phase_passes(state.n)["bound"],
            batch_size=self.batch_size,
            tol=self.tol,
            rng=np.random.RandomState(state.seed),
            monitor=monitor,
        )
        state = replace(state, q=q, hyper=hyper, R=structure.frequencies(q.mean))
        if self.learn_hyperparameters and self.objective == "bound":
            hyper = self._fit_blocks(state, noise_only=True).hyper
            state = replace(state, hyper=hyper)
        bound = final_bound(q, hyper, state.blocks, np.random.RandomState(state.seed)) - offset
        return replace(
            state,
            lower_bound=bound,
            lower_bounds=tuple(lower_bounds),
            n_iter=max(1, len(lower_bounds)),
        )

    # -- partial_fit -------------------------------------------------------------------

    def _is_retrained(self, state: State, n_new: int) -> bool:
        return state.n < _RETRAINED_ROWS and state.n + n_new >= 2 * state.n_trained

    def _max_update_passes(self, state: State, X: Array, y: Array) -> int:
        if self._is_retrained(state, len(X)):
            return self._max_passes(state.n + len(X))
        return 1

    def _update(self, state: State, X: Array, y: Array, progress: Any) -> State:
        if self._is_retrained(state, len(y)):
            X_old, y_old = state.blocks.all_rows()
            X = np.concatenate([state.coordinates.original(X_old), X])
            y = np.concatenate([state.target.original(y_old), y])
            return self._train(self._start(X, y), X, y, progress)
        X, scaled = state.coordinates.scaled(X), state.target.scaled(y)
        rng = np.random.RandomState((state.seed + state.n) % 2**32)
        q, change = updated(state.q, state.hyper.noise_variance, X, scaled, rng)
        change -= len(y) * float(np.log(state.target.unit))
        bound = state.lower_bound + change
        state = replace(
            state,
            q=q,
            blocks=state.blocks.plus(X, scaled),
            n=state.n + len(y),
            lower_bound=bound,
            lower_bounds=(*state.lower_bounds, bound),
        )
        progress.end_pass(lambda: self._reconstruction(state))
        return state

    # -- fitted attributes and prediction ------------------------------------------------

    def _attributes(self, state: State) -> dict[str, Any]:
        q, hyper, unit = state.q, state.hyper, state.target.unit
        scale = state.coordinates.scale
        return {
            "frequencies_": q.structure.frequencies(q.mean) / scale,
            "q_mean_": q.mean * state.units,
            "input_mean_": state.coordinates.offset.copy(),
            "length_scale_": hyper.length_scale * scale,
            "signal_variance_": hyper.signal_variance * unit**2,
            "noise_variance_": hyper.noise_variance * unit**2,
            "local_noise_variance_": hyper.local_noise_variance * unit**2,
            "lower_bound_": state.lower_bound,
            "lower_bounds_": list(state.lower_bounds),
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.n,
        }

    @property
    def q_chol_(self) -> Array:
        """M; no attribute that is kept, because the factorised q would not fit in memory."""
        q = self._state.q
        if len(q.mean) > _MOST_JOINT:  # scikit-learn's HTML display reads every property
            raise AttributeError(f"q_chol_ would have {len(q.mean)} rows, over {_MOST_JOINT}.")
        return q.cholesky(self._state.units)

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        predictor, state = Predictor(self._state, self.gamma, self.n_samples), self._state
        mean, variance = predictor.moments(state.coordinates.scaled(X))
        if include_noise:
            variance = variance + predictor.noise_variance
        return state.target.original(mean), variance * state.target.unit**2

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        predictor, state = Predictor(self._state, self.gamma, self.n_samples), self._state
        mean, covariance = predictor.joint(state.coordinates.scaled(X))
        if include_noise:
            covariance.flat[:: len(X) + 1] += predictor.noise_variance
        return state.target.original(mean), covariance * state.target.unit**2
