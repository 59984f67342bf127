"""Streams that fade: where rows contradict one, a second begins, and follows if it is better.

After an abrupt change, rows of the old function count too much as long as they count at all. The
second stream knows the rows from the change on alone. Which of the two predicts new rows better,
before it has learned from them, decides. See :doc:`/theory/streaming`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import indexable
from sklearn.utils.validation import column_or_1d

from skvbgp._callbacks import CALLBACK_ATTRIBUTES
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base._estimator import (
    VariationalEstimator,
    _num_samples,
    _safe_indexing,
    restored_on_error,
)
from skvbgp.base._validation import as_weights, reading
from skvbgp.base._weights import count_remembered, share_by_age, weigh_classes

#: How much larger squared errors are thought to be after a change, and the largest one that counts,
#: of three standard deviations.
_GROWTH, _LARGEST = 2.0, 9.0
#: Odds at which a second stream follows, and the least ones at which it begins.
_ODDS = 100.0
#: How much more likely a row is by the second stream, at most, in what decides.
_LARGEST_RATIO = 10.0
#: Share of rows that may be anything when a change is placed, and the largest square.
_OUTLIERS, _LARGEST_GROWN = 0.02, 1e9
#: Rows with errors as large as the worse model's that are added to those that say what noise is.
_WORSE_ROWS = 5
#: Least rows of half a call for these odds.
_LEAST_HALF = int(np.ceil(np.log(_ODDS) / np.log((1.0 + _LARGEST_RATIO) / 2.0)))
#: Most rows of a call that are compared with predictions.
_COMPARED_ROWS = 500

Model = TypeVar("Model")
#: X, y, and what else `partial_fit` is given.
Data = tuple[Any, Any, dict[str, Any]]


class Second(NamedTuple):
    """A stream that began where rows contradicted the first."""

    model: Any
    n_before: int  # rows that had been seen before its first one
    lead: float = 0.0  # Page's statistic of its being ahead of the first
    lag: float = 0.0  # and of its being behind
    n_compared: int = 0
    #: Of these rows, sums of both models' squared errors in units of the larger variance.
    squares: tuple[float, float] = (0.0, 0.0)


class Judged(NamedTuple):
    """What n rows say of predictions that did not know them, (n,) each."""

    surprise: Array  # squared errors in units of what is expected
    evidence: Array  # how much likelier the rows are if there was a change, in logarithms

    def joined(self, later: Judged) -> Judged:
        """What was said of these rows and later ones."""
        return Judged(*map(np.append, self, later))

    def agreed(self, other: Judged) -> Judged:
        """What two models' predictions have in common."""
        return Judged(*map(np.minimum, self, other))


#: What no rows say.
_NOTHING = Judged(np.empty(0), np.empty(0))


class Call(NamedTuple):
    """Rows of a call that a change may explain."""

    data: Data
    n_before: int  # rows that had been seen before them
    rows: NDArray[np.intp]  # (r,), those that were compared
    judged: Judged  # of these


class Doubt(NamedTuple):
    """What rows say about a change."""

    first: int  # of those that a change may explain; their number if there are none
    is_change: bool  # whether there was one at that row


def suspect(surprise: Array) -> Array:
    """The evidence of squared errors (n,) in units of the predicted variance."""
    return 0.5 * (np.minimum(surprise, _LARGEST) * (1.0 - 1.0 / _GROWTH) - np.log(_GROWTH))


def suspect_labels(p: Array, n_classes: int) -> Array:
    """That of labels with probabilities (n,): after a change, half of them may be any class."""
    with np.errstate(divide="ignore"):  # of a label that was thought impossible
        ratio = np.log(0.5 + 0.5 / (n_classes * p))
    return np.minimum(ratio, suspect(np.array(np.inf)))


def compare(ahead: Array) -> Array:
    """Of rows (n,) that are so much likelier by one model than by another, in logarithms.

    How much likelier they are by either one, in equal shares. No row says much.
    """
    return np.log(0.5 + 0.5 * np.exp(np.minimum(ahead, np.log(_LARGEST_RATIO))))


def follow(lead: float, evidence: Array) -> Array:
    """Page's statistic after each of n rows (n,): the log likelihood ratio, never below zero."""
    total = lead + np.cumsum(evidence)
    return total - np.minimum(np.minimum.accumulate(total), 0.0)


def find_change(
    surprise: Array, evidence: Array, memory: float, odds: float, *, restarts: bool
) -> Doubt:
    """Whether rows (n,) in a row follow a change, and from where on.

    Others were before them for which Page's statistic was zero. More than ``memory`` are not kept.
    With so many to forget, or at these ``odds``, if they are larger, there was a change.
    """
    n = len(surprise)
    leads = follow(0.0, evidence)
    is_change = bool(leads.max(initial=0.0) >= np.log(max(odds, memory)))
    last = int(np.argmax(leads)) if is_change else n - 1
    first = int(np.max(np.flatnonzero(leads[: last + 1] == 0.0), initial=-1)) + 1
    if not is_change:
        return Doubt(max(first, n - int(memory)), is_change)
    until_then = surprise[first : last + 1]  # later ones may be of what has been learned since
    return Doubt(first + place_change(until_then, restarts=restarts), True)


