"""Time of `import skvbgp` beside that of `import sklearn.gaussian_process`, in fresh processes."""

import subprocess
import sys

import numpy as np
from common import Report, parser

MODULES = ["sklearn.gaussian_process", "skvbgp", "skvbgp.sgpr", "skvbgp.ep"]


def seconds_of_import(module):
    """Seconds in a new interpreter, whose own start does not count."""
    code = f"from time import perf_counter as t; a = t(); import {module}; print(t() - a)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=15)
    options = arguments.parse_args()
    for module in MODULES:
        seconds_of_import(module)  # into the file cache
    times = np.array([[seconds_of_import(m) for m in MODULES] for _ in range(options.repeats)])
    report = Report(options.json)
    for module, column in zip(MODULES, times.T, strict=True):
        row = {"import": module, "median s": float(np.median(column))}
        ratio = float(np.median(column / times[:, 0]))
        report.add(**row, **{"shortest s": float(np.min(column)), "of the first": ratio})


if __name__ == "__main__":
    main()
