"""fit and partial_fit of a learner's state: progress, the restart policy and roll-back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval as Interval
from sklearn.utils._param_validation import RealNotInt as RealNotInt
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils.validation import _num_samples as _num_samples

from skvbgp._callbacks import TEARDOWN_ATTRIBUTES, FitProgress
from skvbgp._core.collections import is_collection
from skvbgp._core.journal import Journal, use_journal
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread, thread_map
from skvbgp._optim.ascent import EndPass
from skvbgp.base._checkpoints import keep_journal, refuse_checkpoint
from skvbgp.base._learner import Learner
from skvbgp.base._validation import reading

#: Rows of one prediction tile, so that memory does not grow with the number of test rows.
_TILE_ROWS = 1024
#: Decorator of `fit` and `partial_fit`: checks the constructor parameters, ends the callbacks.
fit_method = _fit_context(prefer_skip_nested_validation=True)


class DocumentedEstimator(CallbackSupportMixin, BaseEstimator):
    """Callback support, and a link from the HTML representation to the documentation."""

    _doc_link_module = "skvbgp"
    _doc_link_template = (
        "https://skvbgp.readthedocs.io/en/stable/api/generated/"
        "{estimator_module}.{estimator_name}.html"
    )


class VariationalEstimator(DocumentedEstimator):
    """Template of training over an immutable state, for all estimators.

    A subclass implements

    - ``_learner()``: the `Learner` of its constructor parameters;
    - ``_prepare(X, y, *, reset, **metadata)``: the data as the learner takes them, a pair of
      inputs and targets;
    - ``_check_collections()``, if its learner takes `ShardedColumns` for them: it returns.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    _learner: Callable[[], Any]
    _prepare: Callable[..., tuple[Any, Any]]
    _state: Any
    random_state: Any  # a constructor parameter of every estimator
    #: Whether `_prepare` gives `partial_fit` all rows that training begins again with.
    _learns_anew: Any = False

    def _full_learner(self) -> Any:
        """The learner of all that there is to learn."""
        return self._learner()

    def _fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=True, **metadata)
            before = self._find_before()
            with keep_journal(self, inputs, targets, before) as journal:
                return self._train_anew(X, y, inputs, targets, before, journal)

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        self._look_for_collections(X, y, *metadata.values())
        refuse_checkpoint(self)
        first = not hasattr(self, "_state")
        with restored_on_error(self), single_blas_thread:
            with reading(X):
                inputs, targets = self._prepare(X, y, reset=first, **metadata)
            if first or self._learns_anew:
                return self._train_anew(X, y, inputs, targets, self._find_before())
            learner, state = self._full_learner(), self._state
            everything = learner.rows_to_restart(state, inputs, targets)
            if everything is not None:
                all_inputs, all_targets = everything
                return self._train_anew(X, y, all_inputs, all_targets, None)
            progress = FitProgress(self, X, y, learner.max_update_passes(state, inputs, targets))
            end_pass = self._end_pass(learner, progress)
            return self._publish(
                learner, learner.update(state, inputs, targets, end_pass), progress
            )

    def _find_before(self) -> Any:
        """The state that training goes on from, if there is one and it is asked for."""
        return getattr(self, "_state", None) if getattr(self, "warm_start", False) else None

    def _look_for_collections(self, *data: Any) -> None:
        if any(is_collection(values) for values in data):
            self._check_collections()

    def _check_collections(self) -> None:
        """Refuse to learn from Dask collections, where it cannot be done."""
        raise TypeError(
            f"{type(self).__name__} cannot be trained on Dask collections: give it rows in "
            "memory, or chunk after chunk to partial_fit."
        )

    def _train_anew(
        self,
        X: Any,
        y: Any,
        inputs: Any,
        targets: Any,
        before: Any,
        journal: Journal | None = None,
    ) -> Self:
        """Train on validated data; X and y are the user's own, for the callbacks."""
        learner, rng = self._full_learner(), check_random_state(self.random_state)
        if journal is not None:
            journal.begin_fit(rng)
        with use_journal(journal):
            start = learner.start(inputs, targets, rng, before)
        progress = FitProgress(self, X, y, learner.max_passes(targets))
        end_pass = self._end_pass(learner, progress, journal)
        with use_journal(journal):
            state = learner.train(start, inputs, targets, end_pass)
        return self._publish(learner, state, progress)

    def _end_pass(
        self, learner: Learner, progress: FitProgress, journal: Journal | None = None
    ) -> EndPass:
        def end_pass(make_state: Callable[[], Any]) -> bool:
            def reconstruction() -> dict[str, Any]:
                state = make_state()
                return learner.attributes(state) | {"_state": state}

            if journal is None:
                return progress.end_pass(reconstruction)
            with use_journal(None):
                if journal.repeats:
                    return progress.repeat_pass(journal.repeat_pass())
                stop = progress.end_pass(reconstruction)
            journal.end_pass(stop)
            return stop

        return end_pass

    def _publish(self, learner: Learner, state: Any, progress: FitProgress) -> Self:
        attributes = learner.attributes(state)
        earlier: set[str] = getattr(self, "_published", set())
        for name in (earlier - attributes.keys()) & vars(self).keys():
            delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)
        self._published, self._state = set(attributes), state
        progress.close()
        return self


def in_tiles(function: Callable[[Any], tuple[Array, ...]], X: NDArray[Any]) -> Any:
    """What a function says of many rows, such as moments, tile by tile on several threads."""
    return tuple(map(np.concatenate, zip(*_map_tiles(function, X), strict=True)))


def by_tile(function: Callable[[Array], Array], X: Array) -> Array:
    """The same of a function that returns one array."""
    return np.concatenate(_map_tiles(function, X))


def _map_tiles(function: Callable[[Any], Any], X: NDArray[Any]) -> list[Any]:
    tiles = [(X[start : start + _TILE_ROWS],) for start in range(0, len(X), _TILE_ROWS)]
    return thread_map(function, tiles)


@contextmanager
def restored_on_error(estimator: Any) -> Iterator[None]:
    """Undo every change of the estimator's attributes if the block fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        now = vars(estimator)
        in_use = {name: now[name] for name in TEARDOWN_ATTRIBUTES if name in now}
        now.clear()
        now.update(before | in_use)
        raise
