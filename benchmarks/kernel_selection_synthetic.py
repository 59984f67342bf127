"""Fig. 2 of the paper of VBKS: belief about twelve kernels as more of the data are used.

Data from two known kernels: a smooth fit to 256 draws is read off at 1,000 random inputs
(Sec. 6.1 and App. E.1). 16 inducing inputs, mini-batches of 32 rows.
"""

import numpy as np
from common import Report, parser
from kernel_selection_flights import kernel_set_12

from skvbgp import VBKSRegressor
from skvbgp.kernels import Linear, Periodic, RationalQuadratic

TRUE_KERNELS = {
    "LIN * (RQ + PER)": (
        0.1**2 * Periodic(2.0, period=2.0 * np.pi) + 0.1**2 * RationalQuadratic(3.0)
    )
    * Linear(5.0, offset=0.0, offset_bounds="fixed"),
    "RQ * LIN * PER": 0.1**2
    * Periodic(1.0, period=2.0 * np.pi)
    * (0.1**2 * RationalQuadratic(8.0))
    * Linear(3.0, offset=0.0, offset_bounds="fixed"),
}


def synthetic_data(kernel, rng, n_drawn=256, n=1000):
    """Inputs in [-10, 10], and the mean of the process given its values at other inputs."""
    X0, X = rng.uniform(-10.0, 10.0, (n_drawn, 1)), rng.uniform(-10.0, 10.0, (n, 1))
    variances, vectors = np.linalg.eigh(kernel(X0))
    kept = variances > 1e-10 * variances.max()
    root = vectors[:, kept] * np.sqrt(variances[kept])
    y0 = root @ rng.standard_normal(root.shape[1])
    inverse = (vectors[:, kept] / variances[kept]) @ vectors[:, kept].T
    return X, kernel(X, X0) @ (inverse @ y0)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--n-jobs", type=int, default=2)
    arguments.add_argument("--passes", type=int, default=20)
    options = arguments.parse_args()
    report = Report(options.json)
    for true, kernel in TRUE_KERNELS.items():
        X, y = synthetic_data(kernel, np.random.default_rng(options.seed))
        for share in (0.05, 0.1, 0.2, 0.5, 1.0):
            n = round(share * len(X))
            model = VBKSRegressor(
                kernel_set_12(), n_inducing=16, batch_size=32, max_iter=options.passes,
                random_state=options.seed, n_jobs=options.n_jobs,
            ).fit(X[:n], y[:n])  # fmt: skip
            names = [name for name, _ in model.kernels_]
            belief = float(model.kernel_posterior_[names.index(true)])
            rank = int(np.sum(model.kernel_posterior_ > belief)) + 1
            report.add(
                true=true, share=share, belief=belief, rank=rank, first=model.best_kernel_[0]
            )


if __name__ == "__main__":
    main()
