"""What scripts of `benchmarks` compute, and that `compare_commits.py` finds a slow commit."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from importlib import import_module
from mmap import mmap
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator

import skvbgp

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

#: A package whose fit is as slow as it says, in CPU seconds.
PACKAGE = """
from time import process_time

class VBDTCRegressor:
    def __init__(self, random_state):
        pass

    def work(self, seconds):
        end = process_time() + seconds
        while process_time() < end:
            pass

    def fit(self, X, y):
        self.work({fit})

    def predict(self, X):
        self.work(0.02)
"""


@pytest.fixture
def import_script(monkeypatch):
    """A function that imports a script for the time of a test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield import_module
    for name in set(sys.modules) - before:  # their names are short, such as run
        if Path(getattr(sys.modules[name], "__file__", None) or ".").is_relative_to(BENCHMARKS):
            del sys.modules[name]


@pytest.fixture
def compare_commits(import_script):
    return import_script("compare_commits")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Commits `first`, `second`, whose fit takes twice as long, and `broken`."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.chdir(tmp_path)

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "skvbgp").mkdir()
    texts = {
        "first": PACKAGE.format(fit=0.02),
        "second": PACKAGE.format(fit=0.04),
        "broken": "raise ValueError('no package')",
    }
    for name, text in texts.items():
        (tmp_path / "skvbgp" / "__init__.py").write_text(text)
        git("add", ".")
        git("commit", "-m", name)
        git("tag", name)
    return tmp_path


def test_a_trend_cancels_out_of_a_round(compare_commits):
    """Each process takes a tenth longer than the one before it, and head a quarter longer."""
    is_head = np.array([commit == "head" for commit in compare_commits.ORDER])
    seconds = 1.1 ** np.arange(12.0).reshape(3, 4) * np.where(is_head, 1.25, 1.0)
    assert_allclose(compare_commits.ratios_of_rounds(seconds), 1.25)


def test_interval_holds_the_median_as_often_as_it_says(compare_commits, rng):
    for n in (5, 8, 15):
        values = rng.standard_cauchy((4_000, n))
        low, high = np.transpose([compare_commits.interval_of_median(row) for row in values])
        held = np.mean((low < 0.0) & (high > 0.0))
        assert 0.885 < held < 0.99
    values = np.arange(20.0)  # 1 - 2 P(no more than 5 of 20) = .959, of 6 it would be .885
    assert_allclose(compare_commits.interval_of_median(values), [5.0, 14.0])


def test_all_of_the_interval_is_beyond_the_tolerance(compare_commits):
    judge = compare_commits.judge
    assert judge(1.04, 1.5, 0.03) == "slower"
    assert judge(0.7, 0.96, 0.03) == "faster"
    assert judge(1.02, 1.5, 0.03) == judge(0.7, 0.98, 0.03) == judge(0.9, 1.1, 0.03) == ""


def test_cases_are_of_every_family(compare_commits):
    homes = {name: home for home, names in skvbgp._HOMES.items() for name in names}
    families = {homes[case.estimator] for case in compare_commits.CASES.values()}
    assert families == {home for home, names in skvbgp._HOMES.items() if names}
    for case in compare_commits.CASES.values():
        X, y, X_new = case.make_data()
        assert X.shape == (case.n_rows, X_new.shape[1]) and len(X_new) == case.n_new
        assert y.shape == (case.n_rows,)


@pytest.mark.thorough
def test_a_case_runs_with_the_package_of_a_checkout(compare_commits):
    seconds = compare_commits.run("sgpr, few rows", Path(skvbgp.__file__).parents[1])
    assert set(seconds) == {"fit", "predict"}
    assert np.all(np.array([*seconds.values()]) > 0.0)


def read_seconds(name, tree):
    """What the package of a checkout would take."""
    text = (tree / "skvbgp" / "__init__.py").read_text()
    seconds = re.findall(r"self.work\((.+)\)", text)
    return {call: [float(s)] * 2 for call, s in zip(["fit", "predict"], seconds, strict=True)}


