"""What the benchmarks share: data, scores, output. Needs NumPy alone, for the peers' sake."""

import argparse
import json
import os
from ast import literal_eval
from pathlib import Path

import numpy as np


def parser(description, *, data=False):
    """An argument parser with the options of every benchmark."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    if data:
        result.add_argument(
            "--data", type=Path, required=True, metavar="DIR", help="folder of NAME.npz files"
        )
    result.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    return result


def literals(texts):
    """A dict of what NAME=VALUE say, for options of parameters."""
    pairs = (text.partition("=") for text in texts)
    return {name: literal_eval(value) for name, _, value in pairs}


def load(folder, name):
    """X, y and test_mask (one column per split) of a data set."""
    with np.load(folder / f"{name}.npz") as file:
        return file["X"], file["y"], file["test_mask"]


def load_split(folder, name, split):
    """X_train, y_train, X_test, y_test."""
    X, y, test_mask = load(folder, name)
    test = test_mask[:, split]
    return X[~test], y[~test], X[test], y[test]


def load_series(folder, name="timeseries"):
    """Yield name, t_train, y_train, t_test, y_test of series, with standardised t and y."""
    with np.load(folder / f"{name}.npz") as file:
        for series in sorted({key.rsplit("__", 1)[0] for key in file}):
            train, test = file[f"{series}__train"], file[f"{series}__test"]
            mean, std = train.mean(axis=0), train.std(axis=0)
            train, test = (train - mean) / std, (test - mean) / std
            yield series, train[:, :1], train[:, 1], test[:, :1], test[:, 1]


def nlpd(y, mean, std):
    """Mean negative log predictive density, on the scale of y."""
    return float(np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y - mean) / std) ** 2))


def scores(y, mean, std):
    """RMSE, NLPD and the share of y inside the 95 % intervals."""
    error = y - mean
    return {
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "NLPD": nlpd(y, mean, std),
        "coverage": float(np.mean(np.abs(error) < 1.96 * std)),
    }


def stream(model, X, y, n_rows, seed):
    """`model` after chunks of so many rows, in random order; the last one may be smaller."""
    order = np.random.default_rng(seed).permutation(len(y))
    for first in range(0, len(y), n_rows):
        rows = order[first : first + n_rows]
        model.partial_fit(X[rows], y[rows])
    return model


def smooth_data(n, d, rng):
    """Random inputs, and a smooth function of them with noise of standard deviation 0.1."""
    X = rng.uniform(-1.0, 1.0, (n, d))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1 % d] * X[:, -1] + 0.1 * rng.standard_normal(n)
    return X, y


def memory_now():
    """MB of this process that are in memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Report:
    """Rows (dicts with equal keys) printed one by one, as a Markdown table or JSON lines."""

    def __init__(self, as_json, file=None):
        self._as_json, self._file = as_json, file
        self._has_header = False

    def add(self, **row):
        if self._as_json:
            self._print(json.dumps(row))
            return
        if not self._has_header:
            self._print("| " + " | ".join(row) + " |")
            self._print("|" + "---|" * len(row))
            self._has_header = True
        self._print("| " + " | ".join(map(cell, row.values())) + " |")

    def _print(self, line):
        print(line, file=self._file, flush=True)


def cell(value):
    """A value as it is printed."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
