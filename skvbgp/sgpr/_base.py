"""Common part of the four regressors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp.base import (
    START_ROWS,
    at_one_place,
    choose_inducing_inputs,
    in_tiles,
    subsample,
)
from skvbgp.sgpr._bound import Evaluation, HyperPrior, Prior
from skvbgp.sgpr._data import Data, Target
from skvbgp.sgpr._draws import ClosedForm, CommonDraws, DrawRule, FreshDraws, quasi_normal
from skvbgp.sgpr._exact import ExactPosterior
from skvbgp.sgpr._initial import shorten
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._prediction import GlobalPredictor
from skvbgp.sgpr._remember import remember
from skvbgp.sgpr._start import StartingRegressor
from skvbgp.sgpr._state import Blocks, State
from skvbgp.sgpr._training import (
    Monitor,
    Trained,
    collapsed_bound,
    exact_bound,
    solve_full,
    solve_stochastic,
)

#: psi="auto" takes the closed form up to so many exponentials in one evaluation.
_CLOSED_FORM_EXPONENTIALS = 4_000_000
#: ... and up to so many inducing inputs in a prediction, where it is m^2 / 2 for a row.
_CLOSED_FORM_INDUCING = 128
#: Draws of Lambda where they are common to all rows.
_N_DRAWS = 8
#: ... or a single antithetic pair past so many rows, whose q(Lambda) is narrow.
_MANY_ROWS = 20_000
#: solver="auto" is "exact" up to so many rows, and "collapsed" up to so many.
_EXACT_ROWS = 500
_COLLAPSED_ROWS = 2_000
#: max_iter=None: iterations of L-BFGS; rows that the stochastic solver visits.
_LBFGS_ITERATIONS = 100
_VISITED_ROWS = 1_000_000
_VISITED_BLOCK_ROWS = 300_000
#: Step of the natural gradient on q(u).
_NATURAL_RATE = 0.3
#: Adam steps on new rows in one call of partial_fit.
_STREAM_STEPS = 10


class SparseRegressor(StartingRegressor):
    """Training and prediction of the family; a subclass says how the noise is correlated."""

    # -- what a subclass may override ------------------------------------------------

    def _group(self, data: Data, unit: Array) -> tuple[Data, Blocks | None]:
        """The data divided into groups, and the blocks if predictions need them.

        ``unit`` multiplies the scaled coordinates in which blocks are compact.
        """
        return data, None

    def _before_training(self, state: State, data: Data, rng: np.random.RandomState) -> Parameters:
        """Starting parameters of mini-batches, improved by what y or the groups of rows tell."""
        if self.length_scale is not None or self.hyperparameter_variance is not None:
            return state.parameters
        return shorten(state.model, state.parameters, data, state.seed)

    # -- fit -------------------------------------------------------------------------

    def _is_exact(self, n: int) -> bool:
        """Whether every row is an inducing input and the posterior is structured."""
        if self.solver != "auto":
            return self.solver == "exact"
        left_to_us = self.psi == "auto" and self.learn_hyperparameters
        return (
            left_to_us and self.inducing_inputs is None and n <= min(_EXACT_ROWS, self.n_inducing)
        )

    def _is_collapsed(self, n: int) -> bool:
        return self.solver == "collapsed" or (self.solver == "auto" and n <= _COLLAPSED_ROWS)

    def _max_passes(self, n: int) -> int:
        if not self.learn_hyperparameters:
            return 1
        if self.max_iter is not None:
            return self.max_iter
        if self._is_exact(n) or self._is_collapsed(n):
            return _LBFGS_ITERATIONS
        visited = _VISITED_BLOCK_ROWS if self._correlated else _VISITED_ROWS
        return max(2, round(visited / n))

    def _final_rule(self, data: Data, state: State) -> ClosedForm | CommonDraws:
        """How expectations are taken in the pass that ends a fit, and by the collapsed solver.

        Without learning, the choice must not depend on how the rows come in chunks.
        """
        if self.psi != "auto" or not self.learn_hyperparameters:
            return self._rule_of_chunks(state)
        m, d = state.parameters.U.shape
        if data.n_pairs * m**2 / 2 <= _CLOSED_FORM_EXPONENTIALS:
            return ClosedForm()
        n_draws = 2 if len(data) > _MANY_ROWS else _N_DRAWS
        return CommonDraws(quasi_normal(n_draws, d, state.seed))

    def _rule_of_chunks(self, state: State) -> ClosedForm | CommonDraws:
        """The same for rows that come in chunks of any size."""
        return self._rule_by_size(state, pairs_of_rows=self._correlated)

    def _rule_by_size(self, state: State, *, pairs_of_rows: bool) -> ClosedForm | CommonDraws:
        """A choice that depends on the number of inducing inputs alone."""
        m, d = state.parameters.U.shape
        cheap = m <= _CLOSED_FORM_INDUCING and not pairs_of_rows
        if self.psi == "closed_form" or (self.psi == "auto" and cheap):
            return ClosedForm()
        return CommonDraws(quasi_normal(_N_DRAWS, d, state.seed))

    def _stochastic_rule(self) -> DrawRule:
        return ClosedForm() if self.psi == "closed_form" else FreshDraws(self._correlated)

    def _train(self, state: State, X: Array, y: Array, progress: Any) -> State:
        data = Data(X, y, state.model.coordinates, state.target)
        if self._is_exact(len(data)):
            return self._train_exact(state, data, progress)
        data, blocks = self._group(data, state.parameters.nu)
        rng = np.random.RandomState(state.seed)
        state = replace(
            state,
            draw_rule=self._final_rule(data, state),
            blocks=blocks,
            kept_rows=(X, y) if self._is_too_little(X) else None,
        )

        def fitted(parameters: Parameters) -> State:
            memory = remember(
                state.model,
                parameters,
                data,
                state.draw_rule,
                rng=np.random.RandomState(state.seed),
                n_jobs=self.n_jobs,
            )
            return replace(state, parameters=parameters, memory=memory)

        return self._learned(
            state, fitted, lambda monitor: self._solve(state, data, rng, monitor), progress
        )

    def _is_too_little(self, X: Array) -> bool:
        """Whether the rows of later calls should be trained on together with these."""
        return (self.learn_hyperparameters and len(X) < START_ROWS) or at_one_place(X)

    def _train_exact(self, state: State, data: Data, progress: Any) -> State:
        if self.inducing_inputs is not None or len(data) > self.n_inducing:
            raise ValueError(
                "solver='exact' takes every row as an inducing input: inducing_inputs has to be "
                f"None, and n_inducing={self.n_inducing} at least the number of rows, {len(data)}."
            )
        rows = data.rows(slice(None))
        start = replace(state.parameters, U=np.unique(rows.X, axis=0))
        state = replace(state, parameters=start, kept_rows=(data.X, data.y))
        draws = quasi_normal(_N_DRAWS, start.U.shape[1] + 1, state.seed)
        posterior = ExactPosterior(state.model, start, rows, draws)

        def fitted(parameters: Parameters) -> State:
            return replace(state, parameters=parameters, exact=posterior.at(parameters))

        def solve(monitor: Monitor) -> Trained:
            return solve_full(
                exact_bound(posterior),
                state.model,
                start,
                free=start.spread({"U": 0.0, "noise_theta": 0.0}) > 0.0,
                max_iter=self._max_passes(len(data)),
                tol=self.tol,
                monitor=monitor,
            )

        return self._learned(state, fitted, solve, progress)

    def _learned(
        self,
        state: State,
        fitted: Callable[[Parameters], State],
        solve: Callable[[Monitor], Trained],
        progress: Any,
    ) -> State:
        """The state that ``fitted`` makes of the solver's parameters, or of the start's."""
        offset = state.summary.n * float(np.log(state.target.unit))
        lower_bounds: list[float] = []

        def finished(parameters: Parameters) -> State:
            n_iter = max(1, len(lower_bounds))
            return replace(fitted(parameters), lower_bounds=tuple(lower_bounds), n_iter=n_iter)

        def monitor(parameters: Parameters, lower_bound: float) -> bool:
            lower_bounds.append(lower_bound - offset)
            return progress.end_pass(lambda: self._reconstruction(finished(parameters)))

        if not self.learn_hyperparameters:
            return finished(state.parameters)
        return finished(solve(monitor).parameters)

    def _solve(
        self, state: State, data: Data, rng: np.random.RandomState, monitor: Monitor
    ) -> Trained:
        parameters, collapsed = state.parameters, self._is_collapsed(len(data))
        if not (collapsed or state.is_warm):
            parameters = self._before_training(state, data, rng)
        free = np.ones(len(parameters.pack()), dtype=bool)
        common = dict(max_iter=self._max_passes(len(data)), tol=self.tol, monitor=monitor)
        if collapsed:
            if len(parameters.U) >= len(data):  # every row is an inducing input
                free = parameters.spread({"U": 0.0}) > 0.0
            bound = collapsed_bound(state.model, data, state.draw_rule)
            return solve_full(bound, state.model, parameters, free=free, **common)
        return solve_stochastic(
            state.model,
            parameters,
            data,
            self._stochastic_rule(),
            free=free,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            natural_rate=_NATURAL_RATE,
            rng=rng,
            **common,
        )

    # -- partial_fit -----------------------------------------------------------------

    def _max_update_passes(self, state: State, X: Array, y: Array) -> int:
        if state.kept_rows is None:
            return 1
        return self._max_passes(state.summary.n + len(X))

    def _update(self, state: State, X: Array, y: Array, progress: Any) -> State:
        if state.kept_rows is not None:
            X = np.concatenate([state.kept_rows[0], X])
            y = np.concatenate([state.kept_rows[1], y])
            return self._train(self._start(X, y, cold=True), X, y, progress)
        rng = np.random.RandomState((state.seed + state.summary.n) % 2**32)
        summary = state.summary.merged(RunningScale.of(y[:, None]))
        state = self._in_frame(replace(state, summary=summary), self._target(summary))
        state = self._grown(state, X, rng)
        state = replace(state, draw_rule=self._rule_of_chunks(state))
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
            alpha_ratio = 1.0 if self.signal_std is None else ratio
            beta_ratio = alpha_ratio if self.hyperparameter_variance is None else ratio
            p = replace(p, alpha=p.alpha * alpha_ratio, beta=p.beta * beta_ratio**2)
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
        free = p.spread({"U": 0.0}) > 0.0
        adam = state.adam or AdamState.zeros(int(free.sum()))
        memory, target = state.memory, state.target_vector
        bounds = model.bounds(p)[free]
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
                x[free] = np.clip(x[free], *bounds.T)
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
            "n_samples_seen_": state.summary.n,
        }

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
        mean, covariance = self._predictor(state).joint(scaled)
        if include_noise:
            covariance.flat[:: len(X) + 1] += state.noise.marginal_variance(X)
        return state.target.original(mean), covariance * state.target.unit**2

    def _predictor(self, state: State) -> GlobalPredictor | ExactPosterior:
        if state.exact is not None:
            return state.exact
        rule = self._rule_by_size(state, pairs_of_rows=False)
        draws = quasi_normal(_N_DRAWS, state.parameters.U.shape[1], state.seed)
        return GlobalPredictor(state.parameters, state.prior, state.q, rule, draws)
