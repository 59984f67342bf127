"""The import rule, as doc/architecture.rst states it; small modules, and a light import."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import skvbgp

ROOT = Path(__file__).resolve().parents[1]
#: Where skvbgp was imported from: the checkout, or an installation.
PACKAGE_ROOT = Path(skvbgp.__file__).resolve().parents[1]
MAX_LINES = 500

FAMILIES = {"decoupled", "ep", "gp", "kernel_selection", "sgpr", "spectrum"}
# First component below skvbgp -> the components it may import besides itself.
ALLOWED = {
    "_core": set(),
    "_optim": {"_core"},
    "kernels": {"_core"},
    "_callbacks": set(),
    "callbacks": {"_core"},
    "base": {"_callbacks", "_core", "_optim", "callbacks", "kernels"},
    "metrics": {"_core"},
    "inspection": {"_core", "metrics"},
    **dict.fromkeys(FAMILIES, {"_callbacks", "_core", "_optim", "base", "kernels", "metrics"}),
    "": FAMILIES,  # skvbgp/__init__.py
}
# What the layers without estimators may take from scikit-learn; elsewhere all of it is open.
ALLOWED_SKLEARN = {
    "_core": ("sklearn.utils", "sklearn.get_config"),
    "_optim": ("sklearn.utils", "sklearn.exceptions"),
    "kernels": ("sklearn.utils", "sklearn.gaussian_process.kernels"),
}
RUNTIME = {"joblib", "numpy", "scipy", "sklearn", "skvbgp", "threadpoolctl"}


def module_files(root):
    """Pairs of dotted module name and file for every module of the package."""
    for path in sorted((root / "skvbgp").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@functools.cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported_names(name, path, *, nested=True):
    """Dotted names imported by a module: `from a import b` counts as a.b.

    Without `nested`, only those that run when the module itself is imported.
    """
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found, pending = [], [parse(path)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*above, *filter(None, [node.module])])
            found += [f"{prefix}.{alias.name}" for alias in node.names]
        elif nested or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = ast.iter_child_nodes(node)
            pending.extend(part for part in inside if not isinstance(part, ast.expr))
    return found


def component(name):
    """First component below skvbgp, "" for the package itself or a name it defines."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else ""


def sklearn_allowed(name, target):
    """Whether a module may import this name of scikit-learn."""
    layer = component(name)
    if layer not in ALLOWED_SKLEARN:
        return True
    if within(target, "sklearn.utils.parallel"):
        return name == "skvbgp._core.parallel"
    return any(within(target, allowed) for allowed in ALLOWED_SKLEARN[layer])


def within(name, package):
    return name == package or name.startswith(package + ".")


def violations(root):
    """Every import that breaks a rule, as a sentence."""
    found = []
    for name, path in module_files(root):
        layer = component(name)
        if not layer and name != "skvbgp":
            found.append(f"{name} belongs to no layer: add it to ALLOWED")
            continue
        for target in imported_names(name, path):
            package = target.split(".")[0]
            if package == "skvbgp" and component(target) not in ALLOWED[layer] | {layer}:
                found.append(f"{name} imports {target}")
            if package == "sklearn" and not sklearn_allowed(name, target):
                found.append(f"{name} imports {target}")
        for target in imported_names(name, path, nested=False):
            if target.split(".")[0] not in RUNTIME | sys.stdlib_module_names:
                found.append(f"{name} imports {target} at the top: import it where it is used")
    return found


def test_imports_point_downwards():
    assert violations(PACKAGE_ROOT) == []


def test_private_parts_of_sklearn_enter_through_one_module():
    users = {
        name
        for name, path in module_files(PACKAGE_ROOT)
        for target in imported_names(name, path)
        if target.startswith("sklearn.") and "._" in target
    }
    assert len(users) <= 1, users


@pytest.mark.parametrize(
    ("room", "users"),
    [("skvbgp.ep.hybrid", {"skvbgp.ep"}), ("skvbgp.gp.classes", {"skvbgp.gp._classifier"})],
)
@pytest.mark.every_nth("room", 2)
def test_rooms_are_entered_by_one_door(room, users):
    found = {
        name
        for name, path in module_files(PACKAGE_ROOT)
        for target in imported_names(name, path)
        if within(target, room) and not within(name, room)
    }
    assert found == users


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_core/linalg.py", "from ..kernels import RBF"),
        ("_core/linalg.py", "from .. import kernels"),
        ("_core/linalg.py", "def f():\n    import skvbgp.base"),
        ("_core/linalg.py", "from sklearn.cluster import KMeans"),
        ("_core/linalg.py", "from sklearn.utils.parallel import Parallel"),
        ("_optim/adam.py", "from skvbgp.kernels.rbf import RBF"),
        ("kernels/__init__.py", "from .._optim import adam"),
        ("base/_estimator.py", "from ..sgpr import VBDTCRegressor"),
        ("base/_estimator.py", "from .. import VBDTCRegressor"),
        ("sgpr/dtc.py", "from ..ep.sites import tilt"),
        ("inspection.py", "import matplotlib.pyplot as plt"),
        ("new_layer.py", ""),
    ],
)
def test_a_wrong_import_is_found(tmp_path, module, source):
    path = tmp_path / "skvbgp" / module
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert len(violations(tmp_path)) == 1


def test_modules_stay_small():
    files = module_files(PACKAGE_ROOT)
    lengths = {name: len(path.read_text("utf-8").splitlines()) for name, path in files}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


@pytest.mark.thorough
def test_import_is_light():
    """All estimators together load few modules beside scikit-learn's, and no other package."""

    def packages(names):
        return {name.split(".")[0] for name in names}

    statements = ["import skvbgp", "import sklearn.gaussian_process", "from skvbgp import *"]
    code = "import sys\n" + "".join(f"{one}\nprint(*sys.modules)\n" for one in statements)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    alone, reference, ours = (set(line.split()) for line in run.stdout.splitlines())
    assert "sklearn" not in alone
    assert packages(ours) - packages(reference) <= {"skvbgp"} | sys.stdlib_module_names
    assert len(ours) <= 1.2 * len(reference)


def test_packages_are_loaded_when_they_are_used():
    assert set(dir(skvbgp)) >= {"kernels", "metrics", *FAMILIES, *skvbgp.__all__}
    assert skvbgp.kernels.RBF(1.0).theta == 0.0
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        _ = skvbgp.unknown


def test_public_names_exist():
    assert all(hasattr(skvbgp, name) for name in skvbgp.__all__)