def place_change(surprise: Array, *, restarts: bool) -> int:
    """The first of rows (n,) after a change, at the least expected loss.

    If a stream restarts there, a row of the old function costs as much as the excess of its
    squared error in rows that are lost; else one.
    """
    s = np.minimum(surprise, _LARGEST_GROWN)
    n_grown = max(1, int(np.log(s.max()) / np.log(_GROWTH)))
    v = _GROWTH ** np.arange(n_grown + 1.0)[:, None]  # (g, 1), variances: before, and since then
    density = np.exp(-0.5 * s / v) / np.sqrt(v)
    wide = np.mean(density[1:], axis=0)
    log_density = np.log((1.0 - _OUTLIERS) * density + _OUTLIERS * wide)
    ahead = log_density[1:] - log_density[0]
    score = np.cumsum(ahead[:, ::-1], axis=1)[:, ::-1]  # (g - 1, n) of a change at each row
    until = np.cumsum(np.exp(score - score.max()), axis=1)
    old = (v[1:] - 1.0 if restarts else 1.0) * (until[:, -1:] - until)
    return int(np.argmax(old.sum(axis=0) <= until.sum(axis=0)))


class NoticesChange(VariationalEstimator):
    """An estimator with ``forgetting`` whose streams that fade begin again.

    A subclass says how it judges predictions, and how data begin a stream.
    """

    forgetting: float
    n_samples_seen_: int
    _second: Second  # while it is open whether there was a change
    _doubted: list[Call]  # the last ones, while they may follow a change
    _counts_zeros = False  # whether rows of weight zero are among those that were seen

    # -- what a subclass says ----------------------------------------------------------------------

    def _predict_known(self, X: Any, y: Any, metadata: dict[str, Any]) -> Any:
        """How well rows are predicted."""
        raise NotImplementedError

    def _judge(self, said: Any) -> Judged:
        """What rows say that are predicted so well, see `_predict_known`."""
        raise NotImplementedError

    def _look_ahead(
        self, second: Second, said: Any, other: Any
    ) -> tuple[Array, tuple[float, float]]:
        """By how much rows (n,) are likelier by a second stream, in logarithms.

        This one predicts them as well as ``said``, that one as ``other``. And the sums of squares
        of the second stream with those of these rows.
        """
        raise NotImplementedError

    def _prepare_after(self, n: int, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Any, Any]:
        """Data as the learner takes them, of a stream that begins with them after n others."""
        raise NotImplementedError

    # -- streams -----------------------------------------------------------------------------------

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        with restored_on_error(self):
            known = self.__dict__
            second, doubted = known.pop("_second", None), known.pop("_doubted", [])
            before = copy.copy(self)
            self._learn(X, y, metadata)
            if hasattr(before, "_state") and self.forgetting < 1.0:
                X, y = indexable(X, y)
                before._compare(self, second, doubted, (X, y, metadata))
        return self

    def _learn(self, X: Any, y: Any, metadata: dict[str, Any]) -> Self:
        """As without a second stream."""
        return super()._partial_fit(X, y, **metadata)

    def _keep_in_doubt(self, name: str, value: Any) -> None:
        """Keep what the next fit drops."""
        setattr(self, name, value)
        self._published = self._published | {name}

    def _compare(self, now: Self, second: Second | None, doubted: list[Call], data: Data) -> None:
        """Judge new rows, which this one does not know, and have ``now``, which does, go on.

        It gets a second stream, keeps that, or becomes what it knows.
        """
        weight = as_weights(data[2].get("sample_weight"), _num_samples(data[0]))
        rows = np.flatnonzero((weight > 0.0) & self._is_observed(data[1]))
        if len(rows) > _COMPARED_ROWS:
            rows = rows[np.linspace(0, len(rows) - 1, _COMPARED_ROWS, dtype=int)]
        some = _take(rows, *data)
        try:
            if not len(rows):
                self._wait(now, second, doubted, Call(data, self.n_samples_seen_, rows, _NOTHING))
                return
            mine = self._predict_known(*some)
            call = Call(data, self.n_samples_seen_, rows, self._judge(mine))
            if second is None:
                self._doubt(now, [*doubted, call])
                return
            other = second.model._predict_known(*some)
            call = call._replace(judged=call.judged.agreed(second.model._judge(other)))
            ahead, squares = self._look_ahead(second, mine, other)
            lead, lag = follow(second.lead, compare(ahead)), follow(second.lag, compare(-ahead))
            is_ahead = lead.max() >= np.log(_ODDS)
            compared = second._replace(
                lead=float(lead[-1]),
                lag=float(lag[-1]),
                n_compared=second.n_compared + len(rows),
                squares=squares,
            )
            if not is_ahead and self._gives_up(compared, now.n_samples_seen_):
                return
            compared = self._tell(compared, now, data)
            if is_ahead:
                now._become(compared.model)
                return
            now._keep_in_doubt("_second", compared)
            self._doubt(now, [*doubted, call])
        # rows after a change may not be enough, as where an output was not observed yet, or say
        # nothing that could be computed with: the first stream has learned from them
        except (ValueError, ArithmeticError):
            return

    def _is_observed(self, y: Any) -> NDArray[np.bool_]:
        """Which rows say something, (n,)."""
        return np.ones(_num_samples(y), dtype=bool)

    def _tell(self, second: Second, now: Self, data: Data) -> Second:
        """A second stream that knows the rows of a call, too."""
        model = copy.copy(second.model)
        vars(model).update(now.get_params(deep=False))
        return second._replace(model=_drop_callbacks(model._learn(*data)))

    def _wait(self, now: Self, second: Second | None, doubted: list[Call], call: Call) -> None:
        """Leave open whether there was a change: the call says nothing."""
        if second is not None:
            now._keep_in_doubt("_second", self._tell(second, now, call.data))
        if doubted:
            now._keep_in_doubt("_doubted", [*doubted, self._shorten(call, 0)])

    def _gives_up(self, second: Second, n_seen: int) -> bool:
        """Whether a second stream that is not ahead is no longer worth its time.

        Once it knows as many rows as the first did, it should be ahead rather than behind.
        """
        n_known = min(second.n_before, 1.0 / (1.0 - self.forgetting))
        is_young = n_seen - second.n_before < n_known
        is_late = second.n_compared >= count_remembered(self.forgetting)
        return is_late or not (is_young or second.lead > second.lag)

    def _doubt(self, now: Self, calls: list[Call]) -> None:
        """Of calls that a change may explain, with the new one, keep what it still may explain.

        Or begin a second stream with them, or become that.
        """
        judged = reduce(Judged.joined, (call.judged for call in calls))
        memory = count_remembered(self.forgetting)
        doubt = find_change(judged.surprise, judged.evidence, memory, _ODDS, restarts=True)
        kept, first = list[Call](), doubt.first
        for call in calls:
            if first < len(call.rows) or (kept and not len(call.rows)):
                kept.append(self._shorten(call, max(first, 0)))
            first -= len(call.rows)
        if not doubt.is_change:
            now._keep_in_doubt("_doubted", kept)
            return
        model = self._begin_with(kept)
        now._keep_in_doubt("_second", Second(model, kept[0].n_before))
        if self._would_follow(calls[-1], kept):
            now._become(model)

    def _would_follow(self, call: Call, kept: list[Call]) -> bool:
        """Whether a second stream would have been ahead by now, had the last call been two.

        The second half is what is left to compare where rows after a change come all at once.
        """
        *earlier, last = kept
        half = len(last.rows) // 2
        if half < _LEAST_HALF:
            return False
        stop, n = int(last.rows[half]), _num_samples(last.data[0])
        skipped = _num_samples(call.data[0]) - n
        first = _drop_callbacks(copy.copy(self))
        first._learn(*_take(np.arange(skipped + stop), *call.data))
        start = last._replace(data=_take(np.arange(stop), *last.data))
        second = Second(self._begin_with([*earlier, start]), kept[0].n_before)
        later = _take(last.rows[half:], *last.data)
        said = (model._predict_known(*later) for model in (first, second.model))
        ahead, _ = first._look_ahead(second, *said)
        return bool(follow(0.0, compare(ahead)).max() >= np.log(_ODDS))

    def _begin_with(self, calls: list[Call]) -> Self:
        """A stream of these calls alone, which knows how many rows had been seen before them."""
        first, model = calls[0], _drop_callbacks(copy.copy(self))
        with single_blas_thread:
            with reading(first.data[0]):
                known = model._prepare_after(first.n_before, *first.data)
            model._train_anew({}, *known, None)
        for call in calls[1:]:
            _drop_callbacks(model)._learn(*call.data)
        return _drop_callbacks(model)

    def _shorten(self, call: Call, first: int) -> Call:
        """A copy of the rows from one of those on that were compared."""
        start, n = int(call.rows[first]) if first else 0, _num_samples(call.data[0])
        skipped = as_weights(call.data[2].get("sample_weight"), n)[:start]
        n_before = call.n_before + (start if self._counts_zeros else int(np.count_nonzero(skipped)))
        data = _take(np.arange(start, n), *call.data)
        judged = Judged(*(values[first:] for values in call.judged))
        return Call(data, n_before, call.rows[first:] - start, judged)

    def _become(self, model: Self) -> None:
        """Know what another one knows."""
        now = self.__dict__
        for name in self._published - model._published:
            now.pop(name, None)
        now.update(model.__dict__)


