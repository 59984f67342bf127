"""Common part of the four regressors."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp.base import Interval, StrOptions, VariationalRegressor, as_column_vector, in_tiles
from skvbgp.kernels import Kernel
from skvbgp.sgpr._bound import Evaluation, HyperPrior, Model, Prior
from skvbgp.sgpr._data import Coordinates, Data, Target
from skvbgp.sgpr._draws import ClosedForm, CommonDraws, DrawRule, FreshDraws, quasi_normal
from skvbgp.sgpr._initial import choose_inducing_inputs, subsample
from skvbgp.sgpr._memory import Memory
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._prediction import GlobalPredictor
from skvbgp.sgpr._state import Blocks, State
from skvbgp.sgpr._training import Trained, remember, solve_collapsed, solve_stochastic

#: psi="auto" takes the closed form up to so many exponentials in one evaluation.
_CLOSED_FORM_EXPONENTIALS = 4_000_000
#: ... and up to so many inducing inputs in a prediction, where it is m^2 / 2 for a row.
_CLOSED_FORM_INDUCING = 128
#: Draws of Lambda where they are common to all rows.
_N_DRAWS = 8
#: solver="auto" is the exact one up to so many rows.
_COLLAPSED_ROWS = 2_000
#: max_iter=None: iterations of the exact solver; rows that the stochastic one visits.
_COLLAPSED_ITERATIONS = 100
_VISITED_ROWS = 1_000_000
_VISITED_BLOCK_ROWS = 300_000
#: Step of the natural gradient on q(u).
_NATURAL_RATE = 0.1
#: Adam steps on new rows in one call of partial_fit.
_STREAM_STEPS = 10


class SparseRegressor(VariationalRegressor):
    """Training and prediction of the family; a subclass says how the noise is correlated."""

    _parameter_constraints: dict[str, list[Any]] = {
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "inducing_inputs": ["array-like", None],
        "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "signal_std": [Interval(Real, 0, None, closed="neither"), None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
        "hyperparameter_variance": [Interval(Real, 0, None, closed="neither"), None],
        "prior_mean": [Interval(Real, None, None, closed="neither"), "array-like"],
        "prior_variance": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "solver": [StrOptions({"auto", "collapsed", "stochastic"})],
        "psi": [StrOptions({"auto", "closed_form", "sampled"})],
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

    #: Whether rows of one group have correlated noise.
    _correlated = False

    def __init__(
        self,
        n_inducing=500,
        *,
        inducing_inputs=None,
        length_scale=None,
        signal_std=None,
        noise_variance=None,
        hyperparameter_variance=None,
        prior_mean=0.0,
        prior_variance=1.0,
        solver="auto",
        psi="auto",
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=2048,
        learning_rate=0.02,
        tol=1e-5,
        normalize_y=True,
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        self.n_inducing = n_inducing
        self.inducing_inputs = inducing_inputs
        self.length_scale = length_scale
        self.signal_std = signal_std
        self.noise_variance = noise_variance
        self.hyperparameter_variance = hyperparameter_variance
        self.prior_mean = prior_mean
        self.prior_variance = prior_variance
        self.solver = solver
        self.psi = psi
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -- what a subclass may override ------------------------------------------------

    def _start_noise_kernel(
        self, scale: Array, noise_variance: float
    ) -> tuple[Kernel | None, bool]:
        """Noise kernel for inputs of spread ``scale``, or None.

        Also whether it is the user's own, whose amplitude is on y's scale like
        ``noise_variance`` (if that is given) rather than on the scaled target's.
        """
        return None, False

    def _group(self, data: Data, unit: Array) -> tuple[Data, Blocks | None]:
        """The data divided into groups, and the blocks if predictions need them.

        ``unit`` multiplies the scaled coordinates in which blocks are compact.
        """
        return data, None

    def _before_training(self, state: State, data: Data, rng: np.random.RandomState) -> Parameters:
        """Starting parameters, improved by what only the groups of rows can tell."""
        return state.parameters

    # -- fit -------------------------------------------------------------------------

    def _start(self, X: Array, y: Array) -> State:
        if self.warm_start and hasattr(self, "_state"):
            return self._state
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        sample = subsample(X, rng)
        summary = RunningScale.of(y[:, None])
        target = self._target(summary)
        coordinates, U = self._start_inputs(sample, rng)
        d = X.shape[1]
        nu = np.full(d, 2.0 / np.sqrt(d))
        if self.length_scale is not None:
            nu = coordinates.scale / as_column_vector(self.length_scale, d, "length_scale")
        rms = float(np.hypot(summary.std[0], summary.mean[0] - target.mean)) / target.unit
        alpha = rms if rms > 0.0 else 1.0
        noise_variance = 0.1 * alpha**2
        if self.signal_std is not None:
            alpha = self.signal_std / target.unit
        if self.noise_variance is not None:
            noise_variance = self.noise_variance / target.unit**2
        xi, beta = 1e-2 * nu**2, 1e-2 * alpha**2
        if self.hyperparameter_variance is not None:
            xi = self.hyperparameter_variance * coordinates.scale**2
            beta = self.hyperparameter_variance / target.unit**2
        kernel, given = self._start_noise_kernel(coordinates.scale, noise_variance)
        on_own_scale = given and self.noise_variance is not None
        noise_scale = 1.0 / target.unit**2 if on_own_scale else 1.0
        theta = np.empty(0) if kernel is None else kernel.theta
        parameters = Parameters(nu, xi, alpha, beta, noise_variance, theta, U)
        hyperprior = HyperPrior(
            np.broadcast_to(np.asarray(self.prior_mean, dtype=float), (d + 1,)).copy(),
            as_column_vector(self.prior_variance, d + 1, "prior_variance"),
        )
        model = Model(coordinates, hyperprior, kernel, self._correlated, noise_scale)
        return State(
            model=model,
            parameters=parameters,
            memory=Memory.empty(Prior(parameters)),
            reference=target,
            target=target,
            summary=summary,
            draw_rule=ClosedForm(),
            seed=seed,
        )

    def _start_inputs(self, sample: Array, rng: np.random.RandomState) -> tuple[Coordinates, Array]:
        """Coordinates, and inducing inputs in them.

        The frame is that of the given inducing inputs, if there are any: it does not
        depend on which rows come first in a stream.
        """
        coordinates = Coordinates.of(sample)
        if self.inducing_inputs is None:
            return coordinates, choose_inducing_inputs(
                coordinates.scaled(sample), self.n_inducing, rng
            )
        given = check_array(self.inducing_inputs, dtype=np.float64, input_name="inducing_inputs")
        if given.shape[1] != sample.shape[1]:
            raise ValueError(
                f"inducing_inputs has {given.shape[1]} columns, but X has {sample.shape[1]}."
            )
        own = RunningScale.of(given)
        unit = np.where(own.std > 0.0, own.unit, coordinates.scale)
        coordinates = Coordinates(own.mean, unit)
        return coordinates, coordinates.scaled(given)

    def _target(self, summary: RunningScale) -> Target:
        if not self.normalize_y:
            return Target(0.0, 1.0)
        return Target(float(summary.mean[0]), float(summary.unit[0]))

    def _is_collapsed(self, n: int) -> bool:
        return self.solver == "collapsed" or (self.solver == "auto" and n <= _COLLAPSED_ROWS)

    def _max_passes(self, n: int) -> int:
        if not self.learn_hyperparameters:
            return 1
        if self.max_iter is not None:
            return self.max_iter
        if self._is_collapsed(n):
            return _COLLAPSED_ITERATIONS
        visited = _VISITED_BLOCK_ROWS if self._correlated else _VISITED_ROWS
        return max(2, -(-visited // n))

    def _training_rule(self, data: Data, state: State) -> DrawRule:
        """How the expectations are taken during a fit."""
        m, d = state.parameters.U.shape
        collapsed = self._is_collapsed(len(data)) or not self.learn_hyperparameters
        if self.psi != "sampled":
            if self._correlated:
                pairs = sum(len(block) ** 2 for block in data.blocks) * m**2 / 2
            else:
                pairs = min(len(data), len(data) if collapsed else self.batch_size) * m**2 / 2
            if self.psi == "closed_form" or (collapsed and pairs <= _CLOSED_FORM_EXPONENTIALS):
                return ClosedForm()
        if collapsed:
            return CommonDraws(quasi_normal(_N_DRAWS, d, state.seed))
        return FreshDraws(self._correlated)

    def _train(self, state: State, X: Array, y: Array, progress: Any) -> State:
        data = Data(X, y, state.model.coordinates, state.target)
        data, blocks = self._group(data, state.parameters.nu)
        rng = np.random.RandomState(state.seed)
        state = replace(state, draw_rule=self._training_rule(data, state), blocks=blocks)

        def finished(parameters: Parameters) -> State:
            memory = remember(
                state.model,
                parameters,
                data,
                state.draw_rule,
                rng=np.random.RandomState(state.seed),
                n_jobs=self.n_jobs,
            )
            return replace(state, parameters=parameters, memory=memory)

        if not self.learn_hyperparameters:
            return finished(state.parameters)

        def monitor(parameters: Parameters, _: float) -> bool:
            return progress.end_pass(lambda: self._reconstruction(finished(parameters)))

        trained = self._solve(state, data, rng, monitor)
        offset = len(data) * float(np.log(state.target.unit))
        return replace(
            finished(trained.parameters),
            lower_bounds=tuple(value - offset for value in trained.lower_bounds),
            n_iter=max(1, len(trained.lower_bounds)),
        )

    def _solve(self, state: State, data: Data, rng: np.random.RandomState, monitor: Any) -> Trained:
        parameters = self._before_training(state, data, rng)
        names = parameters.split(np.arange(len(parameters.pack())))
        free = np.ones(len(parameters.pack()), dtype=bool)
        common = dict(max_iter=self._max_passes(len(data)), tol=self.tol, monitor=monitor)
        if self._is_collapsed(len(data)):
            if len(parameters.U) >= len(data):  # every row is an inducing input
                free[names["U"].ravel()] = False
            return solve_collapsed(
                state.model, parameters, data, state.draw_rule, free=free, **common
            )
        return solve_stochastic(
            state.model,
            parameters,
            data,
            state.draw_rule,
            free=free,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            natural_rate=_NATURAL_RATE,
            rng=rng,
            **common,
        )

    # -- partial_fit -----------------------------------------------------------------

    def _update(self, state: State, X: Array, y: Array, progress: Any) -> State:
        rng = np.random.RandomState((state.seed + state.memory.n) % 2**32)
        summary = state.summary.merged(RunningScale.of(y[:, None]))
        state = self._in_frame(replace(state, summary=summary), self._target(summary))
        state = self._grown(state, X, rng)
        data = Data(X, y, state.model.coordinates, state.target)
        data, blocks = self._group(data, self._block_unit(state))
        if blocks is not None:
            state = replace(state, blocks=state.blocks.plus(blocks))
        if self.learn_hyperparameters:
            state = self._refined(state, data, rng)
        chunk = remember(
            state.model,
            state.parameters,
            replace(data, target=state.reference),
            state.draw_rule,
            rng=rng,
            n_jobs=self.n_jobs,
        )
        state = replace(state, memory=state.memory.carried_to(state.prior).plus(chunk))
        progress.end_pass(lambda: self._reconstruction(state))
        return replace(state, lower_bounds=(*state.lower_bounds, state.lower_bound))

    def _block_unit(self, state: State) -> Array:
        return state.parameters.nu if state.blocks is None else state.blocks.unit

    def _in_frame(self, state: State, target: Target) -> State:
        """The state after the mean and the unit of y have been refined.

        What came "from the data" is relative to the unit and moves with it. What the user
        has fixed on y's own scale stays there.
        """
        ratio = state.target.unit / target.unit
        p, memory, model = state.parameters, state.memory, state.model
        if not self.learn_hyperparameters:
            if self.signal_std is not None:
                p = replace(p, alpha=p.alpha * ratio, beta=p.beta * ratio**2)
            if self.noise_variance is not None:
                p = replace(p, noise_variance=p.noise_variance * ratio**2)
                memory = memory.with_noise_scaled(ratio**2)
                model = replace(model, noise_scale=model.noise_scale * ratio**2)
        return replace(state, target=target, parameters=p, memory=memory, model=model)

    def _grown(self, state: State, X: Array, rng: np.random.RandomState) -> State:
        """The state with inducing inputs at new places, while there is room for them."""
        room = self.n_inducing - len(state.parameters.U)
        if self.inducing_inputs is not None or room <= 0:
            return state
        U = state.parameters.U
        new = choose_inducing_inputs(state.model.coordinates.scaled(subsample(X, rng)), room, rng)
        new = new[[not np.any(np.all(u == U, axis=1)) for u in new]]
        grown = replace(state.parameters, U=np.concatenate([U, new]))
        return replace(state, parameters=grown, memory=state.memory.carried_to(Prior(grown)))

    def _refined(self, state: State, data: Data, rng: np.random.RandomState) -> State:
        """A few Adam steps on the hyperparameters: new rows, and the memory of the old.

        The belief q(theta) of the past is the prior of the update; the inducing inputs
        stay, because the memory lives on them.
        """
        p = state.parameters
        prior_then = HyperPrior(np.append(p.nu, p.alpha), np.append(p.xi, p.beta))
        model = replace(state.model, hyperprior=prior_then)
        x = p.pack()
        free = np.ones(len(x), dtype=bool)
        free[p.split(np.arange(len(x)))["U"].ravel()] = False
        adam = state.adam or AdamState.zeros(int(free.sum()))
        memory, target = state.memory, state.target_vector
        step_size = self.learning_rate * np.sqrt(min(1.0, len(data) / self.batch_size))
        rule = state.draw_rule
        for _ in range(_STREAM_STEPS):
            for batch, weight in data.minibatches(self.batch_size, rng):
                evaluation = Evaluation(model, p, batch, [rule(rows, rng) for rows in batch])
                carried = memory.carried_to(evaluation.prior)
                q = carried.q(p.alpha, p.second_moment, target).with_information(
                    weight * evaluation.information, weight * evaluation.shift
                )
                _, gradient = evaluation.gradient(
                    q, weight, past=lambda *args: memory.backward(*args, target)
                )
                x[free], adam = adam_ascent(
                    x[free], p.pack_gradient(gradient)[free], adam, step_size
                )
                p = p.unpack(x)
        return replace(state, parameters=p, adam=adam)

    # -- fitted attributes and prediction ----------------------------------------------

    def _attributes(self, state: State) -> dict[str, Any]:
        p, coordinates, unit = state.parameters, state.model.coordinates, state.target.unit
        return {
            "inverse_length_scale_mean_": p.nu / coordinates.scale,
            "inverse_length_scale_var_": p.xi / coordinates.scale**2,
            "signal_std_mean_": p.alpha * unit,
            "signal_std_var_": p.beta * unit**2,
            "noise_variance_": p.noise_variance * unit**2,
            "inducing_inputs_": coordinates.original(p.U),
            "lower_bound_": state.lower_bound,
            "lower_bounds_": list(state.lower_bounds) or [state.lower_bound],
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.memory.n,
        }

    def _reconstruction(self, state: State) -> dict[str, Any]:
        return self._attributes(state) | {"_state": state}

    def _prediction_rule(self, state: State) -> ClosedForm | CommonDraws:
        m, d = state.parameters.U.shape
        if self.psi == "closed_form" or (self.psi == "auto" and m <= _CLOSED_FORM_INDUCING):
            return ClosedForm()
        return CommonDraws(quasi_normal(_N_DRAWS, d, state.seed))

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        predictor = self._predictor(state)

        def moments(X: Array) -> tuple[Array, Array]:
            mean, variance = predictor.moments(state.model.coordinates.scaled(X))
            if include_noise:
                variance = variance + state.noise.marginal_variance(X)
            return state.target.original(mean), variance * state.target.unit**2

        return in_tiles(moments, X)

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        scaled = state.model.coordinates.scaled(X)
        draws = quasi_normal(_N_DRAWS, X.shape[1], state.seed)
        mean, covariance = self._predictor(state).joint(scaled, draws)
        if include_noise:
            covariance.flat[:: len(X) + 1] += state.noise.marginal_variance(X)
        return state.target.original(mean), covariance * state.target.unit**2

    def _predictor(self, state: State) -> GlobalPredictor:
        return GlobalPredictor(state.parameters, state.prior, state.q, self._prediction_rule(state))
