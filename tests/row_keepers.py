"""Checks of regressors that keep all rows in memory, or all of them on Dask's workers."""

import os
import pickle
import signal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone


def check_others_are_not_left_out(model, X, y):
    """A model knows its rows, with their targets, and how often each counts."""
    for rows, targets in ((X + 0.1, y), (X, y + 0.1)):
        with pytest.raises(ValueError, match="new to it"):
            model.loo_predict(rows, targets)
    with pytest.raises(ValueError, match="more or less often"):
        model.loo_predict(X, y, sample_weight=2.0)


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


def check_deaths_change_nothing(client, model, places, say):
    """Of a model of rows on workers that all die between two calls.

    Lazy predictions and copies in other processes end in an error, until the model has its rows
    again.
    """
    import dask.array as da

    expected, copy = say(model), pickle.loads(pickle.dumps(model))
    lazy = model.predict(da.from_array(places, chunks=(17, 2)))
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="not on the workers any more"):
        lazy.compute()
    with pytest.raises(RuntimeError, match="not on the workers any more"):
        say(copy)
    assert_allclose(say(model), expected, rtol=1e-8)
    assert_allclose(lazy.compute(), expected[: len(places)], rtol=1e-8)