class NoticesFunctions(NoticesChange):
    """That of regressors."""

    predict: Callable[..., Any]

    def _predict_known(self, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Array, Array]:
        """How far rows are from their means, and standard deviations."""
        mean, std = self.predict(X, return_std=True, y_var=metadata["y_var"])
        return np.asarray(y, dtype=np.float64).reshape(mean.shape) - mean, std

    def _is_observed(self, y: Any) -> NDArray[np.bool_]:
        values = np.asarray(y, dtype=np.float64)
        return np.any(~np.isnan(values.reshape(len(values), -1)), axis=1)

    def _judge(self, said: tuple[Array, Array]) -> Judged:
        squared = _square(*said)
        return Judged(squared, suspect(squared))

    def _look_ahead(
        self, second: Second, said: tuple[Array, Array], other: tuple[Array, Array]
    ) -> tuple[Array, tuple[float, float]]:
        """By the means, with one variance for both, so that noise that changes says nothing.

        It is what the better one's errors say on average: a model that learns from rows of two
        functions expects more noise than there is.
        """
        (mine, std), (error, other_std) = said, other
        larger = np.maximum(std, other_std)
        squares = np.array([_square(mine, larger), _square(error, larger)])  # (2, n)
        total = second.squares + squares.sum(axis=1)
        n = second.n_compared + squares.shape[1]
        with np.errstate(invalid="ignore"):
            worse = min(1.0, total.max() / n)  # in units of the larger variance
            variance = (total.min() + _WORSE_ROWS * worse) / (n + _WORSE_ROWS)
            ahead = 0.5 * (squares[0] - squares[1]) / variance
        return np.nan_to_num(ahead, nan=0.0), (float(total[0]), float(total[1]))


