"""Whether rows are predicted that have had no part in training.

Where rows are few, length scales of all inputs make rows probable that have chosen them, also when
each is left out of predictions: neither the evidence at its maximum nor such rows say that others
will be predicted. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from skvbgp._core.gaussian import log_normal
from skvbgp._core.linalg import Array
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp._optim.maximum import Trained
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group, RowNoise

#: Parts of the rows, each predicted by what the others train, and the least rows for that.
_FOLDS, LEAST_ROWS = 5, 20
#: Logarithm of what is hardly added to a variance, relative to the mean squared error, and where
#: the search for it starts.
_LEAST_ADDED, _ADDED_STARTS = -30.0, (-30.0, -5.0, 0.0)
_MAX_ITER, _TOL = 100, 1e-9


def draw_folds(groups: Sequence[Group], rng: np.random.RandomState) -> list[Array]:
    """How often each row of some groups is in each part (n, parts), which are of about equal sizes.

    Rows that can part are in several.
    """
    return [_share_out(RowNoise.of(noise, len(y)), rng) for _, y, noise in groups]


def _share_out(noise: RowNoise, rng: np.random.RandomState) -> Array:
    """The same of one group: rows in as many equal pieces as they can part into."""
    n_pieces = np.minimum(1 + np.ceil(noise.others), _FOLDS).astype(int)
    owner = np.repeat(np.arange(len(noise)), n_pieces)
    fold = rng.permutation(np.arange(len(owner)) % _FOLDS)
    counts = np.zeros((len(noise), _FOLDS))
    np.add.at(counts, (owner, fold), (noise.weight / n_pieces)[owner])
    return counts


class Verdict(NamedTuple):
    """How rows are predicted that have had no part in training."""

    density: float  # their log density with what follows
    calibration: float  # factor of the variances, at least one
    extra_noise: float  # variance that is added


def judge_folds(
    process: Process,
    groups: Sequence[Group],
    folds: Sequence[Array],
    *,
    max_iter: int,
    tol: float,
    learn: Callable[..., Trained[Process]] = train_process,
) -> Verdict:
    """What is to be said of rows of all parts, each predicted by what `learn` makes of the others.

    That is what has the parameters and the result of `train_process`.
    """
    parts = list[Array]()
    for k in range(_FOLDS):
        pairs = [
            (_take(group, np.delete(counts, k, axis=1).sum(axis=1)), _take(group, counts[:, k]))
            for group, counts in zip(groups, folds, strict=True)
        ]
        pairs = [(known, others) for known, others in pairs if len(known[1]) and len(others[1])]
        known = [one for one, _ in pairs]
        trained = learn(process, known, max_iter=max_iter, tol=tol).process
        parts += [_predict(trained, *pair) for pair in pairs]
    squares, variance, weight = np.hstack(parts)
    calibration, extra_noise = learn_spread(squares, variance, weight)
    density = log_normal(np.sqrt(squares), calibration * variance + extra_noise)
    return Verdict(float(weight @ density), calibration, extra_noise)


def learn_spread(squares: Array, variance: Array, weight: Array) -> tuple[float, float]:
    """A factor (at least one) of variances (n,), and what is added to all: the most probable ones.

    Given squared errors, which are normal with these variances and count as their weights say.
    """
    unit = float(np.average(squares, weights=weight))
    if unit == 0.0:
        return 1.0, 0.0
    share, log_unit = weight / weight.sum(), float(np.log(unit))
    factor = max(0.0, float(np.log(share @ (squares / variance))))
    least = log_unit + _LEAST_ADDED
    starts = [(factor, least), *((0.0, log_unit + added) for added in _ADDED_STARTS)]
    results = [
        lbfgs_ascent(
            lambda x: score_spread(x, squares, variance, share),
            np.array(x),
            max_iter=_MAX_ITER,
            tol=_TOL,
            bounds=np.array([[0.0, factor + 1.0], [least, log_unit + 1.0]]),
        )
        for x in starts
    ]
    log_factor, log_added = max(results, key=lambda result: result.value).x
    return float(np.exp(log_factor)), float(np.exp(log_added)) if log_added > least else 0.0


def score_spread(x: Array, squares: Array, variance: Array, weight: Array) -> tuple[float, Array]:
    """The density of squared errors and its gradient in the logarithms x of factor and addition."""
    widened, added = np.exp(x[0]) * variance, np.exp(x[1])
    total = widened + added
    slope = 0.5 * weight * (squares / total - 1.0) / total
    density = log_normal(np.sqrt(squares), total)
    return float(weight @ density), np.array([slope @ widened, slope.sum() * added])


def _take(group: Group, counts: Array) -> Group:
    """The rows of a group that count (n,), and as often as that."""
    X, y, noise = group
    index = counts > 0.0
    known = None if noise is None else noise[index].sharing(counts[index])
    return X[index], y[index], known


def _predict(process: Process, known: Group, others: Group) -> Array:
    """Squared errors, variances and weights (3, n) of other rows given those that are known."""
    X, y, noise = others
    told = process.add_indicators(X, noise)
    more = 0.0 if told is None else told.add_up(process.noises, process.slopes) - process.noise
    weight = np.ones(len(X)) if noise is None else noise.weight
    scatter = 0.0 if noise is None or noise.scatter is None else noise.scatter / weight
    parts = list[Array]()
    outputs = process.factorise(*known).split_outputs()
    for given, targets in zip(outputs, y.reshape(len(y), -1).T, strict=True):
        mean, variance, own, _ = given.moments(X)
        parts.append(np.stack([(targets - mean) ** 2 + scatter, variance + own + more, weight]))
    return np.hstack(parts)
