"""A small latent-variable model, off its optimum."""

import numpy as np

from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import LIKELIHOODS
from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._objective import HybridData, HybridParameters
from skvbgp.ep.hybrid._recognition import Recognition, RowLatents
from skvbgp.kernels import RBF

LENGTH_SCALE = np.array([0.9, 1.6])
#: The nugget of the inducing outputs, and the jitter on top of it.
JITTER = 1e-4 + 1e-8 * (1.0 + 1e-4)


def small_problem(
    *,
    n=7,
    binary=True,
    labels=True,
    missing=True,
    prior_weight=0.3,
    likelihood="logistic",
    free=False,
):
    """Two continuous columns, maybe a binary one and labels, and parameters off the optimum.

    Latents are those of a map, or free.
    """
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, 3)) * [1.0, 4.0, 1.0] + [0.0, 3.0, 0.0]
    X[:, 2] = X[:, 0] + 0.5 * X[:, 2] > 0.0
    is_binary = np.array([False, False, True])
    if missing:
        X[0, 0] = X[3, 1] = X[3, 0] = X[4, 2] = np.nan
    if not binary:
        X, is_binary = X[:, :2], is_binary[:2]
    columns = ColumnModel.of(X, is_binary)
    Y, seen = columns.continuous(X)
    t, weight, kl_weight = columns.signs(X), np.ones(X.shape[1]), 1.0
    if labels:
        t = np.column_stack([t, np.where(rng.uniform(size=n) < 0.6, 1.0, -1.0)])
        weight, kl_weight = np.append(prior_weight * weight, 1.0), prior_weight
    rows = columns.complete(X)
    data = HybridData(rows, Y, seen, t, weight, kl_weight, LIKELIHOODS[likelihood])
    d = X.shape[1]
    Z = rng.standard_normal((3, 2))
    recognition = Recognition(
        rng.standard_normal((d, 2)), rng.standard_normal(2), np.array([0.2, 0.4])
    )
    if free:
        recognition = RowLatents(Inputs(rng.standard_normal((n, 2)), rng.uniform(0.1, 0.9, (n, 2))))
    parameters = HybridParameters(
        RBF(LENGTH_SCALE),
        Z,
        recognition,
        np.log([2.0, 5.0]),
        np.log(np.linspace(0.7, 1.6, d + labels)),
    )
    return columns, data, parameters, X


def dense_arguments(data, p, j):
    """Arguments of an oracle for column j: moments of its latents and its kernel."""
    latents = p.recognition.latents(data.rows)
    return latents.mean, latents.variance, p.Z, np.exp(2.0 * p.log_amplitude[j]), LENGTH_SCALE
