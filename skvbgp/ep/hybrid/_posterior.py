"""What the latent-variable model says of new rows, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import Likelihood
from skvbgp.ep.hybrid._bound import ColumnMoments, LatentFeatures
from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._objective import HybridData, HybridParameters


@dataclass(frozen=True)
class HybridPosterior:
    """Parameters with q(v_j) = N(mean_j, covariance_j) of every column."""

    columns: ColumnModel
    parameters: HybridParameters
    likelihood: Likelihood  # of binary columns and labels
    inducing: InducingOutputs  # of the parameters
    mean: Array  # (p, m)
    covariance: Array  # (p, m, m)

    def latents(self, X: Array) -> Inputs:
        """q(x_i) of rows (n, d) with missing entries, whose labels are unknown."""
        return self.parameters.recognition.latents(self.columns.complete(X))

    def extend(self, data: HybridData) -> HybridParameters:
        """The parameters where the training data have more rows, given as `data`."""
        return self.parameters

    def moments(self, latents: Inputs, n_columns: int | None = None) -> ColumnMoments:
        """Those of the first columns' functions, or of all, at some latents."""
        features, first = LatentFeatures(self.inducing, latents), slice(n_columns)
        amplitude = np.exp(self.parameters.log_amplitude[first])
        return ColumnMoments(features, amplitude, self.mean[first], self.covariance[first])

    def entries(self, latents: Inputs) -> tuple[Array, Array]:
        """Mean and standard deviation (n, d) of entries of X, in its units."""
        f = self.moments(latents)
        binary = self.columns.binary
        k = int(np.sum(~binary))
        discrete = slice(k, k + int(binary.sum()))
        probability = ndtr(self.likelihood.score(f.mean[:, discrete], f.variance[:, discrete]))
        noise = np.exp(-self.parameters.log_precision)
        return self.columns.original(f.mean[:, :k], f.variance[:, :k] + noise, probability)

    def decisions(self, latents: Inputs) -> Array:
        """Scores of the labels, (n, number of label columns)."""
        f, d = self.moments(latents), len(self.columns.binary)
        return self.likelihood.score(f.mean[:, d:], f.variance[:, d:])
