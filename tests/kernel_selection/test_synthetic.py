"""Sec. 6.1 of [Teng2020]_: the kernel that made the data is found as their number grows."""

import numpy as np
import pytest

from skvbgp import VBKSRegressor, kernel_grammar
from skvbgp.kernels import Linear, Periodic, RationalQuadratic

#: Table 1 of the paper, in the names of `kernel_grammar`.
K12 = [
    "RQ + LIN", "LIN + RQ * LIN", "PER + RQ * LIN", "SE + RQ + PER", "RQ + LIN + PER",
    "SE + PER + PER", "SE + SE * PER", "SE + RQ * PER", "SE + LIN * PER", "SE * LIN * PER",
    "RQ * LIN * PER", "LIN * (RQ + PER)",
]  # fmt: skip


def line(length_scale):
    return Linear(length_scale, offset=0.0, offset_bounds="fixed")


#: App. E.1; the common factor 0.1**2 of a kernel only scales the data.
TRUE_KERNELS = {
    "RQ * LIN * PER": Periodic(1.0, period=2.0 * np.pi) * RationalQuadratic(8.0) * line(3.0),
    "LIN * (RQ + PER)": (Periodic(2.0, period=2.0 * np.pi) + RationalQuadratic(3.0)) * line(5.0),
}


def noisy_data(kernel, seed, n_drawn=256, n=1000, noise=0.3):
    """A smooth fit to a draw at 256 inputs, read off at 1,000 others with noise."""
    rng = np.random.default_rng(seed)
    X0, X = rng.uniform(-10.0, 10.0, (n_drawn, 1)), rng.uniform(-10.0, 10.0, (n, 1))
    variances, vectors = np.linalg.eigh(kernel(X0))
    kept = variances > 1e-10 * variances.max()
    roots = np.sqrt(variances[kept])
    weights = vectors[:, kept] @ (rng.standard_normal(kept.sum()) / roots)  # K^-1 y0
    f = kernel(X, X0) @ weights
    return X, f + noise * f.std() * rng.standard_normal(n)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUE_KERNELS)
def test_belief_in_the_true_kernel_rises_and_ends_first(name):
    X, y = noisy_data(TRUE_KERNELS[name], seed=1)
    grammar = dict(kernel_grammar())
    kernels = [(other, grammar[other]) for other in K12]
    belief = []
    for n in (50, 1000):
        model = VBKSRegressor(kernels, n_inducing=16, n_restarts=2, random_state=0)
        belief.append(model.fit(X[:n], y[:n]).kernel_posterior_[K12.index(name)])
    assert belief[0] < 0.5
    assert belief[1] > 0.8
    assert model.best_kernel_[0] == name
