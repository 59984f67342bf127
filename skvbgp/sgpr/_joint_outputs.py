r"""Several outputs that learn from each other: a kernel of inputs times one of outputs.

Rows say by an indicator which output they are of: their last t columns hold a unit vector. Each of
these columns is an input with an inverse length scale of its own, so that, with lambda_i and
lambda_j those of two outputs,

    cov(f_i(x), f_j(x')) = s_i s_j exp(-(lambda_i^2 + lambda_j^2) / 2) k(x, x')

for i != j, where the signs s turn outputs round (`base._signs`): intrinsic coregionalisation, of
rank one besides what each output has of its own. Inducing inputs lie between outputs as between
inputs. The white noise of each output has a variance of its own, and a noise kernel is that of
independent processes, one for each output. See :ref:`sgpr-joint-outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import add_inputs
from skvbgp.base import JointState, StackingLearner, lengthen
from skvbgp.sgpr._learner import SparseLearner


@dataclass(frozen=True)
class SparseJointLearner(StackingLearner):
    """The settings of the model of all outputs."""

    single: SparseLearner

    @cached_property
    def model(self) -> SparseLearner:
        single, t = self.single, self.t
        structure, places = single.structure, single.inducing_inputs
        if structure.explained and not structure.is_open:
            raise ValueError(
                'noise_kernel: with output_covariance="learned", rows say which output they '
                "are of in more columns than X has, which a kernel of X does not know."
            )
        return replace(
            single,
            owners=add_inputs(single.owners, t),
            inducing_inputs=None if places is None else lengthen(places, t),
            forgetting=single.forgetting ** (1.0 / t),
            n_outputs=t,
        )

    def attributes(self, state: JointState) -> dict[str, Any]:
        """Those of the model, and what there is for each output as an array."""
        values, unit, t = state.model.attributes, state.units.unit, self.t
        log_unit = float(state.counts @ np.log(np.abs(unit)))
        noises = np.array(values["noise_variance_"])
        for j, one in enumerate(state.apart):
            if one is not None:
                noises[j] = one.attributes["noise_variance_"]
        return values | {
            "inverse_length_scale_mean_": values["inverse_length_scale_mean_"][:-t],
            "inverse_length_scale_var_": values["inverse_length_scale_var_"][:-t],
            "signal_std_mean_": values["signal_std_mean_"] * np.abs(unit),
            "signal_std_var_": values["signal_std_var_"] * unit**2,
            "noise_variance_": noises * unit**2,
            "lower_bound_": values["lower_bound_"] - log_unit,
            "lower_bounds_": [bound - log_unit for bound in values["lower_bounds_"]],
            "n_iter_": values["n_iter_"] + state.n_alone,
            "n_samples_seen_": state.n,
        }


def correlate(state: JointState) -> Array:
    """Expected prior correlations (t, t) of the outputs' functions at a place."""
    p, signs = state.model.parameters, np.sign(state.units.unit)
    nu, xi = p.nu[-len(signs) :], p.xi[-len(signs) :]
    each = signs * np.exp(-0.5 * nu**2 / (1.0 + xi)) / np.sqrt(1.0 + xi)
    B = np.outer(each, each)
    np.fill_diagonal(B, 1.0)
    return B
