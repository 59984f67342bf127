"""The learner of the family: which solver and which expectations, and what new rows change."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.scaling import Target
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.ascent import EndPass, Watch, go_on, report_as
from skvbgp._optim.convergence import note_call
from skvbgp.base import Gaps, Posterior, Targets, find_gaps, join_rows, merge_targets
from skvbgp.sgpr._block_posterior import BlockPosterior, ExactBlockPosterior
from skvbgp.sgpr._blocks import BlockRows, Division, KeptBlocks, divide
from skvbgp.sgpr._bound import Shared
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._gapped import admit_gaps
from skvbgp.sgpr._kernel_search import choose_for_new_rows, choose_noise_kernel, hides_f
from skvbgp.sgpr._memory import Memory, remember
from skvbgp.sgpr._nested import has_failed, solve_white, with_noise_kernel, without_noise_kernel
from skvbgp.sgpr._noise import Blocks, White
from skvbgp.sgpr._noise_choice import choose_again, choose_noise_variance
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._posterior import ExactPosterior, GlobalPosterior, SparseLatent
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, FixedRule
from skvbgp.sgpr._settings import N_DRAWS, Settings
from skvbgp.sgpr._sharded import ShardedData
from skvbgp.sgpr._spread import SpreadRows
from skvbgp.sgpr._spread_posterior import SpreadBlockPosterior
from skvbgp.sgpr._start import (
    Sample,
    choose_exact_inputs,
    choose_inputs,
    go_on_from,
    grow,
    shorten,
    start_cold,
    start_from_blocks,
)
from skvbgp.sgpr._state import State
from skvbgp.sgpr._training import (
    Reached,
    bound_start,
    refine,
    settle,
    solve_collapsed,
    solve_full,
    solve_stochastic,
)

#: Iterations of L-BFGS at the mean of Lambda.
_LBFGS_MEAN_ITERATIONS = 100
#: Step of the natural gradient on q(u).
_NATURAL_RATE = 0.3
#: Shares of the learning rate and of this step where f starts near its optimum, and where it starts
#: beside noise of blocks that has all of y, most of which it has to get back.
_CAREFUL = (0.1, 1.0 / 3.0)
_LOST_BLOCKS = (2.0, 1.0 / 3.0)


@dataclass(frozen=True)
class SparseLearner(Settings):
    """What a member of the family does with data."""

    # -- fit ---------------------------------------------------------------------------

    def start(
        self, X: Array, y: Targets, rng: np.random.RandomState, before: State | None
    ) -> State:
        if self.psi == "closed_form" and self._draws_pairs:
            raise ValueError(
                'psi="closed_form" has no expectations of pairs of rows with other categories, as '
                "the noise of blocks asks for: with categorical_features it has to be another one."
            )
        seed = int(rng.randint(np.iinfo(np.int32).max))
        sample = Sample.of(X, y.weight, rng)
        gaps = None
        if not self.structure.correlated:
            gaps = Gaps.of(sample.X)
            sample = sample._replace(X=gaps.fill(sample.X)[0])
        summary = y.scale
        target = Target.of_scale(summary, centred=self.normalize_y)
        if before is None:
            model, parameters = start_cold(self, sample, len(X), target, rng)
        else:
            ratio = before.target.unit / target.unit
            model, parameters = go_on_from(before.model, before.parameters, ratio)
            if isinstance(before.memory, Mixture) and not self._is_exact(len(X)):
                # those of "exact" are the rows that it has known, or belong to their noise alone
                U = choose_inputs(self, sample, len(X), model.coordinates, rng)
                parameters = replace(parameters, U=U)
        state = State(
            model=model,
            parameters=parameters,
            memory=None,
            reference=target,
            target=target,
            summary=summary,
            n_seen=y.n_rows,
            places=Places.none(X.shape[1]),
            knows_noise=y.variance is not None,
            draw_rule=ClosedForm(),
            seed=seed,
            is_warm=before is not None,
            gaps=gaps,
        )
        return self._admit(state, X, y.weight)

    def _admit(self, state: State, X: Array, weight: Array | None) -> State:
        """The state with new rows among its places, and with slopes of the inputs they lack."""
        new = Places.of(X, weight)
        new = new._replace(X=state.fill(new.X)[0])
        state = replace(state, places=state.places.joined(new))
        if state.gaps is None or isinstance(X, ShardedColumns):
            return state
        columns = tuple(np.flatnonzero(find_gaps(X)).tolist())
        model, parameters = admit_gaps(state.model, state.parameters, columns)
        if model is state.model:
            return state
        return replace(state, model=model, parameters=parameters, adam=None)

    def train(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        restarts_at = self.find_restart(X, y)
        kept = deepcopy((X, y)) if self.keeps_rows(X, restarts_at) else None  # theirs may change
        X, y = kept or (X, y)
        data, blocks = self._divide(state.gather(X, y), y, state.parameters.nu)
        state = replace(state, kept_rows=kept, restarts_at=restarts_at, blocks=blocks)
        watch = Watch(end_pass)
        learned = self._train(state, data, watch)
        if watch.stopped:
            return learned
        learned = self._rescue(state, learned, data)
        rule = self._rule_of_predictions(state)
        if self._has_rival and learned.model.structure.found and not state.is_warm:
            rival = replace(self, structure=Blocks())._train(state, data, watch)
            learned = choose_for_new_rows(learned, rival, data, rule)
        may_hide = not (self.local or watch.stopped) and self._may_be_white(state, data)
        if not (may_hide and hides_f(learned, data)):
            return learned
        if self.psi != "closed_form":  # with little noise, closed forms drown
            rule = self._common_draws(len(data), learned.parameters, state.seed)
        white = self._learn_white(state, learned, data, rule)
        rival = self._conclude(learned, data, learned.parameters, rule)
        return white if choose_for_new_rows(white, rival, data, rule) is white else learned

    def _train(self, state: State, data: Data, end_pass: EndPass) -> State:
        """The state after training on rows that are divided into its blocks."""
        if self._is_exact(len(data)):
            return self._train_exact(state, data, end_pass)
        rng = np.random.RandomState(state.seed)
        state, smooth = self._choose_noise_kernel(state, data)
        first, bound = self._begin(state, data, rng, smooth)
        rule = first.draw_rule
        improves = self.learn_hyperparameters and not state.is_warm
        state = replace(state, draw_rule=rule)

        def conclude(parameters: Parameters, rule: FixedRule = rule) -> State:
            return self._conclude(state, data, parameters, rule)

        # whether f has left its usual start for that of the noise
        moved = not np.array_equal(first.parameters.nu, state.parameters.nu)
        follows = self.structure.correlated and moved
        watch = Watch(end_pass)
        learned = self._learn(
            first, conclude, lambda end: self._solve(first, data, rng, follows, end), watch
        )
        rivals = [first.parameters] if follows and bound > learned.lower_bound else []
        structure = state.model.structure
        contains_white = structure.correlated and self.structure.is_open and not structure.found
        may_improve = contains_white and improves and not watch.stopped
        if may_improve and self._is_collapsed(len(data)):
            rule = self._rule_of_fit(data.undivided(), state.parameters, state.seed)
            limits = self.max_iter or _LBFGS_MEAN_ITERATIONS, self.tol
            white = solve_white(first, state.parameters, data, rule, learned, *limits)
            rivals += [] if white is None else [white]
        others = [conclude(p).with_passes_of(learned) for p in rivals]
        learned = max([learned, *others], key=lambda state: state.lower_bound)
        return choose_noise_variance(learned, data, conclude)

    def _begin(
        self, state: State, data: Data, rng: np.random.RandomState, smooth: Array | None
    ) -> tuple[State, float]:
        """What training starts from with the rule of its expectations, and the bound there.

        The bound is infinite where nobody has asked. Where f follows noise that is next to none,
        closed forms may drown in rounding errors. Then they are taken over draws or, if these drown
        as well or are not ours to choose, f starts as usual.
        """
        first, seed = state, state.seed
        if self.learn_hyperparameters and not state.is_warm:
            first = replace(state, parameters=self._improve_start(state, data, rng, smooth))
        p, rule = first.parameters, self._rule_of_fit(data, first.parameters, seed)
        is_sure = not (self.structure.correlated and self._is_collapsed(len(data)))
        if is_sure or not self.learn_hyperparameters:
            return replace(first, draw_rule=rule), np.inf
        draws = [] if self.psi == "closed_form" else [self._common_draws(len(data), p, seed)]
        packed = p.unpack(p.pack())  # as training has them: a rounding may decide
        for one in [rule, *draws]:
            try:
                bound = bound_start(state.model, data, one, packed) - state.log_unit
            except NotPositiveDefiniteError:
                continue
            return replace(first, draw_rule=one), bound
        return replace(state, draw_rule=self._rule_of_fit(data, state.parameters, seed)), np.inf

    def _rescue(self, state: State, learned: State, data: Data) -> State:
        """What white noise learns from the same start, where mini-batches of blocks have failed."""
        is_collapsed = self._is_collapsed(len(data))
        if is_collapsed or not self._may_be_white(state, data) or not has_failed(learned, data):
            return learned
        rule = self._rule_of_fit(data, learned.parameters, state.seed)
        rescued = self._learn_white(state, learned, data, rule)
        return max(learned, rescued, key=lambda state: state.lower_bound)

    def _may_be_white(self, state: State, data: Data) -> bool:
        """Whether blocks' noise is ours to choose, and white noise a part of what it may be."""
        is_ours = self.learn_hyperparameters and self.max_iter is None and not state.is_warm
        is_sparse = type(data) is Data and not self._is_exact(len(data))
        return self.structure.correlated and self.structure.is_open and is_ours and is_sparse

    def _learn_white(self, state: State, learned: State, data: Data, rule: FixedRule) -> State:
        """The state after training beside white noise, with a noise kernel of no amplitude."""
        white, rows = replace(self, structure=White(), local=False), data.undivided()
        trained = white._train(without_noise_kernel(state), rows, go_on)
        p = with_noise_kernel(trained.parameters, state)
        concluded = self._conclude(state, data, p, rule).with_passes_of(learned)
        return replace(concluded, draw_rule=rule)

    def _conclude(self, state: State, data: Data, parameters: Parameters, rule: FixedRule) -> State:
        """The state with other parameters, after a pass over the rows."""
        state = replace(state, parameters=parameters)
        return replace(state, memory=self._remember(state, data, rule))

    def _remember(self, state: State, data: Data, rule: FixedRule) -> Memory:
        """The memory of all rows, by a pass over them where they are."""
        shared = Shared(state.model, state.parameters, state.prior)
        if isinstance(data, ShardedData):
            return data.remember(shared, rule)
        return remember(shared, data, rule, n_jobs=self.n_jobs)

    def _train_exact(self, state: State, data: Data, end_pass: EndPass) -> State:
        if self.inducing_inputs is not None or not self.has_room(len(data)):
            raise ValueError(
                "solver='exact' takes every row as an inducing input: inducing_inputs has to be "
                f"None, and n_inducing={self.n_inducing} at least the number of rows, {len(data)}."
            )
        state, _ = self._choose_noise_kernel(state, data)
        rows = data.rows(slice(None))
        U = choose_exact_inputs(rows, state.seed, explained=self.structure.explained)
        start = replace(state.parameters, U=U)
        draws = quasi_normal(N_DRAWS, start.U.shape[1] + 1, state.seed)
        groups = [slice(None)] if data.blocks is None else data.blocks
        mixture = Mixture(state.model, start, rows, draws, tuple(groups))
        state = replace(state, parameters=start)

        def conclude(parameters: Parameters) -> State:
            return replace(state, parameters=parameters, memory=mixture.at(parameters))

        training = mixture.with_pairs() if self.structure.correlated else mixture

        def bound(parameters: Parameters) -> tuple[float, Parameters]:
            current = training.at(parameters)
            return current.lower_bound, current.gradient()

        def solve(end_pass: EndPass) -> Reached:
            return solve_full(
                bound,
                state.model,
                start,
                free=start.all_but("U"),
                max_iter=self.max_iterations(len(data)),
                tol=self.tol,
                end_pass=end_pass,
            )

        learned = self._learn(state, conclude, solve, end_pass)
        return choose_noise_variance(learned, data, lambda p, rule: conclude(p))

    def _choose_noise_kernel(self, state: State, data: Data) -> tuple[State, Array | None]:
        """What `choose_noise_kernel` finds, if there is a search; the default otherwise.

        The fit before, if training goes on from it, has chosen already.
        """
        if state.is_warm or not (self.learn_hyperparameters and self.structure.is_searched):
            return state, None
        return choose_noise_kernel(state, data)

    def _learn(
        self,
        state: State,
        conclude: Callable[[Parameters], State],
        solve: Callable[[EndPass], Reached],
        end_pass: EndPass,
    ) -> State:
        """The state that ``conclude`` makes of the solver's parameters, or of the start's."""

        def finish(reached: Reached) -> State:
            values = tuple(value - state.log_unit for value in reached.values)
            concluded = conclude(reached.parameters)
            return replace(concluded, lower_bounds=values, n_iter=max(1, len(values)))

        if not self.learn_hyperparameters:
            return finish(Reached(state.parameters, ()))
        return finish(solve(report_as(finish, end_pass)))

    def _solve(
        self, state: State, data: Data, rng: np.random.RandomState, follows: bool, end_pass: EndPass
    ) -> Reached:
        parameters, max_iter = state.parameters, self.max_iterations(len(data))
        if self._is_collapsed(len(data)):
            rule = state.draw_rule
            if isinstance(rule, CommonDraws) and self.max_iter is None:
                max_iter = min(max_iter, _LBFGS_MEAN_ITERATIONS)
            reached = solve_collapsed(
                state.model,
                parameters,
                data,
                rule,
                max_iter=max_iter,
                tol=self.tol,
                end_pass=end_pass,
            )
            found = settle(state.model, reached.parameters, data, rule)
            return reached._replace(parameters=found)
        shares = _LOST_BLOCKS if self.loses_blocks else (1.0, 1.0)
        adam_share, natural_share = _CAREFUL if follows else shares
        return solve_stochastic(
            state.model,
            parameters,
            data,
            self._rule_of_steps(),
            free=parameters.all_but(),
            max_iter=max_iter,
            batch_size=self.batch_size,
            learning_rate=adam_share * self.learning_rate,
            natural_rate=natural_share * _NATURAL_RATE,
            tol=self.tol,
            rng=rng,
            end_pass=end_pass,
        )

    def _improve_start(
        self, state: State, data: Data, rng: np.random.RandomState, smooth: Array | None
    ) -> Parameters:
        """Starting parameters, improved by what y or the blocks of rows tell."""
        p, free = state.parameters, self.length_scale is self.hyperparameter_variance is None
        if isinstance(self.structure, Blocks):
            follow = free and self.signal_std is None and self.structure.is_open
            return start_from_blocks(state.model, p, data, rng, follow=follow, smooth=smooth)
        if free and not self._is_collapsed(len(data)):
            return shorten(state.model, p, data, state.seed)
        return p

    def _divide(
        self, data: Data, y: Targets, unit: Array
    ) -> tuple[Data, KeptBlocks | Division | None]:
        """The data divided into blocks, if noise is correlated, and what is kept of these."""
        if not self.structure.correlated:
            return data, None
        return divide(data, y, self.count_blocks(len(data)), unit, keeps=self.local)

    # -- partial_fit -------------------------------------------------------------------

    def rows_to_restart(self, state: State, X: Array, y: Targets) -> tuple[Array, Targets] | None:
        known = state.faded(y.remains).all_rows
        if known is None or (isinstance(X, ShardedColumns) and state.restarts_at > 0):
            return None
        if isinstance(X, ShardedColumns):
            raise TypeError(
                "The model knows few rows, in memory, with which it would begin again: fit a "
                "collection of all of them."
            )
        n = len(known[1]) + len(X) if self.forgetting == 1.0 else state.n_seen + y.n_rows
        if n < state.restarts_at and not self.has_variation(known[0], X):
            return None
        return merge_targets(*join_rows(known, (X, y)))

    def let_fade(self, state: State, share: float) -> State:
        return state.faded(share)

    def update(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        rng = np.random.RandomState((state.seed + int(state.summary.n)) % 2**32)
        state, data = self._join(state, X, y, rng)
        memory = state.sums  # with rows that are known exactly, a stream begins again
        if self.learn_hyperparameters and not (self.structure.correlated and state.restarts):
            rate = self.learning_rate
            state = refine(state, data, batch_size=self.batch_size, learning_rate=rate, rng=rng)
        if state.is_scattered:
            state, data = self._divide_again(state)
            memory = Memory.empty(state.prior)
        data = replace(data, target=state.reference)
        chunk = self._remember(state, data, state.draw_rule)
        known = replace(state, memory=memory.carry_to(state.prior).plus(chunk))
        end_pass(lambda: known)
        return replace(known, lower_bounds=note_call(known.lower_bounds, known.lower_bound))

    def _join(
        self, state: State, X: Array, y: Targets, rng: np.random.RandomState
    ) -> tuple[State, Data]:
        """The state with new rows, of which its memory does not know yet, and these."""
        state = state.faded(y.remains).having_seen(y)
        target = Target.of_scale(state.summary, centred=self.normalize_y)
        state = self._change_frame(state, target)
        if self.inducing_inputs is None:
            filled, _ = state.fill(X)
            state = grow(state, filled, y.weight, self.count_inducing(state.n_seen), rng)
        state = self._admit(state, X, y.weight)
        data = state.gather(X, y)
        kept: Any = state.blocks if self.local else None
        data, blocks = self._divide(data, y, state.parameters.nu if kept is None else kept.unit)
        rows, restarts_at = state.kept_rows, state.restarts_at
        if isinstance(X, ShardedColumns):
            rows, restarts_at = None, np.inf
        elif rows is not None:
            rows = join_rows(rows, (X, y))
            rows = rows if self.keeps_rows(rows[0], restarts_at) else None
        joined = replace(
            state,
            draw_rule=self._rule_by_size(state.parameters, state.seed),
            blocks=None if kept is None else kept.plus(blocks),
            kept_rows=rows,
            restarts_at=restarts_at,
        )
        return joined, data

    def _divide_again(self, state: State) -> tuple[State, Data]:
        """The state whose blocks, and the noise that these allow, are of all rows, and these."""
        assert state.all_rows is not None
        X, y = state.all_rows
        data, blocks = self._divide(state.gather(X, y), y, state.parameters.nu)
        state = replace(state, blocks=blocks)
        if self.learn_hyperparameters:
            remembered = replace(data, target=state.reference)
            state = choose_again(state, data, partial(self._conclude, state, remembered))
        return state, data

    def _change_frame(self, state: State, target: Target) -> State:
        """The state after the mean and the unit of y have been refined.

        Learned noise, and what the user has fixed on y's own scale, stays there, and so does all
        noise of rows if some of it is known. The signal, and what came "from the data", is
        relative to the unit and moves with it: new rows that are larger have to be in its reach.
        """
        ratio = state.target.unit / target.unit
        p, memory, model = state.parameters, state.sums, state.model
        learns = self.learn_hyperparameters
        if not learns:
            alpha_ratio = 1.0 if self.signal_std is None else ratio
            beta_ratio = alpha_ratio if self.hyperparameter_variance is None else ratio
            p = replace(p, alpha=p.alpha * alpha_ratio, beta=p.beta * beta_ratio**2)
        if learns or self.noise_variance is not None or state.knows_noise:
            p = replace(p, noise_variance=p.noise_variance * ratio**2)
            if state.learned_noise is not None:
                state = replace(state, learned_noise=state.learned_noise * ratio**2)
            memory = memory.rescale_noise(ratio**2)
            model = replace(model, structure=model.structure.rescale(ratio**2))
        return replace(state, target=target, parameters=p, memory=memory, model=model)

    # -- outputs that stay apart -------------------------------------------------------

    def knowing(self, state: State, X: Array, y: Targets) -> State:
        """The state that knows some of its rows alone, at its q(theta), noise, inducing inputs."""
        data = state.gather(X, y)
        if isinstance(state.memory, Mixture):
            return replace(state, memory=replace(state.memory, rows=data.rows(slice(None))))
        data = replace(data, target=state.reference)
        return replace(state, memory=self._remember(state, data, state.draw_rule))

    # -- what a state says -------------------------------------------------------------

    def attributes(self, state: State) -> dict[str, Any]:
        return state.attributes

    def posterior(self, state: State) -> Posterior:
        mixture, blocks = state.memory, state.blocks
        if isinstance(mixture, Mixture):
            if not self.local:
                return ExactPosterior(state, mixture)
            assert isinstance(blocks, BlockRows)
            mixture = mixture.with_draws(self.n_samples, state.seed)
            return ExactBlockPosterior(state, blocks, mixture)
        if isinstance(blocks, SpreadRows):
            return SpreadBlockPosterior.of(state, blocks, self.n_samples)
        if isinstance(blocks, BlockRows):
            return BlockPosterior.of(state, blocks, self.n_samples)
        return GlobalPosterior(state, SparseLatent.of(state, self._rule_of_predictions(state)))

    def _rule_of_predictions(self, state: State) -> FixedRule:
        return self._rule_by_size(state.parameters, state.seed, predicts=True)
