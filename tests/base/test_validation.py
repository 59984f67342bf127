"""Errors about X, y and parameters that say what to do, of all estimators."""

import datetime as dt
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

from skvbgp import (
    DecoupledGPRegressor,
    EPDTCClassifier,
    HybridGPLVM,
    VBDTCRegressor,
    VBGPRegressor,
    VBKSRegressor,
)
from skvbgp.base import Interval, choose_columns
from skvbgp.kernel_selection import kernel_grammar, series_kernels
from tests.test_common import CLASSES, quickly_fitted

MONTHS = np.datetime64("2020-01") + np.arange(20).astype("timedelta64[M]")
DATES = {
    "dates": MONTHS[:, None],
    "durations": (MONTHS - MONTHS[0])[:, None],
    "list": [[date] for date in MONTHS],
    "objects, beside numbers": np.array([[1.0, date] for date in MONTHS], dtype=object),
    "frame": pd.DataFrame({"from": MONTHS, "to": MONTHS + np.timedelta64(1, "M")}),
}


def make_target(cls):
    y = np.arange(20.0)
    return y > 9.0 if is_classifier(cls()) else y


@pytest.mark.parametrize("X", DATES.values(), ids=DATES)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_dates_are_refused(cls, X):
    with pytest.raises(ValueError, match="X has dates or durations.*Make numbers of"):
        cls().fit(X, make_target(cls))


@pytest.mark.parametrize("y", DATES.values(), ids=DATES)
@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_regressor(cls())])
def test_dates_are_no_targets_of_regressors(cls, y):
    with pytest.raises(ValueError, match="y has dates or durations.*Make numbers of"):
        cls().fit(np.arange(20.0)[:, None], y)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 3)
def test_dates_are_refused_by_a_model_of_numbers(cls):
    model = quickly_fitted(cls)
    dates = np.broadcast_to(DATES["dates"], (20, model.n_features_in_))
    with pytest.raises(ValueError, match="X has dates"):
        model.predict(dates)
    if hasattr(model, "log_predictive_density"):
        with pytest.raises(ValueError, match="X has dates"):
            model.log_predictive_density(dates, np.ones(20))
    if hasattr(model, "partial_fit"):
        with pytest.raises(ValueError, match="X has dates"):
            model.partial_fit(dates, make_target(cls))


def test_dates_are_refused_by_kernels_of_a_series_and_by_functions_drawn():
    y = np.arange(20.0)
    with pytest.raises(ValueError, match="X has dates"):
        series_kernels(DATES["dates"], y)
    for options, targets in ({}, y), ({"output_covariance": "learned"}, np.column_stack([y, y])):
        model = VBGPRegressor(learn_hyperparameters=False, **options).fit(y[:, None], targets)
        draws = model.sample_function()
        for call in (draws, draws.gradient):
            with pytest.raises(ValueError, match="X has dates"):
                call(DATES["dates"])


@pytest.mark.parametrize("other", [np.arange(20.0), np.arange(20), pd.Categorical(["a"] * 20)])
@pytest.mark.parametrize("dates", [MONTHS, MONTHS - MONTHS[0].astype("datetime64[D]")])
def test_dates_beside_something_else_are_no_numbers(dates, other):
    frame = pd.DataFrame({"date": dates, "other": other})
    with pytest.raises(ValueError, match="X has dates.*Make numbers of"):
        VBDTCRegressor().fit(frame, np.arange(20.0))


DATES_BESIDE = [
    pytest.param(dates, beside, id=f"{name}, {'beside numbers' if beside else 'alone'}")
    for name, dates in {
        "dates": [dt.date(2020, 1, i + 1) for i in range(20)],
        "moments": [dt.datetime(2020, 1, i + 1) for i in range(20)],
        "durations": [dt.timedelta(i) for i in range(20)],
        "times": [dt.time(i) for i in range(20)],
    }.items()
    for beside in (False, True)
]


@pytest.mark.parametrize("dates, beside", DATES_BESIDE)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 4)
@pytest.mark.every_nth("dates", 2)
def test_dates_of_polars_and_arrow_are_refused(cls, dates, beside):
    """They would become numbers, of days or of whatever the column's unit is."""
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"date": dates} | ({"x": np.arange(20.0)} if beside else {})
    for make in (pl.DataFrame, pa.table):
        with pytest.raises(ValueError, match="X has dates or durations"):
            cls().fit(make(columns), make_target(cls))


@pytest.mark.parametrize("dates, beside", DATES_BESIDE)
def test_dates_of_polars_and_arrow_are_no_targets(dates, beside):
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    X = np.arange(20.0)[:, None]
    columns = {"date": dates} | ({"x": np.arange(20.0)} if beside else {})
    targets = [make(columns) for make in (pl.DataFrame, pa.table)]
    for y in targets if beside else [*targets, pl.Series(dates), pa.array(dates)]:
        with pytest.raises(ValueError, match="y has dates or durations"):
            VBDTCRegressor().fit(X, y)


