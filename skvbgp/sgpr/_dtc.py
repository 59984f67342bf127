"""VBDTC: independent noise of constant variance."""

from skvbgp.sgpr._base import SparseRegressor
from skvbgp.sgpr._docs import documented


@documented(
    """Variational Bayesian sparse Gaussian process regression with white noise (VBDTC).

    Observations are f(x) plus independent Gaussian noise of one variance. This is the
    member of the family to start from: it is the cheapest, and its predictive moments
    have a closed form [Yu2019]_.
    """
)
class VBDTCRegressor(SparseRegressor):
    pass
