"""Searches in rounds, with an objective that is a parabola."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvbgp._optim.ascent import go_on
from skvbgp.ep._rounds import Reached, maximise_in_rounds


class Parabola:
    """level - |x - centre|^2 / 2, from some x."""

    bounds = memory = sites = None

    def __init__(self, x, level, centre):
        self.x, self.level, self.centre = x, level, centre

    def parameters(self, x):
        return x

    def __call__(self, x):
        away = x - self.centre
        return self.level - 0.5 * away @ away, -away


def search(levels, max_iter=200):
    """Where rounds begin and end whose parabolas have some levels, and move."""
    rounds = []

    def pose(reached):
        rounds.append(reached)
        return Parabola(reached.parameters, levels[len(rounds) - 1], len(rounds))

    options = {"max_iter": max_iter, "tol": 1e-9, "round_tol": 1e-3, "end_pass": go_on}
    return rounds, maximise_in_rounds(pose, Reached(np.zeros(3), None), **options)


def test_a_fall_is_no_convergence():
    """Where what is brought up to date lowers the objective, the search goes on."""
    rounds, optimum = search([100.0, 90.0, 90.0])
    assert len(rounds) == 3
    np.testing.assert_allclose(optimum.parameters, 3.0)
    with pytest.warns(ConvergenceWarning, match="fell"):
        search([100.0, 90.0], len(rounds[1].values) + 1)
