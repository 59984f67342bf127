"""Draws of normal distributions."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skvbgp._core.linalg import Array


def draw_antithetic(n: int, k: int, rng: np.random.RandomState) -> Array:
    """About n draws of N(0, I_k) in antithetic pairs, whose mean is exact, (n, k)."""
    half = rng.standard_normal((max(1, n // 2), k))
    return np.concatenate([half, -half])


def quasi_normal(n_draws: int, d: int, seed: int) -> Array:
    """Standard normal points (n_draws, d) that fill space evenly, in antithetic pairs."""
    half = -(-n_draws // 2)
    generator = np.random.default_rng(seed)
    points = qmc.Halton(d, scramble=True, seed=generator).random(half)  # `rng=` is SciPy 1.15's
    normal = ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))  # (half, d)
    return np.concatenate([normal, -normal])[:n_draws]


def draw_normal(mean: Array, cov: Array, n: int, rng: np.random.RandomState) -> Array:
    """Vectors n of a normal distribution, as columns."""
    variances, vectors = np.linalg.eigh(cov)  # rounding may leave it slightly indefinite
    root = vectors * np.sqrt(np.maximum(variances, 0.0))
    return mean[:, None] + root @ rng.standard_normal((len(mean), n))
