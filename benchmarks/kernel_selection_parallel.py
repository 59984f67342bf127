"""Parallel efficiency of fitting a grammar: time with one worker over twice that with two.

Both are measured one after the other, several times. A small fit starts the workers before. BLAS
has one thread in all of them: `parallel_each` sees to that.
"""

import time

import numpy as np
from common import Report, parser

from skvbgp import VBKSRegressor


def seconds_to_fit(n_jobs, depth, t, y):
    start = time.perf_counter()
    VBKSRegressor("grammar", depth=depth, random_state=0, n_jobs=n_jobs).fit(t, y)
    return time.perf_counter() - start


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=150)
    arguments.add_argument("--depth", type=int, default=3)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    t = np.linspace(0.0, 20.0, options.rows)[:, None]
    y = np.sin(2.0 * np.pi * t[:, 0]) + 0.1 * t[:, 0]
    y += 0.1 * np.random.default_rng(0).standard_normal(len(y))
    VBKSRegressor("grammar", depth=1, random_state=0, n_jobs=2).fit(t, y)  # starts the workers
    report, rows = Report(options.json), []
    for repeat in range(options.repeats):
        one, two = (seconds_to_fit(n_jobs, options.depth, t, y) for n_jobs in (1, 2))
        rows.append((one, two, one / two / 2.0))
        add(report, str(repeat), rows[-1])
    add(report, "median", np.median(rows, axis=0))
    add(report, "min", np.min(rows, axis=0))


def add(report, repeat, row):
    names = ("1 worker", "2 workers", "efficiency")
    report.add(repeat=repeat, **dict(zip(names, map(float, row), strict=True)))


if __name__ == "__main__":
    main()
