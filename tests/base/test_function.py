"""What a function varies by."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp.base import Relevance


def test_a_category_matters_as_much_as_a_number_of_the_same_effect():
    rng = np.random.default_rng(0)
    X = np.column_stack([*rng.standard_normal((2, 4_000)), np.zeros(4_000)])
    slopes = np.ones_like(X)
    found = Relevance.of_slopes(
        X,
        np.ones(len(X)),
        slopes,
        slopes[None],
        owners=(0, 1, 1),
        predict=lambda X: np.tile(X.sum(axis=1), (2, 1)),
    )
    assert_allclose(found.mean, [0.5, 0.5], atol=0.02)


def test_outputs_say_independently_what_matters():
    one = Relevance(np.array([0.5, 0.5]), np.array([0.3, 0.4]))
    found = Relevance.average([one] * 4, np.ones(4))
    assert_allclose(found, [[0.5, 0.5], [0.15, 0.2]])
