"""The choice between a kernel of noise that a search has found and the default, after training.

Where predictions do not condition on a block (PITC), the search's own judgement, what rows say of
others in their block, is not about them. Nor is the bound: of the same rows, the kernel that
explains blocks better has the higher one. See :doc:`/theory/training`.
"""

from __future__ import annotations

import numpy as np

from skvbgp.sgpr._data import Data
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._kernel_search import Scores
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._quadrature import DrawRule
from skvbgp.sgpr._state import State

#: Most blocks whose rows judge.
_MOST_BLOCKS = 16
#: Of the difference by which a kernel that has been found has to lead.
_STANDARD_ERRORS = 2.0


def choose_for_new_rows(found: State, default: State, data: Data, rule: DrawRule) -> State:
    """The default, unless rows that are left out are predicted better by what has been found.

    Parameters
    ----------
    found, default : State
        Trained on the same rows.
    data : Data
        These rows, in blocks.
    rule : ClosedForm or CommonDraws
        How predictions take expectations.
    """
    scores = [judge_by_new_rows(state, data, rule) for state in (found, default)]
    return found if scores[0].leads(scores[1], _STANDARD_ERRORS) else default


def judge_by_new_rows(state: State, data: Data, rule: DrawRule) -> Scores:
    """Log densities of known rows, each predicted from the others as a new row would be.

    All that are known exactly, or those of some blocks.
    """
    if isinstance(state.memory, Mixture):
        groups = [state.memory.rows]
        moments = [state.memory.leave_out(include_noise=False)]
    else:
        assert data.blocks is not None
        chosen = np.random.RandomState(state.seed).permutation(len(data.blocks))[:_MOST_BLOCKS]
        groups = data.pick(chosen)
        moments = Remembered.of(state).predict_groups(rule, groups)
    each, weights = [], []
    for rows, (mean, variance) in zip(groups, moments, strict=True):
        noise = state.noise.marginal_variance(state.model.coordinates.original(rows.X))
        variance = variance + rows.add_known(noise)
        each.append(-0.5 * (np.log(2.0 * np.pi * variance) + (rows.y - mean) ** 2 / variance))
        weights.append(np.ones(len(rows.y)) if rows.weight is None else rows.weight)
    return Scores(np.concatenate(each), np.concatenate(weights))