def test_dates_may_be_categories():
    pd_frame = pd.DataFrame({"x": np.arange(20.0), "date": list(MONTHS[:5]) * 4})
    model = VBGPRegressor(categorical_features=["date"], learn_hyperparameters=False)
    expected = model.fit(pd_frame, np.arange(20.0)).predict(pd_frame)
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": np.arange(20.0), "date": pd_frame["date"].dt.date.tolist()})
    assert_array_equal(model.fit(frame, np.arange(20.0)).predict(frame), expected)


def test_periods_are_no_numbers():
    periods = pd.period_range("2020", periods=20, freq="M")
    for X in (pd.DataFrame({"from": periods}), pd.DataFrame({"from": periods, "x": 1.0})):
        with pytest.raises(ValueError, match="X has dates"):
            VBDTCRegressor().fit(X, np.arange(20.0))
    with pytest.raises(TypeError) as error:
        VBDTCRegressor(categorical_features=["x"]).fit(X, np.arange(20.0))
    assert "Make numbers of dates" in error.value.__notes__[0]


@pytest.mark.parametrize("moment", [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.timedelta(1)])
def test_lists_of_python_dates_are_no_numbers(moment):
    with pytest.raises(TypeError) as error:
        VBDTCRegressor().fit([[moment]] * 20, np.arange(20.0))
    (note,) = error.value.__notes__
    assert "Make numbers of dates" in note


TAKERS = [cls for cls in CLASSES if get_tags(cls()).input_tags.allow_nan]


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls not in TAKERS])
def test_an_error_about_gaps_names_those_that_take_them(cls):
    model = quickly_fitted(cls)
    X = np.ones((20, model.n_features_in_))
    X[3] = np.nan
    y = make_target(cls)
    for call, arguments in [
        (cls().fit, (X, y)),
        (model.partial_fit, (X, y)),
        (model.predict, (X,)),
    ]:
        with pytest.raises(ValueError, match="Input X contains NaN") as error:
            call(*arguments)
        assert all(taker.__name__ in error.value.__notes__[0] for taker in TAKERS)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if not is_classifier(cls())])
def test_a_target_that_is_not_known_is_to_be_left_out(cls):
    y = np.where(np.arange(20) == 3, np.nan, np.arange(20.0))
    with pytest.raises(ValueError, match="y contains NaN") as error:
        cls().fit(np.arange(20.0)[:, None], y)
    assert "Leave out" in error.value.__notes__[0]


@pytest.mark.parametrize("cls", [DecoupledGPRegressor, EPDTCClassifier, HybridGPLVM])
def test_strings_have_a_parameter(cls):
    X = np.array([["a", 1.0], ["b", 2.0]] * 10, dtype=object)
    with pytest.raises(ValueError, match="string to float") as error:
        cls().fit(X, make_target(cls))
    assert "`categorical_features` says" in error.value.__notes__[0]
    assert "HybridGPLVM takes a column of zeros and ones" in error.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # of a row
def test_categories_have_a_word_for_a_frame_and_another_for_a_row_of_it():
    frame = pd.DataFrame({"month": ["May", "June"] * 10, "time": np.arange(20.0)})
    with pytest.raises(ValueError, match="string to float") as error:
        VBGPRegressor().fit(frame, np.arange(20.0))
    assert '"from_dtype"' in error.value.__notes__[0]
    frame["month"] = frame["month"].astype("category")
    model = VBGPRegressor(categorical_features="from_dtype", learn_hyperparameters=False)
    model.fit(frame, np.arange(20.0))
    with pytest.raises(ValueError, match="does not contain any features") as error:
        model.predict(frame.iloc[0])
    assert "df.iloc[[0]]" in error.value.__notes__[0]
    assert model.predict(frame.iloc[[0]]).shape == (1,)


