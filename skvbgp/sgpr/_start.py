"""What training starts from: inputs, parameters of the fit before, and values from the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.evidence import own_evidence, scan_variances
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.owners import (
    average_shared,
    count_inputs,
    divide_equally,
    spread_inputs,
)
from skvbgp._core.parallel import thread_map
from skvbgp._core.scaling import Coordinates, Target, check_unit
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import Clock, ascend
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.base import as_vector, choose_inducing_inputs, choose_rows, pick
from skvbgp.kernels._pairs import evaluate_rows
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._bound import Evaluation, Prior
from skvbgp.sgpr._data import Data, RowIndex, Rows
from skvbgp.sgpr._noise import Blocks, HyperPrior, Model
from skvbgp.sgpr._parameters import LOG_LIMITS, Parameters
from skvbgp.sgpr._quadrature import make_sign_draws
from skvbgp.sgpr._settings import Settings
from skvbgp.sgpr._state import State

#: Starting inverse length scale of the columns that say which output a row is of: a correlation of
#: exp(-nu^2) between any two.
_OUTPUT_NU = 0.8
#: Default prior variance of the hyperparameters. That of inverse length scales is smaller where
#: there are more inputs, and not more rows, than so many: the more inputs, the nearer to zero each
#: has to be.
_PRIOR_VARIANCE = 4.0
_FEW_INPUTS, _FEW_ROWS = 20, 500
#: Rows that the starting length scales are judged by, and what these are divided by.
_SAMPLE_ROWS = 512
_FACTORS = (1.0, 4.0, 16.0, 64.0)
#: Steps of the noise's start on the blocks' evidence, their size, and blocks in each.
_BLOCK_STEPS = 300
_BLOCK_STEP_SIZE = 0.05
_BLOCKS_PER_STEP = 2
#: Blocks that L-BFGS visits in every iteration, its iterations and tolerance; so many are enough
#: to judge a start of f by, too.
_FEW_BLOCKS = 4
_BLOCK_ITERATIONS = 40
_BLOCK_TOL = 1e-5
#: Standard deviation of the logarithms about their start: what blocks cannot tell stays near it.
_BLOCK_PRIOR_STD = 2.0
#: How far the bound of a hopeless start is below another, in nats for each copy of a row.
_HOPELESS = 1.5
#: Inducing inputs of a noise kernel for each row of "exact": with all rows nothing would be left.
_EXPLAINING_SHARE = 0.25
#: Variance of q(theta) relative to the square of its mean: a third of a per cent.
_NARROW = 1e-5
#: Growth of a variance of q(theta) in the step that settles it.
_WIDEST = 100.0


class Sample(NamedTuple):
    """Random rows that starting values are computed from, all of them if they are few."""

    X: Array  # (n, d)
    weight: Array | None  # (n,)

    @classmethod
    def of(
        cls, X: Array | ShardedColumns, weight: Array | None, rng: np.random.RandomState
    ) -> Sample:
        rows = choose_rows(len(X), rng)
        return cls(np.asarray(X[rows]), pick(weight, rows))

    def within(self, coordinates: Coordinates) -> Sample:
        """The same in scaled coordinates."""
        return self._replace(X=coordinates.scaled(self.X))


def start_cold(
    settings: Settings, sample: Sample, n: int, target: Target, rng: np.random.RandomState
) -> tuple[Model, Parameters]:
    """Model and parameters from the data, n rows, or as the user gives them."""
    coordinates = _choose_coordinates(settings, sample)
    U = choose_inputs(settings, sample, n, coordinates, rng)
    owners = settings.owners
    n_columns, t = len(coordinates.scale), settings.n_outputs
    own = n_columns - t  # columns that are of inputs
    d = count_inputs(n_columns, owners) - t
    prior_variance = _choose_prior_variance(settings, n, d)
    nu = np.full(n_columns, 2.0 / np.sqrt(d))
    if settings.prior_variance is None:  # ours expects no shorter ones
        nu = np.minimum(nu, np.sqrt(prior_variance[0]))
    if settings.length_scale is not None:
        length_scale = as_vector(settings.length_scale, d, "length_scale", positive=True)
        nu[:own] = coordinates.scale[:own] / spread_inputs(length_scale, owners[:own])
    nu[own:] = _OUTPUT_NU
    alpha, noise_variance, factor = 1.0, 0.1, 1.0
    if settings.signal_std is not None:
        alpha = np.float64(settings.signal_std) / target.unit
    if settings.noise_variance is not None:
        noise_variance = settings.noise_variance / target.unit**2
        factor = 1.0 / target.unit**2
    with np.errstate(over="ignore"):  # _check_range says so
        xi, beta = 1e-2 * nu**2, 1e-2 * alpha**2
    if settings.hyperparameter_variance is not None:
        xi = settings.hyperparameter_variance * coordinates.scale**2
        beta = settings.hyperparameter_variance / target.unit**2
    prior_mean = as_vector(settings.prior_mean, d + 1, "prior_mean", positive=False)

    def spread(values: Array, of_outputs: float) -> Array:
        """Values of inputs and of the signal (d + 1,) by column, with those of outputs."""
        by_column = spread_inputs(values[:-1], owners[:own])
        return np.concatenate([by_column, np.full(t, of_outputs), values[-1:]])

    hyperprior = HyperPrior(spread(prior_mean, 0.0), spread(prior_variance, _PRIOR_VARIANCE))
    structure = settings.structure.start(coordinates.scale, noise_variance, factor, owners, t)
    variance = np.full(t, noise_variance) if t else noise_variance
    parameters = Parameters(nu, xi, alpha, beta, variance, structure.theta, U, owners)
    _check_range(parameters)
    return Model(coordinates, hyperprior, structure), parameters


def _choose_prior_variance(settings: Settings, n: int, d: int) -> Array:
    """That of d inverse length scales and the signal, (d + 1,).

    The squared distance of two rows, sum_k lambda_k^2 (x_k - x'_k)^2, is 2 d times the variance by
    the prior. Of few inputs this hardly matters. Of many, all functions would be noise, and the
    data would have to pay for each length scale to be long. More than a few rows can.
    """
    if settings.prior_variance is not None:
        return as_vector(settings.prior_variance, d + 1, "prior_variance", positive=True)
    own = 1.0 / d if d > _FEW_INPUTS and n <= _FEW_ROWS else _PRIOR_VARIANCE
    return np.append(np.full(d, own), _PRIOR_VARIANCE)


def _choose_coordinates(settings: Settings, sample: Sample) -> Coordinates:
    """The frame of the inputs.

    It is that of the given inducing inputs, if there are any: it does not
    depend on which rows come first in a stream. But where hyperparameters are learned, columns in
    which these are constant have units from the rows. Categories, and which output a row is of, are
    in it as they are encoded.
    """
    encoded, given = settings.find_encoded(sample.X.shape[1]), settings.inducing_inputs
    if given is None:
        coordinates = Coordinates.of(*sample).keeping(encoded)
        check_unit(coordinates.scale, "X")
        return coordinates
    coordinates = Coordinates.of(given)
    check_unit(coordinates.scale, "inducing_inputs")
    if settings.learn_hyperparameters:
        coordinates = coordinates.filled(given, sample.X)
    return coordinates.keeping(encoded)


def choose_inputs(
    settings: Settings, sample: Sample, n: int, coordinates: Coordinates, rng: np.random.RandomState
) -> Array:
    """Inducing inputs for n rows, in coordinates: those that are given, or from a sample."""
    if settings.inducing_inputs is not None:
        return coordinates.scaled(settings.inducing_inputs)
    m = settings.count_inducing(n)
    return choose_inducing_inputs(sample.within(coordinates).X, m, rng, sample.weight)


def grow(
    state: State, X: Array, weight: Array | None, n_inducing: int, rng: np.random.RandomState
) -> State:
    """The state with inducing inputs at new places, while there is room for them."""
    U = state.parameters.U
    room = n_inducing - len(U)
    if room <= 0:
        return state
    sample = Sample.of(X, weight, rng).within(state.model.coordinates)
    new = choose_inducing_inputs(sample.X, room, rng, sample.weight)
    new = new[[not np.any(np.all(u == U, axis=1)) for u in new]]
    parameters = replace(state.parameters, U=np.concatenate([U, new]))
    return replace(state, parameters=parameters, memory=state.sums.carry_to(Prior(parameters)))


def choose_exact_inputs(rows: Rows, seed: int, *, explained: bool) -> Array:
    """Inducing inputs where f has every row: all rows or, if ``explained``, those of the noise."""
    U = np.unique(rows.X, axis=0)
    if not explained:
        return U
    m = max(1, round(_EXPLAINING_SHARE * len(U)))
    return choose_inducing_inputs(rows.X, m, np.random.RandomState(seed), rows.weight)


def _check_range(parameters: Parameters) -> None:
    """Refuse starting values that double precision cannot tell apart from a limit."""
    values = [*parameters.nu, *parameters.xi, parameters.alpha, parameters.beta]
    values.extend(np.ravel(parameters.noise_variance))
    with np.errstate(over="ignore"):
        ratio = parameters.second_moment / np.min(parameters.noise_variance)
    if not (np.isfinite(values).all() and np.all(np.array(values) > 0.0) and ratio < 1e18):
        raise ValueError(
            "The starting length_scale, signal_std, noise_variance or hyperparameter_variance "
            "is out of range for these data: it is too far from their spread, or the noise "
            "is too small for the signal. Rescale X or y, or leave it to the data."
        )


def go_on_from(model: Model, p: Parameters, ratio: float) -> tuple[Model, Parameters]:
    """Those of the fit before; y's unit was then ``ratio`` times the present one."""
    p = replace(
        p, alpha=p.alpha * ratio, beta=p.beta * ratio**2, noise_variance=p.noise_variance * ratio**2
    )
    return replace(model, structure=model.structure.rescale(ratio**2)), p


def shorten(model: Model, parameters: Parameters, data: Data, seed: int) -> Parameters:
    """Length scales divided by the factor that makes a sample of the rows most probable.

    Training changes a length scale by a few per cent in a step: from one that is far too long
    it first learns to call the function noise, and stays there. The factors are coarse, since
    one that is four times too long is no harm. How much outputs differ stays as it is.
    """
    rows = data.rows(_sample(data, np.random.RandomState(seed)))
    nu, d = parameters.nu, len(parameters.nu)
    mean, variance = model.hyperprior.mean[:d], model.hyperprior.variance[:d]
    share = divide_equally(d, parameters.owners)
    tells_outputs = np.arange(d) >= d - parameters.n_outputs

    def stretch(factor: float) -> Array:
        return np.where(tells_outputs, 1.0, factor)

    def log_posterior(factor: float) -> float:
        stretched = stretch(factor) * nu
        X = stretched * rows.X
        distance = float(np.sum(share * (stretched - mean) ** 2 / variance))
        return scan_variances(unit_se(X, X), rows.y) - 0.5 * distance

    factors = stretch(max(_FACTORS, key=log_posterior))
    return replace(parameters, nu=factors * nu, xi=factors**2 * parameters.xi)


def _sample(data: Data, rng: np.random.RandomState) -> RowIndex:
    """A random row of each of some equal parts of the data: always as many, in O(1) memory.

    Those of rows with weights have equal sums of weights. A row with known noise counts less, as
    much as an observation of a value of unit variance says less of it.
    """
    n, k = len(data), min(len(data), _SAMPLE_ROWS)
    weight = data.weight
    if data.variance is not None:
        weight = (1.0 if weight is None else weight) / (1.0 + data.variance)
    if weight is not None:
        total = np.cumsum(weight)
        points = (np.arange(k) + rng.random_sample(k)) / k * total[-1]
        return np.minimum(np.searchsorted(total, points, side="right"), n - 1)
    ends = np.arange(k + 1) * n // k
    return rng.randint(ends[:-1], ends[1:])


def start_from_blocks(
    model: Model,
    parameters: Parameters,
    data: Data,
    rng: np.random.RandomState,
    *,
    follow: bool,
    smooth: Array | None = None,
) -> Parameters:
    """Parameters whose noise explains the blocks of y; f may ``follow`` it.

    A function that starts rough or smooth mostly ends in the same optimum, and predicts better from
    its own start. Beside noise that is almost zero, however, one that does not explain y costs more
    than training can mend: then f takes the length scales and the amplitude of the noise, as a
    squared exponential. Where that is not the noise's own, ``smooth`` (d + 1,) are the logarithms
    of amplitude and length scales.
    """
    own = fit_noise_to_blocks(model, parameters, data, rng)
    if not follow:
        return own
    following = follow_noise(model, own, own.noise_theta if smooth is None else smooth)
    rows = data.draw_blocks(_FEW_BLOCKS, rng)
    weight = len(data) / sum(len(r) for r in rows)

    def evaluate(start: Parameters, draws: Array) -> tuple[Evaluation, WhitenedGaussian]:
        evaluation = Evaluation(model, start, rows, [draws[:, None, :]] * len(rows))
        information, shift = weight * evaluation.information, weight * evaluation.shift
        return evaluation, WhitenedGaussian.of_information(information, shift)

    def bound(start: Parameters) -> float:
        evaluation, q = evaluate(start, np.zeros((1, len(start.nu))))
        return evaluation.value(q, weight)

    if bound(following) - bound(narrow(own)) <= _HOPELESS * data.total:
        return own
    evaluation, q = evaluate(following, make_sign_draws(len(own.nu)))
    return settle_variances(model, following, weight * evaluation.variance_slopes(q))


def follow_noise(model: Model, parameters: Parameters, smooth: Array) -> Parameters:
    """An f that is like what explains the blocks, a squared exponential, and known well."""
    amplitude, *length_scale = np.exp(smooth)
    nu = model.coordinates.scale / np.array(length_scale)
    nu = np.clip(nu, *np.exp(LOG_LIMITS["nu"]))
    return narrow(replace(parameters, nu=nu, alpha=float(np.sqrt(amplitude))))


def narrow(parameters: Parameters) -> Parameters:
    """The same with variances of q(theta) such as thousands of rows leave.

    Wider ones are charged, at the precision of the noise, for what f varies with theta.
    """
    p = parameters
    return replace(p, xi=_NARROW * p.nu**2, beta=_NARROW * p.alpha**2)


def settle_variances(model: Model, parameters: Parameters, slopes: Array) -> Parameters:
    """One step of the natural gradient, of size one, on the variances of q(theta).

    ``slopes`` (d + 1,) are those of the data terms F, over draws that see second derivatives well.
    The data terms F change with a variance v by half of their curvature, and -KL is largest
    where 1 / v = 1 / tau - 2 dF/dv. Where F curves upwards, there is no such v; none gets more
    than a hundred times what it was.
    """
    p = parameters
    own = divide_equally(len(p.xi), p.owners)  # of a parameter that columns share, the sum
    slopes = np.append(average_shared(slopes[:-1], p.owners) / own, slopes[-1])
    before = np.append(p.xi, p.beta)
    precision = 1.0 / model.hyperprior.variance - 2.0 * slopes
    variance = 1.0 / np.maximum(precision, 1.0 / (_WIDEST * before))
    return replace(p, xi=variance[:-1], beta=float(variance[-1]))


def fit_noise_to_blocks(
    model: Model, parameters: Parameters, data: Data, rng: np.random.RandomState
) -> Parameters:
    """Noise parameters that explain each block of y on its own, as if there were no f.

    They maximise the blocks' evidence, sum_i log N(y_i | 0, k^eps(X_i, X_i) + sigma_n^2 I),
    times a wide normal prior of their logarithms, by L-BFGS or, if there are more than a few
    blocks, by stochastic ascent: a start that has the right roughness, at a small part of the
    cost of the bound. Without the prior, rounding decides where the length scale of an input ends
    that has a few values far apart, and f may follow the noise to where no draw of theta fits.
    """
    blocks = data.blocks
    assert blocks is not None
    if len(blocks) <= _FEW_BLOCKS:
        groups = [rows.with_pairs(model.coordinates) for rows in data.pick(np.arange(len(blocks)))]
        return fit_noise_to_groups(model, parameters, groups, max_iter=_BLOCK_ITERATIONS)
    limits, start = _noise_limits(model), _noise_vector(parameters)

    def draw_blocks() -> Iterator[NDArray[np.intp]]:
        for _ in range(_BLOCK_STEPS):
            yield rng.randint(len(blocks), size=_BLOCKS_PER_STEP)

    def step(
        state: tuple[Array, AdamState], chosen: NDArray[np.intp], clock: Clock
    ) -> tuple[tuple[Array, AdamState], float]:
        x, adam = state
        groups, share = data.pick(chosen), len(chosen) / len(blocks)
        value, gradient = _noise_log_posterior(model, start, x, groups, share)
        size = _BLOCK_STEP_SIZE * clock.annealing
        x, adam = adam_ascent(x, gradient, adam, size)
        return (np.clip(x, *limits.T), adam), value

    first = start, AdamState.zeros(len(start))
    x, _ = ascend(step, first, draw_blocks, n_passes=1, n_batches=_BLOCK_STEPS, rng=rng).state
    return _with_noise(parameters, x)


def fit_noise_to_groups(
    model: Model, parameters: Parameters, groups: list[Rows], *, max_iter: int
) -> Parameters:
    """The same for a few groups of rows, by L-BFGS."""
    start = _noise_vector(parameters)
    x = lbfgs_ascent(
        lambda x: _noise_log_posterior(model, start, x, groups),
        start,
        max_iter=max_iter,
        tol=_BLOCK_TOL,
        bounds=_noise_limits(model),
    ).x
    return _with_noise(parameters, x)


def _noise_vector(parameters: Parameters) -> Array:
    """x = (theta, log sigma_n^2)."""
    return np.append(parameters.noise_theta, np.log(parameters.noise_variance))


def _with_noise(parameters: Parameters, x: Array) -> Parameters:
    return replace(parameters, noise_theta=x[:-1], noise_variance=float(np.exp(x[-1])))


def _noise_limits(model: Model) -> Array:
    """Limits of x, (p + 1, 2)."""
    return np.append(model.structure.bounds, [LOG_LIMITS["noise_variance"]], axis=0)


def _noise_log_posterior(
    model: Model, start: Array, x: Array, groups: Sequence[Rows], share: float = 1.0
) -> tuple[float, Array]:
    """Log evidence of groups of rows, and a share of the log prior, with the gradient in x."""
    tasks = [(model, x, rows) for rows in groups]
    values, gradients = zip(*thread_map(_block_evidence, tasks), strict=True)
    z = (x - start) / _BLOCK_PRIOR_STD
    owners = model.structure.owners_of_theta
    own = np.append(divide_equally(len(x) - 1, owners), 1.0)
    value = sum(values) - 0.5 * share * float(own @ z**2)
    gradient = np.asarray(sum(gradients)) - share * own * z / _BLOCK_PRIOR_STD
    gradient[:-1] = average_shared(gradient[:-1], owners)
    return value, gradient


def _block_evidence(model: Model, x: Array, rows: Rows) -> tuple[float, Array]:
    """log N(y | 0, k(X, X) + sigma_n^2 I) and its gradient in x = (theta, log sigma_n^2).

    Of all copies, if the rows have weights, and with what is known of their noise.
    """
    assert isinstance(model.structure, Blocks)
    kernel, scale = model.structure.kernel.with_theta(x[:-1]), model.structure.scale
    noise_variance = float(np.exp(x[-1]))
    own = rows.add_known(noise_variance)
    K, pull_back = evaluate_rows(kernel, model.coordinates.original(rows.X), rows.pairs)
    log_density, dC, d_own = own_evidence(scale * K, rows.y, own, rows.weight)
    d_theta = pull_back(scale * dC)
    return log_density, np.append(d_theta, d_own.sum() * noise_variance)
