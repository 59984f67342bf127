"""What the figures share: their options, fits of growing length, and how they are saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
from common import Report
from sklearn.base import clone


@dataclass(frozen=True)
class Options:
    """What the command line asks of every figure.

    Attributes
    ----------
    data : Path
        Folder of the data sets.
    quick : bool
        Smaller runs.
    seed : int
    peers : dict
        Interpreters of the peers that are to run, by name.
    """

    data: Path
    quick: bool = False
    seed: int = 0
    peers: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A picture, and the rows of its tables by title."""

    picture: object  # matplotlib Figure
    tables: Mapping[str, list[dict]]

    def save(self, folder, name):
        """Write NAME.png and NAME.md."""
        self.picture.savefig(folder / f"{name}.png", dpi=120)
        with (folder / f"{name}.md").open("w", encoding="utf-8") as file:
            for title, rows in self.tables.items():
                print(f"**{title}**\n", file=file)
                report = Report(as_json=False, file=file)
                for row in rows:
                    report.add(**row)
                print(file=file)


def rmse(y, mean):
    """Root mean square error."""
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def fits(model, X, y, passes, clock=perf_counter):
    """(passes, seconds, fitted model) for each number of passes.

    The step sizes anneal over a fit, so that each number of passes is a fit of its own.
    """
    for n_passes in passes:
        fitted = clone(model).set_params(max_iter=n_passes)
        start = clock()
        fitted.fit(X, y)
        yield n_passes, clock() - start, fitted


def pivoted(rows, index, column, value):
    """Wide table: a row for each value of ``index``, a column for each of ``column``."""
    table = {}
    for row in rows:
        table.setdefault(row[index], {index: row[index]})[str(row[column])] = row[value]
    return list(table.values())


def draw_curves(axis, rows, column, *, value="RMSE", label="{}"):
    """Lines of a value against the passes, one for each entry of a column."""
    curves = {}
    for row in rows:
        curves.setdefault(row[column], []).append((row["passes"], row[value]))
    for name, points in curves.items():
        axis.plot(*np.transpose(points), marker=".", label=label.format(name))
    passes = sorted({row["passes"] for row in rows})
    axis.set(xscale="log", xlabel="passes", ylabel=value)
    axis.set_xticks(passes, map(str, passes))
    axis.minorticks_off()
    axis.legend()
