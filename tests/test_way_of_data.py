"""Few files are between what a user calls and the first matrices that come of it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from threadpoolctl import threadpool_limits

import skvbgp
from tests.sgpr.cases import make_data
from tests.test_common import INSTANCES

pytestmark = pytest.mark.usefixtures("quick_searches", "one_thread")

PACKAGE = Path(skvbgp.__file__).resolve().parent
#: Most files of base and of a family, and those which all families have in common besides.
MOST_FILES, COMMON = 5, ("_core", "_optim", "kernels")
#: Where covariances are computed, and what else predictions are made of.
MATRICES = (
    "kernels/",
    "decoupled/_inputwise",
    "spectrum/_features",
    "_core/expectations",
    "_core/linalg",
)


class FirstFactorError(BaseException):
    """Ends a fit at its first Cholesky factor."""


@pytest.fixture
def one_thread():
    """What is called has its caller on the stack."""
    with threadpool_limits(1):
        yield


def find_file(frame):
    """The file of the package that a frame is of, or an empty name."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def list_files(frame):
    """The files of base and of a family whose functions are being called, without repetitions."""
    files = {}
    while frame is not None:
        files[find_file(frame)] = None
        frame = frame.f_back
    return [file for file in files if "/" in file and not file.startswith(COMMON)]


def make_targets(estimator):
    X, y = make_data(40)
    return X, y > np.median(y) if is_classifier(estimator) else y


@pytest.mark.parametrize("instance", INSTANCES, ids=repr)
@pytest.mark.every_nth("instance", 3)
def test_from_fit_to_the_first_factor(monkeypatch, instance):
    found = []

    def end(*_):
        found.append(list_files(sys._getframe()))
        raise FirstFactorError

    model = clone(instance)
    monkeypatch.setattr(np.linalg, "cholesky", end)
    with pytest.raises(FirstFactorError):
        model.fit(*make_targets(model))
    assert 2 <= len(found[0]) <= MOST_FILES


@pytest.mark.parametrize("instance", INSTANCES, ids=repr)
@pytest.mark.every_nth("instance", 4)
def test_from_predict_to_the_first_matrix(instance):
    X, y = make_targets(instance)
    model, found = clone(instance).set_params(max_iter=1).fit(X, y), []

    def look(frame, event, _):
        if event == "call" and not found and find_file(frame).startswith(MATRICES):
            found.append(list_files(frame))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        model.predict(X + 0.1)
    finally:
        sys.setprofile(before)
    assert 2 <= len(found[0]) <= MOST_FILES
