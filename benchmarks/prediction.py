"""Time and peak memory of the prediction of many rows, mean and standard deviation."""

import tracemalloc
from time import perf_counter

import numpy as np
from common import Report, parser, smooth_data

from skvbgp import VBDTCRegressor


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=float, default=1e6)
    cli.add_argument("--features", type=int, default=8)
    cli.add_argument("--n-inducing", type=int, default=500)
    cli.add_argument("--train-rows", type=int, default=20_000)
    args = cli.parse_args()

    rng = np.random.default_rng(0)
    X, y = smooth_data(args.train_rows, args.features, rng)
    model = VBDTCRegressor(args.n_inducing, solver="stochastic", max_iter=1, random_state=0)
    model.fit(X, y)
    X_test, _ = smooth_data(int(args.rows), args.features, rng)
    model.predict(X_test[:2000], return_std=True)

    start = perf_counter()
    model.predict(X_test, return_std=True)
    seconds = perf_counter() - start

    tracemalloc.start()
    mean, std = model.predict(X_test, return_std=True)
    peak = tracemalloc.get_traced_memory()[1]
    Report(args.json).add(
        rows=len(X_test),
        n_inducing=args.n_inducing,
        features=args.features,
        seconds=seconds,
        **{
            "rows / s": len(X_test) / seconds,
            "peak MiB": peak / 2**20,
            "of which results MiB": (mean.nbytes + std.nbytes) / 2**20,
            "inputs MiB": X_test.nbytes / 2**20,
        },
    )


if __name__ == "__main__":
    main()