class NoticesClasses(NoticesChange):
    """That of classifiers."""

    classes_: NDArray[Any]
    class_weight: Any
    predict_proba: Callable[..., Array]
    _stream: Any  # `StreamRows`, whose last column are the labels' codes

    def _predict_known(self, X: Any, y: Any, metadata: dict[str, Any]) -> Array:
        """Probabilities of the labels."""
        known = {name: metadata[name] for name in ("X_var",) if name in metadata}
        codes = np.searchsorted(self.classes_, column_or_1d(y))
        p = self.predict_proba(X, **known) / self._weigh_row_of_class()
        p /= p.sum(axis=1, keepdims=True)
        return p[np.arange(len(codes)), codes]

    def _weigh_row_of_class(self) -> Array:
        """How often a row of each class counts on average, with the weight of the class, (K,).

        Rows that come are not as frequent as rows that count are probable.
        """
        rows, K = self._stream, len(self.classes_)
        codes, share = rows.columns[-1], share_by_age(self.forgetting, rows.age)
        totals = np.asarray(np.bincount(codes, share * rows.weight, K), dtype=np.float64)
        n = np.bincount(codes, share * (rows.weight > 0.0), K)
        mean = np.divide(totals, n, out=np.ones(K), where=n > 0.0)
        return mean * weigh_classes(self.class_weight, self.classes_, totals)

    def _judge(self, said: Array) -> Judged:
        K = len(self.classes_)
        with np.errstate(divide="ignore"):  # of a label that was thought impossible
            return Judged((1.0 / said - 1.0) / (K - 1), suspect_labels(said, K))

    def _look_ahead(
        self, second: Second, said: Array, other: Array
    ) -> tuple[Array, tuple[float, float]]:
        least = np.finfo(np.float64).tiny
        ahead = np.log(np.maximum(other, least) / np.maximum(said, least))
        return ahead, second.squares


def _square(error: Array, std: Array) -> Array:
    """Squared errors (n,) in units of the variance, on average over the outputs observed."""
    with np.errstate(over="ignore"):  # what is so far away is refused, or learned from
        values = (error / std) ** 2
    if values.ndim == 1:
        return values
    return np.nansum(values, axis=1) / np.maximum(1, np.sum(~np.isnan(values), axis=1))


def _drop_callbacks(model: Model) -> Model:
    """Those of the user follow the first stream."""
    for name in CALLBACK_ATTRIBUTES:
        vars(model).pop(name, None)
    return model


def _take(rows: Index, X: Any, y: Any, metadata: dict[str, Any]) -> Data:
    """Some rows of all that has one for each."""
    some = {
        name: _safe_indexing(value, rows) if name != "classes" and np.ndim(value) else value
        for name, value in metadata.items()
    }
    return _safe_indexing(X, rows), _safe_indexing(y, rows), some
