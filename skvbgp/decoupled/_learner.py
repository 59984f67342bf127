"""Settings of a model and what it does with data; the estimators are thin shells around it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, draw_first, draw_order, shuffle_parts
from skvbgp._core.owners import Owners, find_shared
from skvbgp._core.parallel import spawn_seeds
from skvbgp._core.scaling import Coordinates, RunningScale, Target, check_unit
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.adam import AdamState
from skvbgp._optim.ascent import Ascended, EndPass, ascend, report_as
from skvbgp._optim.convergence import note_call
from skvbgp.base import (
    START_ROWS,
    RegressionLearner,
    Targets,
    merge_targets,
    pick,
    says_too_little,
)
from skvbgp.decoupled._basis import Basis, BasisKernel, GeneralizedSE, PlainKernel
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._inputwise import InputwiseSE
from skvbgp.decoupled._likelihoods import AdditiveNoise, Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._new_rows import Sample, refit_noise
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._start import EVIDENCE_ROWS, find_hyperparameters
from skvbgp.decoupled._state import SAMPLE_ROWS, Replay, State
from skvbgp.decoupled._training import Ascent, Batch
from skvbgp.decoupled._variational_process import Rows
from skvbgp.kernels import White, as_kernel
from skvbgp.kernels._by_input import bind_columns, join_columns
from skvbgp.kernels._compose import leaves

#: max_iter=None: visits of a row in an update; rows that are visited in all, counted once for each
#: function; most passes of a fit.
_VISITS = 120
_VISITED_ROWS = 1_080_000
_MAX_PASSES = 200
#: Fewest steps of the first update after an exact fit: Adam's first ones are long.
_FIRST_STEPS = 30
#: Old rows, and new ones, that tell an update which points and what noise there are to be.
_SAMPLE_ROWS = 1024
#: Variance of the prior of the default kernel's log hyperparameters, around the median trick's.
_PRIOR_VARIANCE = 0.5


@dataclass(frozen=True)
class DecoupledLearner(RegressionLearner):
    """Constructor parameters that training needs; see the estimators for their meaning."""

    n_mean_basis: int
    n_cov_basis: int
    parametrization: str
    kernel: Any
    generalized_length_scales: bool | str
    basis_growth: int
    learn_hyperparameters: bool
    max_iter: int | None
    batch_size: int
    learning_rate: float
    tol: float
    replay: int
    likelihood: str
    normalize_y: bool
    owners: Owners = ()  # by column of X: the input that it encodes

    def max_passes(self, y: Targets) -> int:
        if self.max_iter is not None:
            return self.max_iter
        return int(np.clip(round(_VISITED_ROWS / y.y.size), 2, _MAX_PASSES))

    # -- the start -------------------------------------------------------------------------------

    def start(
        self, X: Array, y: Targets, rng: np.random.RandomState, before: State | None
    ) -> State:
        if self.parametrization == "decoupled" and self.n_mean_basis == 0:
            raise ValueError('parametrization="decoupled" needs n_mean_basis >= 1.')
        inputwise = self.generalized_length_scales == "per_input"
        if inputwise and self.kernel is not None:
            raise ValueError('generalized_length_scales="per_input" needs the default kernel.')
        seed = int(spawn_seeds(rng, 1)[0])
        rng = np.random.RandomState(seed)
        d, k = X.shape[1], y.y.size // len(y)
        summary = y.scale
        sample = Replay.of(X, y, max(self.replay, SAMPLE_ROWS), rng)
        likelihood = self._make_likelihood(y)
        target = self._choose_target(likelihood, summary, sample)
        if before is not None:
            self._refuse_another(likelihood, before)
            return replace(
                before.move_to(target, knows_noise=self.learn_hyperparameters),
                adam=AdamState.zeros(len(before.adam.first)),
                summary=summary,
                n_rows=y.n_rows,
                replay=self._keep(sample, rng),
                seed=seed,
                settled=False,
                lower_bounds=(),
            )
        order = draw_order(len(X), rng)
        some = order[: self.batch_size]
        first, weight = X[some], pick(y.weight, some)
        coordinates = Coordinates.of(first, weight).filled(first, _in_memory(X, sample.X))
        coordinates = coordinates.keeping(find_shared(d, self.owners))
        model = self._choose_model(likelihood, coordinates, coordinates.scaled(first))
        some = order[:EVIDENCE_ROWS]
        theta, noise, settled = self._find_start(model, coordinates, target, X, y, some)
        parameters = Parameters.without_points(theta, noise, d, k, inputwise=inputwise)
        return State(
            model=model,
            parameters=parameters,
            q=None if model.is_direct else (WhitenedGaussian.standard(0),) * k,
            adam=AdamState.zeros(len(parameters.pack())),
            coordinates=coordinates,
            target=target,
            summary=summary,
            n_rows=y.n_rows,
            replay=self._keep(sample, rng),
            seed=seed,
            settled=settled,
            owners=self.owners,
        )

    def _choose_model(self, likelihood: Any, coordinates: Coordinates, rows: Array) -> Model:
        """That of the given kernel, or of SE-ARD by the median trick."""
        d, k = rows.shape[1], len(rows) // 2
        if self.kernel is not None:
            given = as_kernel(self.kernel)
            has_noise = any(isinstance(leaf, White) for leaf in leaves(given))
            if has_noise and isinstance(likelihood, AdditiveNoise):
                raise ValueError(
                    f"kernel must not have White: the noise is learned. Got {self.kernel!r}."
                )
            kernel: BasisKernel = PlainKernel(bind_columns(given, d, self.owners), coordinates)
            generalized, prior_variance = False, np.inf
        else:
            distances = np.linalg.norm(rows[:k] - rows[k : 2 * k], axis=1)
            median = float(np.median(distances)) if k else 0.0
            form = InputwiseSE if self.generalized_length_scales == "per_input" else GeneralizedSE
            kernel = form(0.0, np.full(d, np.log(median if median > 0.0 else 1.0)))
            generalized, prior_variance = bool(self.generalized_length_scales), _PRIOR_VARIANCE
        own_theta = kernel.own_theta(self.owners) if self.owners else ()
        return Model(
            kernel, likelihood, self.parametrization, generalized, prior_variance, own_theta
        )

    def _find_start(
        self,
        model: Model,
        coordinates: Coordinates,
        target: Target,
        X: Array,
        y: Targets,
        some: Index,
    ) -> tuple[Array, Array, bool]:
        """theta and the likelihood's parameters by some rows, and whether that settles them."""
        theta, noise = model.kernel.theta, np.array(model.likelihood.start, dtype=float)
        if not self.learn_hyperparameters or len(X) < START_ROWS:
            return theta, noise, False
        known = y[some]
        values = model.likelihood.latent_values(target.scaled(known.y), known.weight)
        if np.ptp(values) == 0.0:
            return theta, noise, False
        scaled = coordinates.scaled(X[some])
        told = known.counts, target.scaled_noise(known.variance)
        theta, log_noise = find_hyperparameters(model, scaled, values, *told)
        settled = self._is_exact(model, len(X))
        if settled:
            noise[:] = log_noise
        return theta, noise, settled

    def _is_exact(self, model: Model, n: int) -> bool:
        """Whether a step on q(u) gives the posterior itself, as every row is in the bases.

        Then the bound is the evidence, whose maximum the start has found. A stream that keeps no
        rows does without, as it could not correct the noise later.
        """
        if model.is_direct or self.replay == 0 or not isinstance(model.likelihood, Gaussian):
            return False
        return n <= min(self.n_cov_basis, self.batch_size, EVIDENCE_ROWS)

    def _keep(self, sample: Replay, rng: np.random.RandomState) -> Replay:
        """Rows for later updates. With replay=0 there are none, unless the first say too little."""
        starts_again = self.replay == 0 and says_too_little(sample.X, learns=True)
        return sample if starts_again else sample.limited(self.replay, rng)

    def _make_likelihood(self, y: Targets) -> Any:
        if self.likelihood == "poisson":
            mean = float(np.average(y.y, weights=y.weight))
            return Poisson(float(np.log(max(mean, 0.5 / float(np.sum(y.counts))))))
        likelihoods = {"gaussian": Gaussian, "student_t": StudentT, "probit": Probit}
        return likelihoods[self.likelihood]()

    def _refuse_another(self, likelihood: Any, before: State) -> None:
        """Raise ValueError unless a state has a likelihood of the same kind."""
        if type(likelihood) is not type(before.model.likelihood):
            raise ValueError(
                f'likelihood="{self.likelihood}" is not that of the fit before, which warm_start '
                "and partial_fit go on from: set it back, or fit another model."
            )

    def _choose_target(self, likelihood: Any, summary: RunningScale, replay: Replay) -> Target:
        if not (self.normalize_y and isinstance(likelihood, AdditiveNoise)):
            return Target(0.0, 1.0)
        if likelihood.resistant:
            check_unit(summary.unit, "y")
            y, weight = replay.targets.y, replay.targets.weight
            summary = RunningScale.of(likelihood.latent_values(y, weight)[:, None], weight)
        return Target.of_scale(summary)

    # -- steps -----------------------------------------------------------------------------------

    def train(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        n, rng = len(y), np.random.RandomState(state.seed)
        n_batches = -(-n // self.batch_size)
        n_passes = self.max_passes(y)
        if state.settled:  # until the bases have grown, and a step on q(u) is judged
            n_passes = min(n_passes, -(-n // self.basis_growth) + 1)
        ascent = self._ascent(rng, 0.0 if state.settled else self.learning_rate)
        draws = _Draws(rng, max(ascent.measure_gaps(state.parameters)))

        def draw_batches() -> Iterator[Batch]:
            for rows in shuffle_parts(n, n_batches, rng):
                batch = scale_rows(state, X[rows], y[rows])
                new = draws.choose_points(rows, self.basis_growth)
                yield Batch(batch, n, state.summary.n, batch.X[new])

        def conclude(ascended: Ascended) -> State:
            values = ascended.values
            learned = replace(ascended.state, lower_bounds=values, n_iter=len(values))
            return replace(learned, n_telling=_count_telling(learned, y, state.summary.n))

        ascended = ascend(
            ascent.step,
            state,
            draw_batches,
            n_passes=n_passes,
            n_batches=n_batches,
            rng=draws,
            end_pass=report_as(conclude, end_pass),
            tol=self.tol,
        )
        _warn_if_diverged(ascended.values, state.summary.n)
        return conclude(ascended)

    def update(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        replay, rng = self._remember(state, X, y)
        scale = y.scale
        summary = state.summary.merged(scale)
        start = replace(state, summary=summary, n_rows=state.n_rows + y.n_rows, replay=replay)
        if state.settled:
            start = replace(start, adam=AdamState.zeros(len(start.adam.first)), settled=False)
        visits = min(min(_VISITS, self.max_iter or _VISITS) * len(y), _VISITED_ROWS)
        known = replay if replay.capacity > 0 else Replay(X, y, len(y), 0)
        size = min(self.batch_size, len(known))
        share = 1.0 if state.settled else min(1.0, visits / size)  # of a step, where rows are few
        ascent, order = self._ascent(rng, share * self.learning_rate), draw_order(len(X), rng)
        if replay.capacity > 0:
            ascent, start = self._meet(ascent, start, state, X, y, order, rng)
            total, before = summary.n, 0.0
        else:
            points = start.coordinates.scaled(X[order[: self.basis_growth]])
            ascent, start = ascent.after(start, points, state.n_telling)
            total, before = scale.n, state.lower_bounds[-1]
        least = _FIRST_STEPS if state.settled else 1
        n_steps = max(least, round(visits / size))
        no_points = np.empty((0, X.shape[1]))

        def take(rows: Index | slice) -> Batch:
            batch = scale_rows(start, known.X[rows], known.targets[rows])
            return Batch(batch, known.n_seen, total, no_points)

        def draw_batches() -> Iterator[Batch]:
            for _ in range(n_steps):
                yield take(draw_first(len(known), size, rng))

        def conclude(ascended: Ascended) -> State:
            (value,) = ascended.values
            bounds = note_call(state.lower_bounds, before + value)
            n_telling = state.n_telling + _count_telling(ascended.state, y, scale.n)
            learned = ascended.state
            if ascent.sample is not None:
                if size == len(known):
                    learned = ascent.solve(learned, take(slice(None)))
                learned = refit_noise(learned, ascent.sample)
            return replace(learned, lower_bounds=bounds, n_telling=n_telling)

        ascended = ascend(
            ascent.step,
            start,
            draw_batches,
            n_passes=1,
            n_batches=n_steps,
            rng=rng,
            end_pass=report_as(conclude, end_pass),
        )
        return conclude(ascended)

    def _meet(
        self,
        ascent: Ascent,
        start: State,
        before: State,
        X: Array,
        y: Targets,
        order: Any,
        rng: np.random.RandomState,
    ) -> tuple[Ascent, State]:
        """The ascent on all rows that are kept, and the state that has met new ones in an order.

        The start knows of them; the state before has the rows that were kept then.
        """
        start = self._reframe(start, before.replay.X, X)
        sample = self._draw_sample(start, before.replay, X, y, rng)
        points = start.coordinates.scaled(X[order[: self.basis_growth]])
        if self.learn_hyperparameters:
            ascent = replace(ascent, sample=sample)
            if before.settled:  # the noise of a process that had every row in its bases
                start = refit_noise(start, sample)
            start, points = ascent.make_room(start, points)
        first = order[: self.batch_size]
        rows = scale_rows(start, X[first], y[first])
        return ascent, ascent.meet(start, Batch(rows, len(y), y.scale.n, points))

    def _draw_sample(
        self, state: State, replay: Replay, X: Array, y: Targets, rng: np.random.RandomState
    ) -> Sample:
        """Some of the old and of the new rows, for what is not left to steps."""
        old = draw_order(len(replay), rng)[:_SAMPLE_ROWS]
        new = draw_order(len(y), rng)[:_SAMPLE_ROWS]
        each = replay.n_seen / len(old), len(y) / len(new)
        targets = replay.targets[old].joined(y[new])
        rows = scale_rows(state, np.concatenate([replay.X[old], X[new]]), targets)
        process = state.posterior.process
        later = rows.X[len(old) :]
        unknown = process.moments(later)[1].mean(axis=1) / process.kernel.diag(Basis(later))
        familiar = np.append(np.ones(len(old)), 1.0 - np.minimum(unknown, 1.0))
        stands_for = np.repeat(each, [len(old), len(new)])
        return Sample(replace(rows, counts=rows.counts * stands_for), familiar)

    def _reframe(self, state: State, X_before: Array, X: Array) -> State:
        """The state in the unit of all y, and of columns of X that have been constant so far."""
        coordinates = state.coordinates
        if isinstance(state.model.kernel, GeneralizedSE) and self.learn_hyperparameters:
            coordinates = coordinates.filled(X_before, _in_memory(X, state.replay.X))
            coordinates = coordinates.keeping(find_shared(X.shape[1], self.owners))
        target = self._choose_target(state.model.likelihood, state.summary, state.replay)
        moved = state.move_to(target, knows_noise=self.learn_hyperparameters)
        return replace(moved, coordinates=coordinates)

    def rows_to_restart(self, state: State, X: Array, y: Targets) -> tuple[Array, Targets] | None:
        self._refuse_another(self._make_likelihood(y), state)  # as this comes before any update
        if state.replay.capacity == 0:
            return None
        # the first rows set units and the median distance even if nothing is learned
        too_little = says_too_little(state.replay.X, learns=True)
        if not (too_little or state.settled):
            return None
        replay, _ = self._remember(state, X, y)
        if not (too_little or replay.has_all):
            return None
        X, targets = merge_targets(replay.X, replay.targets)
        return X, replace(targets, n_copies=state.n_rows + y.n_rows - len(targets))

    def _remember(self, state: State, X: Array, y: Targets) -> tuple[Replay, np.random.RandomState]:
        """What is kept after new rows, and the generator of the update's further choices."""
        rng = np.random.RandomState((state.seed + state.replay.n_seen) % 2**32)
        return state.replay.add(X, y, rng), rng

    def _ascent(self, rng: np.random.RandomState, learning_rate: float) -> Ascent:
        sizes = self.n_mean_basis, self.n_cov_basis
        first_turn = int(rng.randint(np.iinfo(np.int32).max))
        return Ascent(sizes, learning_rate, self.learn_hyperparameters, first_turn)

    # -- what has been learned -------------------------------------------------------------------

    def attributes(self, state: State) -> dict[str, Any]:
        p, model, unit = state.parameters, state.model, state.target.unit
        kernel = model.kernel.with_theta(p.theta).original(state.coordinates, unit)
        attributes = {
            "kernel_": join_columns(kernel, self.owners),
            "mean_basis_": state.coordinates.original(p.alpha),
            "cov_basis_": state.coordinates.original(p.beta),
            "lower_bound_": state.lower_bounds[-1],
            "lower_bounds_": list(state.lower_bounds),
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.n_rows,
        }
        if len(p.noise):
            attributes["noise_variance_"] = model.likelihood.noise_variance(p.noise) * unit**2
        return attributes


class _Draws:
    """What a fit draws from, and which rows have become points of the bases; see `Resumable`."""

    def __init__(self, rng: np.random.RandomState, room: int) -> None:
        self.rng, self.room, self.used = rng, room, np.empty(0, dtype=np.int64)

    def choose_points(self, rows: Index, most: int) -> NDArray[np.intp]:
        """Places of new ones among some rows, as far as the bases have room."""
        new = np.flatnonzero(~np.isin(rows, self.used))[: min(self.room, most)]
        self.used = np.append(self.used, rows[new])
        self.room -= len(new)
        return new

    def get_state(self) -> tuple[Any, ...]:
        return self.rng.get_state(), self.room, self.used

    def set_state(self, state: tuple[Any, ...]) -> None:
        generator, self.room, self.used = state
        self.rng.set_state(generator)


def _warn_if_diverged(bounds: tuple[float, ...], n: float) -> None:
    """Warn if the last bound is below the best by more than that is, and a nat for each row."""
    best = max(bounds)
    if bounds[-1] < best - abs(best) - n:
        warnings.warn(
            f"Training has diverged: lower_bounds_ reached {best:.3g} and ends at "
            f"{bounds[-1]:.3g}. Its steps are too long for such data. If these are large counts, "
            'likelihood="gaussian" may learn their logarithms.',
            ConvergenceWarning,
            stacklevel=2,
        )


def _in_memory(X: Array | ShardedColumns, sample: Array) -> Array:
    """All rows, or a sample of them if they are on workers."""
    return sample if isinstance(X, ShardedColumns) else X


def scale_rows(state: State, X: Array, y: Targets) -> Rows:
    """Rows in the state's frames."""
    targets = state.target.scaled(y.y).reshape(len(y), -1)
    known = state.target.scaled_noise(y.variance)
    return Rows(state.coordinates.scaled(X), targets, y.counts, known)


def _count_telling(state: State, y: Targets, total: float) -> float:
    """How often rows count for the noise that is learned, of ``total`` times in all.

    The Fisher information about its logarithm is the square of its share in a row's noise.
    """
    known = state.target.scaled_noise(y.variance)
    if known is None:
        return total
    share = state.model.likelihood.learned_share(state.parameters.noise, known)
    return float(y.counts @ share**2)
