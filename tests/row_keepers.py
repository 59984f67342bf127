"""Checks of regressors that keep all rows in memory, or all of them on Dask's workers."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone


def check_rows_do_not_mix(model, X, y, spread, say):
    """Rows in memory join none on workers, and rows on workers those in memory if they are few.

    Returns the model that was fitted to rows on workers.
    """
    model, local = clone(model).fit(*spread(X, y)), clone(model).fit(X, y)
    expected = say(model)
    with pytest.raises(TypeError, match="rows in memory cannot join"):
        model.partial_fit(X[:50], y[:50])
    assert_array_equal(say(model), expected)
    assert np.all(np.isfinite(model.log_predictive_density(X[:5], y[:5])))
    with pytest.raises(TypeError, match="too large to join them"):
        local.partial_fit(*spread(X, y))
    local.partial_fit(*spread(X[:50], y[:50]))
    assert local.n_samples_seen_ == len(y) + 50
    return model