@pytest.mark.filterwarnings("ignore:Determining the data types of a LazyFrame")
def test_errors_about_what_is_no_number_say_what_to_do():
    pl = pytest.importorskip("polars")
    lazy = pl.DataFrame({"x": np.arange(20.0)}).lazy()
    objects = np.array([[1.0, pd.NA]] * 20, dtype=object)
    for X, advice in [(lazy, r"X.collect\(\)"), ([[1.0, 2.0], [3.0]] * 10, "equally many numbers")]:
        with pytest.raises(ValueError, match="with a sequence") as error:
            VBGPRegressor().fit(X, np.arange(20.0))
        assert re.search(advice, error.value.__notes__[0])
    with pytest.raises(TypeError, match="NAType") as error:
        VBGPRegressor().fit(objects, np.arange(20.0))
    assert "is NaN" in error.value.__notes__[0]


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_classifier(cls())])
def test_labels_that_are_not_known_are_no_labels(cls):
    X, labels = np.arange(20.0)[:, None], ["a", "b", None, "b"] * 5
    objects = np.array(labels, dtype=object)
    with pytest.raises(TypeError, match="'<' not supported") as error:
        cls().fit(X, objects)
    assert "Labels are" in error.value.__notes__[0]
    nan, mixed = (np.where(objects == None, other, objects) for other in (np.nan, 1))  # noqa: E711
    first = np.array([None, *objects[:-1]])
    for y in (nan, mixed, first, first[::-1], pd.array(labels, dtype="string")):
        with pytest.raises((TypeError, ValueError)) as error:
            cls().fit(X, y)
        assert any("Labels are" in note for note in error.value.__notes__)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_regressor(cls())])
def test_none_is_no_number(cls):
    y = np.array([None, *range(19)], dtype=object)
    for given in (y, y[:, None], list(y)):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            cls().fit(np.arange(20.0)[:, None], given)


@pytest.mark.parametrize("categories", [None, [0]])
@pytest.mark.parametrize(
    ("y", "message"), [(None, "requires y"), (np.zeros((20, 1, 1)), "dim 3"), (1.0, "1d array")]
)
def test_targets_without_a_row_each_are_refused_also_beside_categories(y, message, categories):
    model = DecoupledGPRegressor(categorical_features=categories)
    with pytest.raises(ValueError, match=message):
        model.fit(np.arange(20.0)[:, None], y)


@pytest.mark.parametrize("cls", CLASSES)
def test_true_is_no_number(cls):
    constraints = cls._parameter_constraints.items()
    numbers = [name for name, kinds in constraints if any(isinstance(k, Interval) for k in kinds)]
    assert len(numbers) > 3
    for name in numbers:
        with pytest.raises(ValueError, match=f"The '{name}' parameter .* Got True"):
            cls(**{name: True}).fit(np.arange(20.0)[:, None], make_target(cls))


@pytest.mark.parametrize("bad", [-1, 1.5, True, "many", None])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.every_nth("bad", 3)
def test_draws_are_counted_by_whole_numbers(outputs, bad):
    X = np.arange(6.0)[:, None]
    y = np.sin(X) if outputs == 1 else np.hstack([np.sin(X), np.cos(X)])
    options = {} if outputs == 1 else {"output_covariance": "learned"}
    few = VBKSRegressor(kernel_grammar(1, ["SE"]), max_iter=1)
    for model in (VBGPRegressor(learn_hyperparameters=False, **options), few):
        model.fit(X, y)
        with pytest.raises(ValueError, match="n_samples must be a whole number, 0 or more"):
            model.sample_y(X, bad)
        with pytest.raises(ValueError, match="n must be a whole number, 1 or more"):
            model.sample_function(bad)
    with pytest.raises(ValueError, match="depth must be a whole number, 1 or more"):
        kernel_grammar(bad)
    with pytest.raises(ValueError, match="top_k must be a whole number, 1 or more"):
        few.prune(bad)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if is_classifier(cls())])
def test_classes_are_a_list(cls):
    for bad in ("ab", [["a", "b"]]):
        with pytest.raises(ValueError, match="classes must be a list of labels"):
            cls().partial_fit(np.arange(4.0)[:, None], list("abab"), classes=bad)
    for bad in ([0, 1, np.nan], [0, 1, None], [0, "b"], ["a", pd.NA]):
        with pytest.raises(ValueError, match="classes must be known labels, all strings or all"):
            cls().partial_fit(np.arange(4.0)[:, None], [0, 1, 0, 1], classes=bad)


def test_a_label_that_is_missing_is_one_value():
    with pytest.raises(ValueError, match="missing_label must be one value"):
        HybridGPLVM(missing_label=[-1]).fit(np.eye(4), [0, 1, 0, -1])


def test_columns_can_be_named_in_four_ways():
    expected = [False, True, True]
    for columns in ([1, 2], [-1, 1], ["b", "c"], expected):
        assert_array_equal(choose_columns(columns, 3, ["a", "b", "c"], "chosen"), expected)
    assert_array_equal(choose_columns(None, 3, None, "chosen"), [False] * 3)
    assert_array_equal(choose_columns([], 3, None, "chosen"), [False] * 3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([3], "indices below 3"),
        ([True], "mask of 3"),
        (["d"], "names that X has not"),
        ([0.5], "names of columns"),
        ([[0]], "names of columns"),
    ],
)
def test_columns_that_do_not_exist(columns, message):
    with pytest.raises(ValueError, match=f"^chosen .*{message}"):
        choose_columns(columns, 3, ["a", "b", "c"], "chosen")
