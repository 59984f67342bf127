"""The learner: the search over all kernels, the belief about them, and more rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.parallel import spread_each
from skvbgp._core.scaling import RunningScale, check_unit
from skvbgp._optim.ascent import EndPass, go_on
from skvbgp.base import (
    RegressionLearner,
    Targets,
    choose_inducing_inputs,
    choose_rows,
    join_rows,
    merge_targets,
    pick,
)
from skvbgp.kernel_selection._belief import kernel_belief
from skvbgp.kernel_selection._bound import parameters
from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._posterior import KernelAverage, KernelModel, add_rows
from skvbgp.kernel_selection._rounds import Round, plan_rounds
from skvbgp.kernel_selection._sample import draw_sample
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernel_selection._series import N_SERIES_KERNELS, has_series, list_series_kernels
from skvbgp.kernel_selection._state import LocalFit, State
from skvbgp.kernel_selection._targets import TRANSFORMS, PlainTarget, count_targets, make_targets
from skvbgp.kernel_selection._training import (
    KernelFits,
    StochasticSettings,
    evaluate,
    judge,
    screen,
    train_collapsed,
    train_gaussian,
    train_series,
    train_stochastic,
)
from skvbgp.kernels import Kernel
from skvbgp.kernels._sklearn import name_kernel

#: n_inducing=None is every row up to so many rows, and else fewer.
_DENSE_ROWS = 1_000
_SPARSE_INDUCING = 500
#: batch_size=None takes all rows at once, exactly, up to so many, and else mini-batches.
COLLAPSED_ROWS = 2_000
_BATCH_ROWS = 1_024
#: max_iter=None: L-BFGS iterations on all rows; rows that mini-batches visit.
_COLLAPSED_ITERATIONS = 60
_SERIES_ITERATIONS = 100
#: L-BFGS iterations by which kernels of a series are screened.
_SERIES_CLIMB = 20
_VISITED_ROWS = 300_000
#: Rows, the last ones, that kernels of a series are screened by.
_SERIES_ROWS = 400
#: Fewest rows of a series of which logarithms are tried: fewer do not say how y grows.
_LOG_ROWS = 8
#: Nats below the best at which the kernel of a series is not trained further.
_HOPELESS = 20.0


@dataclass(frozen=True)
class VBKSLearner(RegressionLearner):
    """Settings of the selection of a kernel, by the names of the constructor parameters."""

    kernels: Any
    transforms: Any
    depth: int
    n_inducing: int | None
    hyperparameter_posterior: str
    n_trained: int | None
    top_k: int
    n_samples: int
    n_restarts: int
    max_iter: int | None
    batch_size: int | None
    learning_rate: float
    tol: float
    normalize_y: bool
    n_jobs: int | None

    # -- what the settings mean for n rows ---------------------------------------------

    def name_kernels(self) -> list[tuple[str, Kernel]]:
        """The list of kernels, each with a name, unless they are those of a series."""
        if isinstance(self.kernels, str):
            return kernel_grammar(self.depth)
        pairs = [name_kernel(entry) for entry in self.kernels]
        if not pairs:
            raise ValueError("kernels must not be empty.")
        return pairs

    def max_passes(self, y: Targets) -> int:
        """Largest number of tasks, each of which is for one kernel."""
        n_kernels = len(self.name_kernels()) * count_targets(self._name_transforms(False, y))
        if self._is_auto:  # which list it will be is not known
            n_series = N_SERIES_KERNELS * count_targets(self._name_transforms(True, y))
            n_kernels = max(n_kernels, n_series)
        n_trained = self._n_trained(n_kernels)
        if not self._is_collapsed(len(y)):
            rounds = self._plan_rounds(n_trained, len(y))
            return n_kernels + n_trained + 2 * sum(each.n_kernels for each in rounds)
        evaluated = 0 if self._knows_bounds(len(y)) and not self._is_auto else n_kernels
        return n_kernels + n_trained + evaluated

    def max_update_passes(self, state: State, X: Array, y: Targets) -> int:
        return 1 if state.rows is None else self.max_passes(state.rows[1].joined(y))

    def _is_collapsed(self, n: int) -> bool:
        """Whether all rows are taken at once."""
        return self.batch_size is None and n <= COLLAPSED_ROWS

    @property
    def _is_gaussian(self) -> bool:
        return self.hyperparameter_posterior == "gaussian"

    def _knows_bounds(self, n: int) -> bool:
        """Whether the search for the hyperparameters ends with the bound itself."""
        return self._is_collapsed(n) and not self._is_gaussian

    def _n_trained(self, n_kernels: int) -> int:
        """The best go on after the screening; all, if they have to get a q(theta)."""
        if self._is_gaussian or self.n_trained is None:
            return n_kernels
        return min(n_kernels, max(self.n_trained, self.top_k))

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
        targets = make_targets(transforms, y.y, y.weight, normalize=self.normalize_y)
        names, kernels = zip(*(pairs * len(targets)), strict=True)
        repeated = tuple(target for target in targets for _ in pairs)
        return self._frame(X, y, names, kernels, repeated, seed, is_series)

    @property
    def _is_auto(self) -> bool:
        """Whether the data choose the list of kernels."""
        return isinstance(self.kernels, str) and self.kernels == "auto"

    def _takes_series(self, X: Array) -> bool:
        """Whether the kernels are those of a series."""
        few = len(X) <= _DENSE_ROWS and self.n_inducing is None and self.batch_size is None
        return self._is_auto and few and not self._is_gaussian and has_series(X)

    def _name_transforms(self, is_series: bool, y: Targets) -> list[str]:
        """Transforms of y that the candidates have."""
        if isinstance(self.transforms, str):
            has_logs = is_series and len(y) >= _LOG_ROWS and y.variance is None
            return list(TRANSFORMS) if has_logs else ["identity"]
        names = list(dict.fromkeys(self.transforms))
        if not names or not set(names) <= set(TRANSFORMS):
            raise ValueError(f"transforms must be of {', '.join(TRANSFORMS)}; got {names!r}.")
        if y.variance is not None and names != ["identity"]:
            raise ValueError(
                f"y_var is a variance of y, and of no logarithm: it takes transforms='auto' or "
                f"['identity']; got {names!r}."
            )
        return names

    def _frame(
        self,
        X: Array,
        y: Targets,
        names: tuple[str, ...],
        kernels: tuple[Kernel, ...],
        targets: tuple[PlainTarget, ...],
        seed: int,
        is_series: bool,
    ) -> State:
        """State before training: everything that only the data decide."""
        n, d = X.shape
        rng = np.random.RandomState(seed)
        summary = RunningScale.of(X, y.weight)
        check_unit(summary.unit, "X")
        frames = tuple(Frame(summary.mean, summary.unit, target) for target in targets)
        m = self.n_inducing or (n if n <= _DENSE_ROWS or is_series else _SPARSE_INDUCING)
        Z = None
        if not self._knows_bounds(n) or n > m:
            sample = choose_rows(n, rng)
            near = (np.asarray(X[sample]) - summary.mean) / summary.unit
            Z = choose_inducing_inputs(near, m, rng, pick(y.weight, sample)) * summary.unit
        index = np.sort(rng.choice(n, min(n, COLLAPSED_ROWS), replace=False))
        scales = DataScales.of(*frames[0].scale(X[index], y[index]))
        return State(
            names=names,
            kernels=tuple(kernel.bind(d) for kernel in kernels),
            frames=frames,
            log_jacobians=np.array([target.log_jacobian(y.y, y.weight) for target in targets]),
            Z=Z,
            scales=scales,
            seed=seed,
            n=y.n_rows,
            rows=(np.array(X), replace(y, y=np.array(y.y))) if n <= COLLAPSED_ROWS else None,
            is_series=is_series,
        )

    def train(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        state = self.search(state, X, y, end_pass)
        _warn_of_failures(state)
        return state

    def search(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        """Search for all hyperparameters, from the start."""
        fits = [LocalFit.fail("It was not reached.")] * len(state.names)
        search = self._begin(state, X, y, fits, end_pass)
        every_row = self._is_collapsed(len(X))
        sample = None if state.is_series else draw_sample(state, X, y, every_row=every_row)
        settings = state.scales, self.n_restarts, self.tol, state.seed
        bounds = np.empty(len(fits))  # on y's scale, of the rows of the screening
        for frame, members in state.by_frame(range(len(fits))):
            if sample is None:
                self._screen_series(search, state, frame, members)
            else:
                rows = frame.scale(sample.X, sample.y)
                search.run(screen, (*rows, *sample[2:], *settings), members)
            screened = y if sample is None else sample.y
            bounds[members] = frame.target.log_jacobian(screened.y, screened.weight)
        bounds += [fit.lower_bound for fit in search.fits]
        order = np.argsort(-bounds, kind="stable")
        chosen = order[: self._n_trained(len(order))].tolist()
        if state.is_series:
            chosen = [i for i in chosen if bounds[i] > bounds[order[0]] - _HOPELESS]
        if sample is not None and not every_row:
            for frame, members in state.by_frame(chosen):
                # to the top, which takes Adam thousands of steps
                rows = frame.scale(sample.X, sample.y)
                climb = (*rows, sample.Z_climb, state.scales, _COLLAPSED_ITERATIONS, self.tol)
                search.improve(train_collapsed, climb, members)
        self._train(search, state, X, y, chosen)
        return self._conclude(replace(state, n_screened=len(X)), X, y, search)

    def _screen_series(
        self, search: KernelFits, state: State, frame: Frame, members: list[int]
    ) -> None:
        """Climb by the evidence of the last rows; L_i is that of all."""
        assert state.rows is not None
        X, y = frame.scale(*state.rows)
        last = np.sort(np.argsort(X[:, 0], kind="stable")[-_SERIES_ROWS:])
        shared = (X[last], y[last], state.scales, _SERIES_CLIMB, self.tol)
        search.run(train_series, shared, members)
        if len(last) < len(X):
            search.improve(judge, (X, y, state.Z), members)

    def _begin(
        self,
        state: State,
        X: Array,
        y: Targets,
        fits: Sequence[LocalFit],
        end_pass: EndPass = go_on,
    ) -> KernelFits:
        """Make the fits that tasks replace; whoever listens hears of concluded states."""
        return KernelFits(
            state.kernels,
            fits,
            self.n_jobs,
            lambda make: end_pass(
                lambda: self._conclude(state, X, y, self._begin(state, X, y, make()))
            ),
        )

    def _train(
        self, search: KernelFits, state: State, X: Array, y: Targets, chosen: list[int]
    ) -> None:
        """Train the chosen kernels on all rows, at once or in rounds."""
        if self._is_collapsed(len(X)):
            for frame, members in state.by_frame(chosen):
                search.improve(*self._choose_training(state, frame, X, y), members)
            return
        search.leave_all_but(chosen)
        for each in self._plan_rounds(len(chosen), len(X)):
            bounds = state.log_jacobians + search.bounds
            chosen = sorted(chosen, key=lambda i: -bounds[i])[: each.n_kernels]
            settings = StochasticSettings(
                self._batch_rows, each.n_before, each.n_steps, self.learning_rate
            )
            for frame, members in state.by_frame(chosen):
                shared = (X, y, frame, state.Z, state.scales, settings, self._is_gaussian)
                search.improve(train_stochastic, (*shared, state.seed), members)
            self._evaluate(search, state, X, y)

    @property
    def _batch_rows(self) -> int:
        return self.batch_size or _BATCH_ROWS

    def _plan_rounds(self, n_kernels: int, n: int) -> list[Round]:
        """Rounds of mini-batches."""
        n_passes = self.max_iter or max(2, round(_VISITED_ROWS / n))
        n_steps = n_passes * -(-n // self._batch_rows)
        at_once = self._is_gaussian or self.n_trained is None
        return list(plan_rounds(n_kernels, n_steps, at_once=at_once))

    def _choose_training(
        self, state: State, frame: Frame, X: Array, y: Targets
    ) -> tuple[Callable[..., LocalFit], tuple[Any, ...]]:
        """The training on all rows at once, and the arguments that all kernels share."""
        if state.is_series:
            max_iter = self.max_iter or _SERIES_ITERATIONS
            return train_series, (*frame.scale(X, y), state.scales, max_iter, self.tol)
        max_iter = self.max_iter or _COLLAPSED_ITERATIONS
        shared = (*frame.scale(X, y), state.Z, state.scales, max_iter, self.tol)
        if self._is_gaussian:
            return train_gaussian, (*shared, state.seed)
        return train_collapsed, shared

    # -- partial_fit -------------------------------------------------------------------

    def update(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        """All kernels on all rows while these are few, else the kept ones at fixed theta.

        Whenever the rows have doubled, the hyperparameters are searched for again: for the
        kernels of the state, which may have been pruned, or for those that suit the rows.
        """
        if y.remains < 1.0:
            state = state.faded(y.remains)
        if state.rows is None:
            state = self._update_kept(state, X, y)
            end_pass(lambda: state)
            return state
        X, y = merge_targets(*join_rows(state.rows, (X, y)))
        return self._train_on(state, X, y, end_pass)

    def let_fade(self, state: State, share: float) -> State:
        if share == 1.0:
            return state
        state = state.faded(share)
        if state.rows is None:
            return self._judge_kept(state.keep(self.top_k))
        return self._train_on(state, *state.rows, go_on)

    def _train_on(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        """All kernels on all rows, from where they are, or if the rows have doubled, the start."""
        has_doubled = len(X) >= 2 * state.n_screened
        if has_doubled and self._is_auto:
            return self.train(self._list_candidates(X, y, state.seed), X, y, end_pass)
        targets = tuple(
            frame.target.renewed(y.y, y.weight, normalize=self.normalize_y)
            for frame in state.frames
        )
        fresh = self._frame(X, y, state.names, state.kernels, targets, state.seed, state.is_series)
        if has_doubled:
            return self.train(fresh, X, y, end_pass)
        fresh = replace(fresh, fits=state.fits, n_screened=state.n_screened)
        search = self._begin(fresh, X, y, state.fits, end_pass)
        chosen = list(range(len(state.fits)))
        if not self._is_collapsed(len(X)):
            best = np.argsort(-state.local_bounds, kind="stable")
            chosen = best[: self._n_trained(len(best))].tolist()
        self._train(search, fresh, X, y, chosen)
        return self._conclude(fresh, X, y, search)

    def _update_kept(self, state: State, X: Array, y: Targets) -> State:
        """The kept kernels and the belief after more rows, at the same hyperparameters."""
        state = state.keep(self.top_k)
        tasks = [(model,) for model in state.models]
        models: list[KernelModel] = []
        spread_each(add_rows, tasks, models.append, n_jobs=self.n_jobs, shared=(X, y))
        jacobians = [frame.target.log_jacobian(y.y, y.weight) for frame in state.frames]
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

    def _conclude(self, state: State, X: Array, y: Targets, search: KernelFits) -> State:
        """Evaluate what is missing, form the belief and make the models of the best kernels."""
        if not self._knows_bounds(len(X)):
            self._evaluate(search, state, X, y)
        state = replace(state, fits=search.fits)
        bounds = state.local_bounds
        if not np.isfinite(bounds).any():
            pairs = zip(state.names, state.fits, strict=True)
            reasons = "; ".join(f"{name}: {fit.failure}" for name, fit in pairs)
            raise NotPositiveDefiniteError(f"No kernel could be fitted. {reasons}")
        order = np.argsort(-bounds, kind="stable")[: self.top_k]
        kept = tuple(int(i) for i in order if np.isfinite(bounds[i]))
        best = self._begin(state, X, y, state.fits)
        self._evaluate(best, state, X, y, kept)
        Z = state.inducing_inputs(X)
        models = tuple(_make_model(state, i, best.fits[i], Z) for i in kept)
        light = tuple(fit._replace(statistics=None) for fit in best.fits)
        return self._believe(replace(state, fits=light, kept=kept, models=models))

    def _evaluate(
        self,
        search: KernelFits,
        state: State,
        X: Array,
        y: Targets,
        chosen: Iterable[int] | None = None,
    ) -> None:
        """Find the bounds on all rows of the chosen kernels, or all, that are without."""
        Z = state.inducing_inputs(X)
        every = range(len(state.kernels))
        for frame, members in state.by_frame(every if chosen is None else chosen):
            search.complete(evaluate, (X, y, frame, Z, state.seed), members)

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
            "transforms_": [frame.target.transform for frame in state.frames],
            "n_iter_": max(fit.n_iter for fit in state.fits),
            "n_samples_seen_": state.n,
        }

    def posterior(self, state: State) -> KernelAverage:
        assert state.weights is not None
        return KernelAverage(state.models, state.weights, state.rows)


def _make_model(state: State, i: int, fit: LocalFit, Z: Array) -> KernelModel:
    kernel, noise = parameters(state.kernels[i], fit.x)
    frame = state.frames[i]
    assert fit.statistics is not None
    return KernelModel(
        state.names[i],
        kernel,
        noise * frame.target.unit**2,
        Z + frame.origin,
        fit.points(state.seed),
        fit.statistics,
        frame,
    )


def _warn_of_failures(state: State) -> None:
    for name, fit in zip(state.names, state.fits, strict=True):
        if fit.failure:
            warnings.warn(
                f"Kernel {name!r} could not be fitted and gets no belief. {fit.failure}",
                RuntimeWarning,
                stacklevel=2,
            )
