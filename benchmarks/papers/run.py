"""Reproduce figures of the papers: a picture (png) and its tables (Markdown) for each.

The figures that need no data set do not read --data. See doc/reproduced_figures.rst for what
agrees with the papers and what does not.
"""

import argparse
import importlib
import sys
from pathlib import Path
from time import perf_counter

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the benchmarks' common.py

import matplotlib
from figures import Options
from peers import environments

#: Modules with a function run(options) that returns a Result.
FIGURES = [
    "paper000_fig1",
    "paper000_fig2_fig3",
    "paper000_fig4_fig5",
    "paper001_fig1_fig3",
    "paper001_fig2",
    "paper001_fig3_blog",
    "paper003_fig2",
    "paper003_fig2_cd",
    "paper003_fig3_fig4",
    "paper003_fig4a_fig5",
    "paper004_kin40k",
]


def main():
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder of NAME.npz files"
    )
    cli.add_argument(
        "--output", type=Path, default=Path("figures"), metavar="DIR", help="default: figures"
    )
    cli.add_argument(
        "--figures", nargs="+", choices=FIGURES, default=FIGURES, metavar="NAME",
        help=f"some of {', '.join(FIGURES)}; default: all",
    )  # fmt: skip
    cli.add_argument("--quick", action="store_true", help="smaller runs, minutes in all")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument(
        "--peers", type=Path, metavar="DIR",
        help="also run GPyTorch and GPflow; their environments are made in this folder",
    )  # fmt: skip
    args = cli.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    peers = {} if args.peers is None else environments(args.peers.resolve())
    options = Options(args.data, args.quick, args.seed, peers)
    matplotlib.use("Agg")
    for name in args.figures:
        start = perf_counter()
        importlib.import_module(name).run(options).save(args.output, name)
        print(f"{args.output / name}.png, .md: {perf_counter() - start:.0f} s", flush=True)
        print((args.output / f"{name}.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
