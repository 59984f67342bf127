"""What is written twice agrees: versions, dependencies, and the commands of the README."""

import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

import skvbgp
from tests.test_imports import RUNTIME

ROOT = Path(__file__).resolve().parents[1]


def test_versions_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    release = skvbgp.__version__.removesuffix(".dev0")  # the next one, after a release
    assert re.search(r"^## \[(.+?)\]", changelog, re.M).group(1) == release
    assert re.search(r"^version: (.+)$", citation, re.M).group(1) == skvbgp.__version__


def test_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {"test", "doc", "plot", "progress", "dask", "lint", "dev"} <= extras.keys()
    required = {re.match(r"[\w-]+", line).group() for line in project["dependencies"]}
    assert required == RUNTIME - {"sklearn", "skvbgp"} | {"scikit-learn"}


def test_ci_executes_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    written = [
        re.search(rf"<!-- ci: {name} -->\n```bash\n(.+)\n```\n", readme).group(1)
        for name in ("tests", "quickstart")
    ]
    run = subprocess.run(
        ["bash", ".ci/run", "--print-commands"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert run.stdout.splitlines() == written


@pytest.mark.thorough
def test_example_of_the_readme_runs():
    readme = (ROOT / "README.md").read_text("utf-8")
    names = {}
    exec(re.search(r"```python\n(.+?)```", readme, re.S).group(1), names)
    new, y = ~names["known"], names["y"]
    assert 0.9 < np.mean(((names["low"] < y) & (y < names["high"]))[new]) < 0.99
    assert np.std(y - names["mean"]) < 0.5 * np.std(y)
