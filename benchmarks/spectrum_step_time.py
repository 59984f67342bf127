"""SVBSSGP for more and more rows: time of a step in both phases, time and memory of the set-up.

The memory is what NumPy holds at most beside the data, of a second fit under tracemalloc with a
single step in each phase.
"""

import tracemalloc
from itertools import islice
from time import perf_counter
from unittest import mock

import numpy as np
from common import Report, parser, smooth_data

from skvbgp import SVBSSGPRegressor
from skvbgp.spectrum._rows import BlockedRows


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=float, nargs="+", default=[2e4, 2e5, 2e6])
    cli.add_argument("--features", type=int, default=8)
    cli.add_argument("--steps", type=int, default=39, help="in each phase")
    args = cli.parse_args()
    report = Report(args.json)
    reference = None
    for n in map(int, args.rows):
        X, y = smooth_data(n, args.features, np.random.default_rng(0))
        start = perf_counter()
        stamps = step_stamps(X, y, args.steps)
        fit_seconds = perf_counter() - start
        medians = [np.median(np.diff(phase)) for phase in stamps]
        reference = reference or medians
        tracemalloc.start()
        step_stamps(X, y, 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        report.add(
            rows=n,
            **{
                "blocks ms": 1e3 * medians[0],
                "blocks relative": medians[0] / reference[0],
                "bound ms": 1e3 * medians[1],
                "bound relative": medians[1] / reference[1],
                "set-up s": stamps[0][0] - start,
                "fit s": fit_seconds,
                "data MB": (X.nbytes + y.nbytes) / 1e6,
                "memory MB": peak / 1e6,
            },
        )


def step_stamps(X, y, n_steps):
    """When each step of a single pass of each phase, cut short, gets its rows."""
    stamps = []
    minibatches = BlockedRows.minibatches

    def observed(self, batch_size, rng):
        stamps.append([])
        for batch in islice(minibatches(self, batch_size, rng), n_steps):
            stamps[-1].append(perf_counter())
            yield batch

    with mock.patch.object(BlockedRows, "minibatches", observed):
        SVBSSGPRegressor(max_iter=1, random_state=0).fit(X, y)
    return stamps


if __name__ == "__main__":
    main()
