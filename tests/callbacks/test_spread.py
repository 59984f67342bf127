"""Checkpoints of fits to rows on Dask's workers: the loops are the client's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp import DecoupledGPRegressor, VBDTCRegressor, VBGPRegressor, VBPICRegressor
from skvbgp.callbacks import Checkpoint
from skvbgp.kernels import RBF, Matern
from tests.callbacks.test_checkpoint import Interrupt, interrupt

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

pytestmark = pytest.mark.usefixtures("client", "many_rows", "quick_block_start")

MODELS = {
    "PIC": VBPICRegressor(
        8, n_blocks=12, max_iter=3, batch_size=200, random_state=0, noise_kernel=None
    ),
    "DTC": VBDTCRegressor(8, max_iter=3, batch_size=200, random_state=0),
    "decoupled": DecoupledGPRegressor(
        n_mean_basis=30, n_cov_basis=15, batch_size=100, max_iter=3, random_state=0
    ),
    "neighbours": VBGPRegressor([RBF(), Matern()], n_neighbors=20, max_iter=2, random_state=0),
}


def make_collections(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(600)
    return da.from_array(X, chunks=(170, 2)), da.from_array(y, chunks=170)


@pytest.mark.parametrize(
    "name",
    [pytest.param(k, marks=[] if k != "decoupled" else pytest.mark.slow) for k in MODELS],
)
def test_a_fit_to_rows_on_workers_goes_on(name, tmp_path):
    """Up to rounding, which depends on which worker has which rows."""
    model, path, places = MODELS[name], tmp_path / "fit", np.zeros((1, 2))
    expected = clone(model).fit(*make_collections())
    interrupt(model, path, 2, *make_collections())
    assert path.exists()
    with pytest.raises(ValueError, match="with other data"):
        clone(model).set_callbacks(Checkpoint(path)).fit(*make_collections(1))
    count = Interrupt()
    resumed = clone(model).set_callbacks(Checkpoint(path), count).fit(*make_collections())
    assert_allclose(resumed.predict(places), expected.predict(places), rtol=1e-8)
    assert count.n_passes > 2
    assert not path.exists()
