r"""Draws of the function, by pathwise conditioning.

Given a draw of alpha = (R, s), a draw w of the weights from their prior and draws e of the rows'
noise become an error of the local mean, so that

    f(x) = gamma phi' s + (1 - gamma) phi' Gamma^-1 Phi y
           + (1 - gamma^2)^1/2 (phi' w - phi' Gamma^-1 Phi (Phi' w + e)),

with the rows of x's block, or its neighbours, in Phi. See :doc:`/theory/spectrum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skvbgp._core.draws import join_members, share_members
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.base import ScaledDraws, pick
from skvbgp.spectrum._features import feature_slopes, features
from skvbgp.spectrum._neighbours import Local
from skvbgp.spectrum._state import Hyperparameters

if TYPE_CHECKING:
    from skvbgp.spectrum._posterior import Mixture, SpectrumPosterior

#: How much larger the variance of the average of functions that share draws of alpha may be than
#: that of independent ones: n are worth four fifths of n.
_LARGER = 0.25

#: What functions are linear in: `features`, or `feature_slopes`.
Design = Callable[[Array, Array], Array]


class Path(NamedTuple):
    """Functions that have a draw of alpha in common."""

    members: Index  # which of all functions they are, (q,)
    R: Array  # (m, d)
    s: Array  # (2 m,)
    weights: Array  # w, (2 m, q)


def count_draws(n: int, n_draws: int, between: float) -> int:
    """How many draws of alpha, of some, n functions share evenly: as few as will do.

    Those that share one are as good as independent if next to nothing of the variance is
    ``between`` the draws, a share of it. See :doc:`/theory/spectrum`.
    """
    if n_draws == 1:
        return 1
    ratio = n * between / (n_draws - 1)
    return max(1, math.ceil(n_draws * ratio / (ratio + _LARGER + between)))


def draw_paths(
    draws: list[tuple[Array, Array]], n: int, hyper: Hyperparameters, rng: np.random.RandomState
) -> list[Path]:
    """Functions n, which share draws of alpha evenly."""
    paths, shares = [], np.full(len(draws), 1.0 / len(draws))
    for k, members in share_members(n, shares, rng):
        R, s = draws[k]
        std = np.sqrt(hyper.signal_variance / len(R))
        paths.append(Path(members, R, s, std * rng.standard_normal((len(s), len(members)))))
    return paths


@dataclass(frozen=True)
class FunctionDraws(ScaledDraws):
    """Functions S from the posterior; derivatives are those given the neighbours of a row."""

    posterior: SpectrumPosterior
    paths: list[Path]
    noise: Array | None = None  # of the known rows, (n_known, S); the global function has none

    _evaluate, _differentiate = staticmethod(features), staticmethod(feature_slopes)

    def _map(self, function: Design, X: Array) -> Array:
        shared = function, self.paths
        (values,) = self.posterior.by_group(_evaluate, X, shared, self._pick_noise)
        return values

    def _pick_noise(self, local: Local) -> tuple[Any, ...]:
        """That of the rows that a group is conditioned on."""
        return (pick(self.noise, local.places),)


def _evaluate(
    mixture: Mixture, design: Design, paths: list[Path], X: Array, local: Local, noise: Array | None
) -> tuple[Array]:
    """What all functions say of scaled rows of one group, (n, S) or (n, d, S)."""
    gamma, values, lines = mixture.gamma, [], partial(design, X)
    members, draws, _, weights = zip(*paths, strict=True)
    if noise is None:
        values = [np.outer(lines(R) @ s, np.ones(len(own))) for own, R, s, _ in paths]
    else:
        errors = [noise[:, own] for own in members]
        drawn = local.draw(lines, draws, mixture.hyper, weights, errors)
        for path, (Phi, mean, error) in zip(paths, drawn, strict=True):
            mean = gamma * (Phi @ path.s) + (1.0 - gamma) * mean
            values.append(mean[:, None] + np.sqrt(1.0 - gamma**2) * error)
    shape = X.shape if design is feature_slopes else X.shape[:1]
    return (join_members(members, [part.reshape(*shape, -1) for part in values]),)
