"""What a state says of new rows: of the latent functions, and of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.parallel import parallel_map, thread_map
from skvbgp.ep._bound import Parameters
from skvbgp.ep._features import RowFeatures, cut_tiles
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import Likelihood

#: Rows of one task of a prediction.
_TASK_ROWS = 2**13


@dataclass(frozen=True)
class LatentPosterior:
    """N(mean_j, covariance_j) of the whitened inducing outputs, carried to new rows."""

    inducing: InducingOutputs  # of all k problems
    mean: Array  # (k, m)
    covariance: Array  # (k, m, m)

    def moments(self, inputs: Inputs) -> tuple[Array, Array]:
        """Mean and variance of f, each (n, k), averaged over uncertain inputs."""
        parts = thread_map(self._tile, [(inputs.rows(rows),) for rows in cut_tiles(len(inputs))])
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _tile(self, inputs: Inputs) -> tuple[Array, Array]:
        # a new row has the exact conditional given u, whatever training approximates
        features = RowFeatures(self.inducing, inputs, "dtc")
        each = [features.moments(*q) for q in zip(self.mean, self.covariance, strict=True)]
        means, variances = zip(*each, strict=True)
        return np.column_stack(means), np.column_stack(variances)


@dataclass(frozen=True)
class ClassPosterior:
    """The classes of new rows, by their latent functions and the likelihood."""

    parameters: Parameters
    latent: LatentPosterior
    likelihood: Likelihood
    n_jobs: int | None

    def decisions(self, X: Inputs) -> Array:
        """Scores of all problems, (n, k)."""
        tasks = [(X.rows(some),) for some in cut(len(X), _TASK_ROWS)]
        return np.concatenate(parallel_map(_decide, tasks, n_jobs=self.n_jobs, shared=(self,)))


def _decide(posterior: ClassPosterior, X: Inputs) -> Array:
    completed = posterior.parameters.complete(X)
    return posterior.likelihood.score(*posterior.latent.moments(completed))
