"""The learner: the search over all kernels, the belief about them, and more rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.order import draw_distinct
from skvbgp._core.owners import find_shared
from skvbgp._core.parallel import spread_each
from skvbgp._core.scaling import RunningScale, check_unit
from skvbgp._optim.ascent import EndPass, go_on, report_as
from skvbgp.base import Targets, choose_inducing_inputs, choose_rows, join_rows, merge_targets, pick
from skvbgp.kernel_selection._belief import kernel_belief
from skvbgp.kernel_selection._categories import ColumnsKernel, bind
from skvbgp.kernel_selection._posterior import KernelAverage, KernelModel, add_rows
from skvbgp.kernel_selection._rounds import N_FIRST, REACH, expect_bound, find_best, in_reach
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernel_selection._series import N_SERIES_KERNELS, list_series_kernels
from skvbgp.kernel_selection._settings import COLLAPSED_ITERATIONS, DENSE_ROWS, KernelSettings
from skvbgp.kernel_selection._start import SCREENING_ROWS, draw_sample
from skvbgp.kernel_selection._state import Candidate, LocalFit, State
from skvbgp.kernel_selection._targets import PlainTarget, count_variants, make_targets
from skvbgp.kernel_selection._training import (
    Climb,
    KernelFits,
    StochasticSettings,
    judge,
    screen,
    train_collapsed,
    train_series,
    train_stochastic,
)

#: n_inducing=None is every row up to `DENSE_ROWS`, and else fewer.
_SPARSE_INDUCING = 500
#: batch_size=None takes all rows at once, exactly, up to so many, and else mini-batches.
COLLAPSED_ROWS = 2_000
#: L-BFGS iterations by which kernels of a series are screened.
_SERIES_CLIMB = 20
#: Rows, the last ones, that kernels of a series are screened by.
_SERIES_ROWS = 400


@dataclass(frozen=True)
class VBKSLearner(KernelSettings):
    """The selection of a kernel by its settings."""

    # -- what the settings mean for n rows ---------------------------------------------

    def max_passes(self, y: Targets) -> int:
        """Largest number of tasks, each of which is for one kernel."""
        n_kernels = len(self.name_kernels()) * count_variants(self._name_transforms(False, y))
        if self._is_auto:  # which list it will be is not known
            n_series = N_SERIES_KERNELS * count_variants(self._name_transforms(True, y))
            n_kernels = max(n_kernels, n_series)
        return self._count_passes(n_kernels, y)

    def _count_passes(self, n_kernels: int, y: Targets) -> int:
        """The same of so many kernels."""
        n_trained = self._n_trained(n_kernels)
        if not self._is_collapsed(len(y)):
            rounds = self._plan_rounds(n_trained, len(y))
            return n_kernels + n_trained + 2 * sum(each.n_kernels for each in rounds)
        evaluated = 0 if self._knows_bounds(len(y)) and not self._is_auto else n_kernels
        return n_kernels + n_trained + evaluated

    def max_update_passes(self, state: State, X: Array, y: Targets) -> int:
        if state.rows is None:
            return 1
        y = state.rows[1].joined(y)  # the kernels of the state, or others that suit these rows
        return max(self.max_passes(y), self._count_passes(len(state.candidates), y))

    def _is_collapsed(self, n: int) -> bool:
        """Whether all rows are taken at once."""
        return self.batch_size is None and n <= COLLAPSED_ROWS

    def _knows_bounds(self, n: int) -> bool:
        """Whether the search for the hyperparameters ends with the bound itself."""
        return self._is_collapsed(n) and not self._is_gaussian

    # -- fit ---------------------------------------------------------------------------

    def start(
        self, X: Array, y: Targets, rng: np.random.RandomState, before: State | None
    ) -> State:
        return self._list_candidates(X, y, int(rng.randint(np.iinfo(np.int32).max)))

    def _list_candidates(self, X: Array, y: Targets, seed: int) -> State:
        """State before training: every kernel with every transform."""
        is_series = self._takes_series(X)
        pairs = list_series_kernels(X, y) if is_series else self.name_kernels()
        transforms = self._name_transforms(is_series, y)
        targets = make_targets(transforms, y, normalize=self.normalize_y)
        given = [
            (name, bind(kernel, X.shape[1], self.owners), target)
            for target in targets
            for name, kernel in pairs
        ]
        return self._frame(X, y, given, seed, is_series)

    def _frame(
        self,
        X: Array,
        y: Targets,
        given: Sequence[tuple[str, ColumnsKernel, PlainTarget]],
        seed: int,
        is_series: bool,
    ) -> State:
        """State before training, of some kernels each with a target."""
        n, d = X.shape
        rng = np.random.RandomState(seed)
        summary = RunningScale.of(X, y.weight)
        check_unit(summary.unit, "X")
        shared = find_shared(d, self.owners)  # columns that are as they are
        origin, unit = np.where(shared, 0.0, summary.mean), np.where(shared, 1.0, summary.unit)
        candidates = tuple(
            Candidate(name, kernel, Frame(origin, unit, target)) for name, kernel, target in given
        )
        m = self.n_inducing or (n if n <= DENSE_ROWS or is_series else _SPARSE_INDUCING)
        Z = None
        if not self._knows_bounds(n) or n > m:
            sample = choose_rows(n, rng)
            near = (np.asarray(X[sample]) - origin) / unit
            Z = choose_inducing_inputs(near, m, rng, pick(y.weight, sample)) * unit
        index = draw_distinct(n, min(n, COLLAPSED_ROWS), rng)
        scales = DataScales.of(*candidates[0].frame.scale(X[index], y[index]), self.owners)
        return State(
            candidates=candidates,
            log_jacobians=np.array([c.frame.target.log_jacobian(y) for c in candidates]),
            Z=Z,
            scales=scales,
            seed=seed,
            n=y.n_rows,
            rows=(np.array(X), replace(y, y=np.array(y.y))) if n <= COLLAPSED_ROWS else None,
            is_series=is_series,
        )

    def train(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        state = self.search(state, X, y, end_pass)
        state.warn_of_failures()
        return state

    def search(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        """Search for all hyperparameters, from the start."""
        fits = (LocalFit.fail("It was not reached."),) * len(state.candidates)
        search = self._begin(replace(state, fits=fits), X, y, end_pass)
        chosen = self._screen_series(search) if state.is_series else self._screen(search)
        self._train(search, chosen)
        return replace(self._conclude(search), n_screened=len(X))

    def _screen_series(self, search: KernelFits) -> list[int]:
        """Climb by the evidence of the last rows: the kernels near the best, by that of all."""
        state, every = search.state, range(len(search.state.fits))
        for frame, members in state.by_frame(every):
            X, y = frame.scale(search.X, search.y)
            last = np.sort(np.argsort(X[:, 0], kind="stable")[-_SERIES_ROWS:])
            climb = Climb(X[last], y[last], None, state.scales, _SERIES_CLIMB, self.tol)
            search.run(train_series, (climb,), members)
            if len(last) < len(X):
                search.improve(judge, (X, y, state.Z), members)
        bounds = search.state.local_bounds
        return in_reach(bounds, find_best(bounds, every, self._n_trained(len(every))))

    def _screen(self, search: KernelFits) -> list[int]:
        """Climb from many values by the bounds of a sample: the best kernels."""
        state, every = search.state, range(len(search.state.fits))
        every_row = self._is_collapsed(len(search.X))
        sample = draw_sample(state, search.X, search.y, every_row=every_row)
        bounds = np.empty(len(every))  # on y's scale, of the sample
        for frame, members in state.by_frame(every):
            settings = state.scales, self.n_restarts, self.tol, state.seed
            search.run(screen, (sample.scaled(frame), *settings), members)
            bounds[members] = frame.target.log_jacobian(sample.y)
        bounds += [fit.lower_bound for fit in search.state.fits]
        chosen = find_best(bounds, every, self._n_trained(len(every)))
        if not every_row:
            for frame, members in state.by_frame(chosen):
                # to the top, which takes Adam thousands of steps
                X, y, _, Z_climb, _ = sample.scaled(frame)
                climb = Climb(X, y, Z_climb, state.scales, COLLAPSED_ITERATIONS, self.tol)
                search.improve(train_collapsed, (climb, -np.inf), members)
        return chosen

    def _begin(self, state: State, X: Array, y: Targets, end_pass: EndPass = go_on) -> KernelFits:
        """The fits of a state, for tasks to replace; whoever listens hears of concluded states."""
        report = report_as(lambda now: self._conclude(self._begin(now, X, y)), end_pass)
        return KernelFits(state, X, y, self.n_jobs, report)

    def _train(self, search: KernelFits, chosen: list[int], share_new: float = 1.0) -> None:
        """Train the chosen kernels on all rows, at once or in rounds.

        They have been trained before on all but a share of the rows, which is new.
        """
        state, X, y = search.state, search.X, search.y
        if self._is_collapsed(len(X)):
            self._train_collapsed(search, chosen, share_new)
            return
        search.leave_all_but(chosen)
        rounds = self._plan_rounds(len(chosen), len(X), share_new)
        if rounds[0].n_kernels < len(chosen):
            search.evaluate()
        for each in rounds:
            chosen = find_best(search.state.local_bounds, chosen, each.n_kernels)
            settings = StochasticSettings(
                self._batch_rows, each.n_before, each.n_steps, self.learning_rate
            )
            for frame, members in state.by_frame(chosen):
                shared = (X, y, frame, state.Z, state.scales, settings, self._is_gaussian)
                search.improve(train_stochastic, (*shared, state.seed), members)
            search.evaluate()

    def _train_collapsed(self, search: KernelFits, chosen: list[int], share_new: float) -> None:
        """Train on all rows at once: first the best, then others as long as they may come near."""
        state, X, y = search.state, search.X, search.y
        first = chosen
        if not (self._trains_all or state.is_series):
            first = find_best(search.state.local_bounds, chosen, N_FIRST)
        target = -np.inf  # on y's own scale
        for some in (first, [i for i in chosen if i not in first]):
            for frame, members in state.by_frame(some):
                goal = share_new, target - state.log_jacobians[members[0]]
                search.improve(*self._choose_training(state, frame, X, y, *goal), members)
            target = np.max(search.state.local_bounds) - REACH

    # -- partial_fit -------------------------------------------------------------------

    def update(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        """The kernels on all rows while these are few, else the kept ones at fixed theta."""
        if y.remains < 1.0:
            state = state.faded(y.remains)
        if state.rows is None:
            state = self._update_kept(state, X, y)
            end_pass(lambda: state)
            return state
        n_new = len(X)
        X, y = merge_targets(*join_rows(state.rows, (X, y)))
        return self._train_on(state, X, y, min(1.0, n_new / len(X)), end_pass)

    def let_fade(self, state: State, share: float) -> State:
        if share == 1.0:
            return state
        state = state.faded(share)
        if state.rows is None:
            return self._judge_kept(state.keep(self.top_k))
        return self._train_on(state, *state.rows, 0.0, go_on)

    def _train_on(
        self, state: State, X: Array, y: Targets, share_new: float, end_pass: EndPass
    ) -> State:
        """Kernels that matter on all rows, from where they are, or a search from the start.

        The latter whenever the rows have doubled, as long as no search has seen as many as it takes
        of many. It is for the kernels of the state, which may have been pruned, or for those that
        suit the rows.
        """
        knows_few = state.n_screened < SCREENING_ROWS or state.is_series or self._trains_all
        begins = knows_few and len(X) >= 2 * state.n_screened
        if begins and self._is_auto:
            return self.train(self._list_candidates(X, y, state.seed), X, y, end_pass)
        given = [
            (name, kernel, frame.target.renewed(y, normalize=self.normalize_y))
            for name, kernel, frame in state.candidates
        ]
        fresh = self._frame(X, y, given, state.seed, state.is_series)
        if begins:
            return self.train(fresh, X, y, end_pass)
        fresh = replace(fresh, fits=state.fits, n_screened=state.n_screened)
        search = self._begin(fresh, X, y, end_pass)
        expected = expect_bound(state.bound_per_row, y.total, share_new)
        if (state.Z is None) != (fresh.Z is None):  # bounds are not of one kind
            expected = -np.inf
        chosen = self._choose_again(search, expected)
        self._train(search, chosen, 1.0 if knows_few else share_new)
        return self._conclude(search)

    def _choose_again(self, search: KernelFits, expected: float) -> list[int]:
        """The kernels that more rows train: the best, or only those near the first of them.

        The latter as long as that has the bound which rows so far make expect.
        """
        every = range(len(search.state.fits))
        if self._trains_all:
            return list(every)
        is_collapsed = self._is_collapsed(len(search.X))
        if is_collapsed:
            for frame, members in search.state.by_frame(every):
                shared = (*frame.scale(search.X, search.y), search.state.Z)
                search.improve(judge, shared, members)
        bounds = search.state.local_bounds
        chosen = find_best(bounds, every, self._n_trained(len(every)))
        if is_collapsed and bounds[chosen[0]] > expected:
            chosen = in_reach(bounds, chosen)
        return chosen

    def _update_kept(self, state: State, X: Array, y: Targets) -> State:
        """The kept kernels and the belief after more rows, at the same hyperparameters."""
        state = state.keep(self.top_k)
        tasks = [(model,) for model in state.models]
        models: list[KernelModel] = []
        spread_each(add_rows, tasks, models.append, n_jobs=self.n_jobs, shared=(X, y))
        jacobians = [c.frame.target.log_jacobian(y) for c in state.candidates]
        return self._judge_kept(
            replace(
                state,
                models=tuple(models),
                n=state.n + y.n_rows,
                log_jacobians=state.log_jacobians + jacobians,
            )
        )

    def _judge_kept(self, state: State) -> State:
        """The kept kernels, all that there are, with the bounds of their models."""
        pairs = zip(state.fits, state.models, strict=True)
        fits = (fit._replace(lower_bound=model._bound - fit.kl) for fit, model in pairs)
        return self._believe(replace(state, fits=tuple(fits)))

    # -- the belief ----------------------------------------------------------------------

    def _conclude(self, search: KernelFits) -> State:
        """Evaluate what is missing, form the belief and make the models of the best kernels."""
        X, y = search.X, search.y
        if not self._knows_bounds(len(X)):
            search.evaluate()
        state = search.state
        bounds = state.local_bounds
        if not np.isfinite(bounds).any():
            pairs = zip(state.candidates, state.fits, strict=True)
            reasons = "; ".join(f"{c.name}: {fit.failure}" for c, fit in pairs)
            raise NotPositiveDefiniteError(f"No kernel could be fitted. {reasons}")
        best = find_best(bounds, range(len(bounds)), self.top_k)
        kept = tuple(i for i in best if np.isfinite(bounds[i]))
        whole = self._begin(state, X, y)
        whole.evaluate(kept)
        fits = whole.state.fits
        Z = state.inducing_inputs(X)
        models = tuple(state.make_model(i, fits[i], Z) for i in kept)
        light = tuple(fit._replace(statistics=None) for fit in fits)
        return self._believe(replace(state, fits=light, kept=kept, models=models))

    def _believe(self, state: State) -> State:
        """The belief about all kernels, and about the kept ones alone."""
        bounds, settings = state.local_bounds, {"n_samples": self.n_samples, "seed": state.seed}
        belief = kernel_belief(bounds, **settings)
        weights = kernel_belief(bounds[list(state.kept)], **settings).posterior
        return replace(state, belief=belief, weights=weights)

    def prune(self, state: State, top_k: int) -> State:
        """The kept kernels of the highest bounds alone."""
        return self._believe(state.keep(top_k))

    # -- what the state says -------------------------------------------------------------

    def attributes(self, state: State) -> dict[str, Any]:
        assert state.belief is not None
        kernels = [
            (name, kernel.at(kernel.theta if fit.failure else fit.x[:-1]).of_inputs)
            for (name, kernel, _), fit in zip(state.candidates, state.fits, strict=True)
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
            "transforms_": [c.frame.target.transform for c in state.candidates],
            "n_iter_": max(fit.n_iter for fit in state.fits),
            "n_samples_seen_": state.n,
        }

    def posterior(self, state: State) -> KernelAverage:
        assert state.weights is not None
        return KernelAverage(state.models, state.weights, state.rows)