@pytest.mark.parametrize("is_timed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_slow_commit_is_found(compare_commits, repository, capsys, monkeypatch, is_timed):
    if not is_timed:
        monkeypatch.setattr(compare_commits, "run", read_seconds)
    arguments = ["first", "second", "--case", "sgpr, few rows", "--json", "--fail"]
    with pytest.raises(SystemExit, match=r"second is slower.*few rows \(fit\)"):
        compare_commits.main(arguments)
    fit, predict = map(json.loads, capsys.readouterr().out.splitlines())
    assert fit["call"] == "fit" and fit["verdict"] == "slower"
    assert 1.7 < fit["ratio"] < 2.3
    assert predict["call"] == "predict" and 0.8 < predict["ratio"] < 1.25
    worktrees = subprocess.check_output(["git", "worktree", "list"], text=True)
    assert len(worktrees.splitlines()) == 1


@pytest.mark.thorough
def test_a_commit_that_fails_is_not_compared(compare_commits, repository, capsys):
    options = ["--case", "sgpr, few rows", "--json", "--fail"]
    compare_commits.main(["broken", "first", *options])
    output, errors = capsys.readouterr()
    assert json.loads(output)["verdict"] == "base fails" and json.loads(output)["ratio"] is None
    assert "no package" in errors
    with pytest.raises(SystemExit, match="fails"):
        compare_commits.main(["first", "broken", *options])


def test_too_few_rounds_are_refused(compare_commits, capsys):
    with pytest.raises(SystemExit):
        compare_commits.main(["first", "second", "--repeats", "4"])
    assert "at least 5" in capsys.readouterr().err


class Noting(BaseEstimator):
    """Notes the calls that it gets; it predicts 1 with std 1 after a fit, and 2 after a stream."""

    def __init__(self, calls):
        self.calls = calls

    def __sklearn_clone__(self):
        return Noting(self.calls)

    def fit(self, X, y):
        self.calls.append(("fit", X, y))
        self.level_ = 1.0
        return self

    def partial_fit(self, X, y):
        self.calls.append(("partial_fit", X, y))
        self.level_ = 2.0
        return self

    def predict(self, X, return_std):
        return np.full(len(X), self.level_), np.ones(len(X))


def test_a_stream_has_each_row_once_in_random_order(import_script, rng):
    X, calls = rng.uniform(1.0, 3.0, (23, 2)), []
    y = X[:, 0]
    row = import_script("stream_accuracy").measure(
        Noting(calls), X, y, X[:4], np.zeros(4), n_rows=10, seed=0
    )
    (name, X_fit, y_fit), *stream = calls
    assert name == "fit" and y_fit is y
    assert_allclose(X_fit, (X - X.mean(0)) / X.std(0))
    names, inputs, targets = zip(*stream, strict=True)
    assert names == ("partial_fit",) * 3 and [len(part) for part in inputs] == [10, 10, 3]
    X_stream, y_stream = np.concatenate(inputs), np.concatenate(targets)
    order = np.argsort(y_stream)
    assert not np.array_equal(y_stream, y)
    assert_allclose(y_stream[order], np.sort(y))
    assert_allclose(X_stream[order], X_fit[np.argsort(y)])
    assert row["RMSE of fit"] == 1.0 and row["RMSE of stream"] == row["ratio"] == 2.0
    assert_allclose(row["difference"], 1.5)  # (2^2 - 1^2) / 2
    assert_allclose(row["NLPD of stream"] - row["NLPD of fit"], 1.5)


class Heavy(BaseEstimator):
    """Takes 50 MB for a while in its fit, and predicts 0 with std 1."""

    def __init__(self, random_state):
        self.random_state = random_state

    def fit(self, X, y):
        self.shape_ = X.shape
        taken = mmap(-1, 50_000_000)  # not what is free of memory that the process holds
        np.frombuffer(taken, dtype=np.int8)[:] = 1
        sleep(0.5)  # looked at every hundredth of a second, if the machine has time
        return self

    def predict(self, X, return_std):
        return np.zeros(len(X)), np.ones(len(X))


def test_tables_name_scripts_and_options_that_exist(import_script):
    shared, tables = (BENCHMARKS / "common.py").read_text("utf-8"), import_script("run").TABLES
    assert len({table.title for table in tables.values()}) == len(tables)
    for table in tables.values():
        script = (BENCHMARKS / table.script).read_text("utf-8")
        options = re.findall(r"--[a-z-]+", f"{table.options} {table.short or ''}")
        options += [*table.sets, *table.short_sets, *["--data"] * table.reads_data]
        options += ["--peers"] * table.takes_peers
        for option in options:
            assert f'"{option}"' in script + shared
        assert table.reads_data or "data=True" not in script  # which asks for it
        assert table.short is not None or not table.short_sets


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_memory_of_a_fit_is_its_peak_above_that_before(import_script, monkeypatch):
    monkeypatch.setattr(skvbgp, "VBGPRegressor", Heavy)
    args = Namespace(rows=40, features=3, test_rows=7, estimator="VBGPRegressor")
    row = import_script("many_rows").measure(args)
    assert (row["rows"], row["inputs"], row["predictions"]) == (40, 3, 7)
    assert_allclose(row["data MB"], 40 * 4 * 8 / 1e6)
    assert 45.0 < row["more MB"] < 80.0
    assert row["fit s"] > 0.05


def test_reliability_of_classes(import_script, rng):
    """Of three classes, two of which are told from each other too surely."""
    script = import_script("classification")
    right = rng.choice([0.31, 0.77], (2, 4_000))
    p = np.stack([0.2 * np.ones_like(right), 0.8 * right, 0.8 * (1.0 - right)], axis=2)
    y = (rng.random((2, 4_000, 1)) > p.cumsum(axis=2)).sum(axis=2)
    p[:, :, 1:] += np.where(right > 0.5, 0.1, -0.1)[:, :, None] * [1.0, -1.0]
    results = [script.Result(one, [1.0, 1.0], 10) for one in p]
    first, *others = script.score_classes(results, [(None, None, None, one) for one in y])
    assert first["class"] == 0 and [row["class"] for row in others] == [1, 2]
    assert_allclose(first["mean probability"], 0.2)
    assert_allclose(first["share"], np.mean(y == 0))
    assert_allclose(first["ECE"], abs(first["share"] - 0.2))
    # On average over draws: the mean of a normal variable's absolute value.
    assert_allclose(first["by chance"], np.sqrt(2.0 / np.pi * 0.16 / 8_000), rtol=0.25)
    for row in others:
        assert_allclose(row["ECE"], 0.1, atol=0.02)
        assert row["by chance"] < 0.02
