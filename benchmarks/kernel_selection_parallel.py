"""Parallel efficiency of fitting a grammar: time with one worker over twice that with two.

Each is the shortest of some fits, which alternate. A small fit starts the workers before. BLAS
has one thread in all of them: `parallel_map` sees to that.
"""

import time

import numpy as np
from common import Report, parser

from skvbgp import VBKSRegressor


def seconds_to_fit(n_jobs, depth, t, y):
    start = time.perf_counter()
    VBKSRegressor(depth=depth, random_state=0, n_jobs=n_jobs).fit(t, y)
    return time.perf_counter() - start


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=200)
    arguments.add_argument("--depth", type=int, default=2)
    arguments.add_argument("--repeats", type=int, default=2)
    options = arguments.parse_args()
    t = np.linspace(0.0, 20.0, options.rows)[:, None]
    y = np.sin(2.0 * np.pi * t[:, 0]) + 0.1 * t[:, 0]
    y += 0.1 * np.random.default_rng(0).standard_normal(len(y))
    VBKSRegressor(depth=1, random_state=0, n_jobs=2).fit(t, y)  # starts the workers
    seconds = [
        [seconds_to_fit(n_jobs, options.depth, t, y) for n_jobs in (1, 2)]
        for _ in range(options.repeats)
    ]
    one, two = np.min(seconds, axis=0).tolist()
    report = Report(options.json)
    report.add(rows=options.rows, **{"1 worker": one, "2 workers": two}, efficiency=one / two / 2.0)


if __name__ == "__main__":
    main()
