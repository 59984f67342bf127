"""The documentation is complete: what can be told without building it."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest
from sklearn.utils import estimator_html_repr

import skvbgp
from tests.test_common import CLASSES
from tests.test_imports import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "doc"
ROOMS = ["ep/hybrid", "gp/classes", "gp/search"]  # folders of families
PACKAGES = [
    "skvbgp.callbacks",
    "skvbgp.decoupled",
    "skvbgp.ep",
    "skvbgp.gp",
    "skvbgp.inspection",
    "skvbgp.kernel_selection",
    "skvbgp.kernels",
    "skvbgp.metrics",
    "skvbgp.sgpr",
    "skvbgp.spectrum",
]


def reference():
    """Full names of what doc/api/index.rst lists: those of the pages it generates."""
    module, names = "", []
    for line in (DOC / "api" / "index.rst").read_text(encoding="utf-8").splitlines():
        if directive := re.match(r"\.\. (?:current)?module:: (\S+)", line):
            module = directive.group(1)
        elif entry := re.match(r"   (\w+)$", line):
            names.append(f"{module}.{entry.group(1)}")
    return names


@pytest.mark.parametrize("package", ["_core", "_optim", "base", *sorted(FAMILIES), *ROOMS])
def test_architecture_names_every_module(package):
    page = (DOC / "architecture.rst").read_text("utf-8")
    named = set(re.findall(r"``(?:[\w/]*/)?(\w+)(?:\.py)?``", page))
    modules = {path.stem for path in (Path(skvbgp.__file__).parent / package).glob("*.py")}
    assert modules - {"__init__"} <= named


def test_notation_names_code_that_there_is():
    page = (DOC / "notation.rst").read_text("utf-8")
    named = re.findall(r"[A-Za-z_]\w+", " ".join(re.findall(r"``([^`]+)``", page)))
    installed = Path(skvbgp.__file__).parent
    code = " ".join(path.read_text("utf-8") for path in installed.rglob("*.py"))
    assert len(named) > 100
    assert set(named) <= set(re.findall(r"\w+", code))


def test_every_package_is_known():
    """All but `base`, whose names are for the families."""
    names = {module.name for module in pkgutil.iter_modules(skvbgp.__path__)}
    found = {f"skvbgp.{name}" for name in names if not name.startswith("_")}
    assert found - {"skvbgp.base"} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_reference_lists_every_public_name(package):
    public = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    assert public <= set(reference())


def test_reference_lists_only_public_names_and_each_once():
    names = reference()
    assert len(names) == len(set(names))
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert attribute in importlib.import_module(module).__all__
    own = set(skvbgp.__all__) - {"__version__"}
    assert own <= {name.rpartition(".")[2] for name in names}


@pytest.mark.parametrize("cls", CLASSES)
def test_html_representation_links_to_a_page_of_the_reference(cls):
    link = re.search(r'href="(https://skvbgp[^"]+)"', estimator_html_repr(cls())).group(1)
    assert re.search(r"/api/generated/(.+)\.html$", link).group(1) in reference()


def test_decision_chart_leads_to_pages_and_has_every_estimator():
    chart = (DOC / "which_estimator.svg").read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)\.html"', chart)
    assert links
    for link in links:
        assert (DOC / f"{link}.rst").is_file()
    page = (DOC / "which_estimator.rst").read_text(encoding="utf-8")
    for cls in CLASSES:
        assert cls.__name__ in page
    in_chart = set(re.findall(r'class="name"[^>]*>(\w+)<', chart))
    assert in_chart <= {cls.__name__ for cls in CLASSES}


def load(path):
    """A module that is no part of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_of_capabilities_is_about_every_estimator_and_says_what_is_so():
    lines = load(DOC / "_capabilities.py").make_tables()
    heads = [re.search(r":class:`~(.+)`", line).group(1) for line in lines if ":class:" in line]
    assert len(set(heads)) == len(heads)
    assert {name.rpartition(".")[2] for name in heads} == {cls.__name__ for cls in CLASSES}
    assert set(heads) <= set(reference())
    assert find_capable(lines, "weights of rows") == set(heads)
    regressors = {name for name in heads if name.endswith("Regressor")}
    assert find_capable(lines, "known noise") == regressors
    hybrid, decoupled = "skvbgp.ep.HybridGPLVM", "skvbgp.decoupled.DecoupledGPClassifier"
    assert find_capable(lines, "categories in X") == set(heads) - {hybrid}
    assert find_capable(lines, "sparse X") == set(heads) - {hybrid}
    assert find_capable(lines, "streams that forget") == set(heads)
    assert find_capable(lines, "NaN in X") == set(heads) - {decoupled}


def find_capable(lines, feature):
    """The estimators of which the tables say "yes" to a feature."""
    capable = set()
    for i, line in enumerate(lines):
        if feature in line:
            table = max(j for j in range(i) if "list-table" in lines[j])
            names = re.findall(r":class:`~(.+)`", "\n".join(lines[table:i]))
            said = lines[i + 1 : i + 1 + len(names)]
            capable |= {n for n, s in zip(names, said, strict=True) if s.endswith("yes")}
    return capable


NO_ESTIMATOR = {
    "index",
    "capabilities",
    "evaluation",
    "migration",
    "outputs",
    "persistence",
    "scaling",
    "skpro",
    "sktime",
}
USER_GUIDE = [p for p in sorted((DOC / "user_guide").glob("*.rst")) if p.stem not in NO_ESTIMATOR]


@pytest.mark.parametrize("path", USER_GUIDE, ids=lambda path: path.stem)
def test_user_guide_says_when_to_use_what_it_costs_and_what_is_uncertain(path):
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^(.+)\n(?:=+|-+)$", text, re.M)
    assert headings[1] == "When to use it"
    assert "Cost" in headings
    assert any(heading.startswith("What is uncertain") for heading in headings)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem
)
def test_examples_download_nothing(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bfetch_|urllib|requests|https?://(?!mapie)", text)


def test_page_of_versions_has_the_newest_first_and_leads_to_each(tmp_path):
    for name in ("0.9.1", "0.10.0", "0.11.0.dev0", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name)
    list_versions = load(ROOT / ".ci" / "documentation.py").list_versions
    for _ in range(2):
        list_versions(tmp_path)
        page = (tmp_path / "index.html").read_text("utf-8")
        links = re.findall(r'href="(.+?)"', page)
        versions = [(tmp_path / link).read_text() for link in links]
        assert versions == ["0.11.0.dev0", "0.10.0", "0.9.1"]
        assert (tmp_path / "stable" / "index.html").read_text() == "0.10.0"
    assert "0.10.0</a>, the newest release" in page
