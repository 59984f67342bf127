"""Millions of rows: time and memory of a fit, and time of predictions (Linux).

The function is smooth and has noise. Memory is the most that the process holds during the fit,
above what it holds before, with the data; predictions are means and standard deviations.
"""

from threading import Event, Thread
from time import perf_counter

import numpy as np
from common import Report, memory_now, parser, scores, smooth_data

import skvbgp


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=int, default=2_000_000)
    cli.add_argument("--features", type=int, default=8)
    cli.add_argument("--test-rows", type=int, default=100_000)
    cli.add_argument("--estimator", default="VBGPRegressor")
    args = cli.parse_args()
    Report(args.json).add(estimator=args.estimator, **measure(args))


def measure(args):
    rng = np.random.default_rng(0)
    X, y = smooth_data(args.rows, args.features, rng)
    X_new, y_new = smooth_data(args.test_rows, args.features, rng)
    model = getattr(skvbgp, args.estimator)(random_state=0)
    before = memory_now()
    start = perf_counter()
    with Peak() as peak:
        model.fit(X, y)
    fitted = perf_counter()
    mean, std = model.predict(X_new, return_std=True)
    predicted = perf_counter()
    return {
        "rows": len(X),
        "inputs": X.shape[1],
        "data MB": (X.nbytes + y.nbytes) / 1e6,
        "fit s": fitted - start,
        "more MB": peak.value - before,
        "predictions": len(X_new),
        "predict s": predicted - fitted,
        **scores(y_new, mean, std),
    }


class Peak:
    """The most memory in a block of code, looked at every hundredth of a second."""

    def __enter__(self):
        self.value, self._is_over = memory_now(), Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._is_over.set()
        self._thread.join()

    def _watch(self):
        while not self._is_over.wait(0.01):
            self.value = max(self.value, memory_now())


if __name__ == "__main__":
    main()
