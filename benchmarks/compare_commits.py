"""Compare the speed of two commits by runs that alternate.

Both are checked out in temporary worktrees. Each case fits an estimator to synthetic data and
predicts, in processes of its own with one thread, in the order base, head, head, base: a machine
that becomes slower or faster meanwhile favours neither. The ratio of such a round is the geometric
mean of head over that of base, in CPU seconds. What is printed is the median of the rounds' ratios,
and an interval that holds the true median with a probability of 90 % or more, whatever the
distribution of the times. "slower" ("faster") has all of its interval above (below) 1, by more than
the tolerance.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from common import Report, parser, smooth_data

#: The processes of a round, and where among them a commit's are.
ORDER, BASE, HEAD = ("base", "head", "head", "base"), [0, 3], [1, 2]
CALLS = ("fit", "predict")
#: Of fewer rounds, no interval holds the median with so much probability.
MIN_REPEATS = 5
THREADS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"]


@dataclass(frozen=True)
class Case:
    """An estimator, and how many rows it is trained with and predicts."""

    estimator: str
    n_rows: int
    n_new: int
    target: str = "numbers"  # or "classes", or "series", of one column
    parameters: dict = field(default_factory=dict)

    def make_data(self):
        rng = np.random.default_rng(0)
        n = self.n_rows + self.n_new
        if self.target == "series":
            t = np.linspace(0.0, 1.0, n)
            y = 2.0 * t + np.sin(12.0 * np.pi * t) + 0.1 * rng.standard_normal(n)
            return t[: self.n_rows, None], y[: self.n_rows], t[self.n_rows :, None]
        X, y = smooth_data(n, 4, rng)
        if self.target == "classes":
            y = (y > 0.0).astype(int)
        return X[: self.n_rows], y[: self.n_rows], X[self.n_rows :]


CASES = {
    "gp": Case("VBGPRegressor", 420, 1_000),
    "gp, classes": Case("VBGPClassifier", 200, 1_000, "classes"),
    "sgpr, few rows": Case("VBDTCRegressor", 200, 20_000),
    "sgpr, mini-batches": Case("VBDTCRegressor", 3_000, 20_000, parameters={"n_inducing": 50}),
    "sgpr, blocks": Case("VBPICRegressor", 550, 2_000, parameters={"n_inducing": 50}),
    "spectrum": Case("SVBSSGPRegressor", 400, 1_000),
    "kernel_selection": Case("VBKSRegressor", 100, 100, "series"),
    "decoupled": Case("DecoupledGPRegressor", 250, 20_000),
    "ep": Case("EPDTCClassifier", 300, 50_000, "classes"),
    "ep, hybrid": Case("HybridGPLVM", 150, 20_000, "classes"),
}


def main(arguments=None):
    cli = parser(__doc__)
    cli.formatter_class = argparse.RawDescriptionHelpFormatter
    cli.add_argument("base", help="a commit, such as main")
    cli.add_argument("head", help="another one")
    cli.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), metavar="NAME",
                     help=f"some of {', '.join(map(repr, CASES))}; default: all")  # fmt: skip
    cli.add_argument("--repeats", type=int, default=MIN_REPEATS, help="rounds; default: 5")
    cli.add_argument("--tolerance", type=float, default=0.03, help="default: 0.03")
    cli.add_argument("--fail", action="store_true", help="exit code 1 if head is slower or fails")
    args = cli.parse_args(arguments)
    if args.repeats < MIN_REPEATS:
        cli.error(f"--repeats must be at least {MIN_REPEATS}")
    report, worse = Report(args.json), []
    with checked_out(args.base) as base, checked_out(args.head) as head:
        trees = {"base": base, "head": head}
        for name in args.case:
            for row in compare(name, trees, args.repeats, args.tolerance):
                report.add(**row)
                if row["verdict"] in ("slower", "head fails"):
                    worse.append(f"{row['case']} ({row['call']})")
    if args.fail and worse:
        raise SystemExit(f"{args.head} is slower than {args.base}, or fails: {'; '.join(worse)}")


@contextmanager
def checked_out(commit):
    """A temporary worktree of the repository that the command is run in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkout")
        git("worktree", "add", "--quiet", "--detach", path, commit)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", path)


def git(*arguments):
    subprocess.run(["git", *arguments], check=True, stdout=subprocess.DEVNULL)


def compare(name, trees, repeats, tolerance):
    """Yield a row of the table for each call."""
    columns = ["base wall s", "head wall s", "base CPU s", "head CPU s", "ratio", "interval"]
    for commit, tree in trees.items():  # compiles the modules, and reads them into the file cache
        try:
            run(name, tree)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {commit} fails: {error.stderr.strip()}", file=sys.stderr)
            yield (
                {"case": name, "call": "-"}
                | dict.fromkeys(columns)
                | {"verdict": f"{commit} fails"}
            )
            return
    rounds = [[run(name, trees[commit]) for commit in ORDER] for _ in range(repeats)]
    for call in CALLS:
        # (rounds, processes of a round, wall and CPU)
        seconds = np.array([[times[call] for times in processes] for processes in rounds])
        ratios = ratios_of_rounds(seconds[..., 1])
        low, high = interval_of_median(ratios)
        times = [float(np.median(seconds[:, of, i])) for i in (0, 1) for of in (BASE, HEAD)]
        values = [*times, float(np.median(ratios)), f"{low:.3f} to {high:.3f}"]
        row = dict(zip(columns, values, strict=True))
        yield {"case": name, "call": call} | row | {"verdict": judge(low, high, tolerance)}


def run(name, tree):
    """Wall and CPU seconds by call, of a new process with the package of a checkout."""
    path = os.pathsep.join(map(str, [tree, Path(__file__).parent]))
    env = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": path}
    code = f"import compare_commits; compare_commits.measure({name!r}, {str(tree)!r})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(name, tree):
    """Fit and predict once, and print the seconds as JSON."""
    import skvbgp

    assert Path(skvbgp.__file__).is_relative_to(tree), skvbgp.__file__
    case = CASES[name]
    X, y, X_new = case.make_data()
    model = getattr(skvbgp, case.estimator)(random_state=0, **case.parameters)
    seconds = {}
    for call, arguments in zip(CALLS, [(X, y), (X_new,)], strict=True):
        wall, cpu = perf_counter(), process_time()
        getattr(model, call)(*arguments)
        seconds[call] = [perf_counter() - wall, process_time() - cpu]
    print(json.dumps(seconds))


def ratios_of_rounds(seconds):
    """Geometric means of head over those of base, from seconds of shape (rounds, 4)."""
    logs = np.log(seconds)
    return np.exp(logs[:, HEAD].mean(axis=1) - logs[:, BASE].mean(axis=1))


def interval_of_median(values, level=0.9):
    """The narrowest pair of order statistics that holds the true median with this probability.

    No more than k of n values are below it with probability sum(comb(n, i), i <= k) / 2^n, and
    as many are above it.
    """
    n, k = len(values), 0
    while sum(math.comb(n, i) for i in range(k + 2)) / 2.0**n <= 0.5 * (1.0 - level):
        k += 1
    return np.sort(values)[[k, n - 1 - k]]


def judge(low, high, tolerance):
    if low > 1.0 + tolerance:
        return "slower"
    return "faster" if high < 1.0 / (1.0 + tolerance) else ""


if __name__ == "__main__":
    main()
