"""What a fitted regressor keeps."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp import VBDTCRegressor, VBFITCRegressor


@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
@pytest.mark.every_nth("cls", 2)
def test_a_pickle_holds_the_memory_and_not_the_factors(cls, rng):
    """One matrix of the inducing inputs, of up to thirteen, and places with their weights."""
    m = 60
    X = rng.standard_normal((600, 2))
    model = cls(m, max_iter=1, solver="stochastic", random_state=0).fit(X, np.sin(X[:, 0]))
    prediction = model.predict(X[:5], return_std=True)
    pickled = pickle.dumps(model)
    assert len(pickled) < 2 * 8 * m * m + 600 * 3 * 8
    assert_array_equal(pickle.loads(pickled).predict(X[:5], return_std=True), prediction)
