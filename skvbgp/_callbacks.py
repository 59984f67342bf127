"""The one place that talks to scikit-learn's experimental callback API."""

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

#: Attributes that scikit-learn sets during a fit and needs to tear the callbacks down.
TEARDOWN_ATTRIBUTES = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")

#: All attributes by which an estimator knows of callbacks.
CALLBACK_ATTRIBUTES = (*TEARDOWN_ATTRIBUTES, "_skl_callbacks", "_parent_callback_ctx")


def find_callbacks(estimator: BaseEstimator, kind: type) -> list[Any]:
    """Those of the estimator's callbacks that are of a class."""
    callbacks = getattr(estimator, "_skl_callbacks", [])
    return [callback for callback in callbacks if isinstance(callback, kind)]


class FitProgress:
    """Tells the callbacks of an estimator about the passes of one fit.

    Every pass is a subtask of the fit; a callback may ask to stop. It may also score on what was
    given: X and y, which are the user's own, not validated copies, and weights in ``metadata``.
    """

    def __init__(self, estimator: BaseEstimator, given: dict[str, Any], max_passes: int) -> None:
        self._estimator, self._data = estimator, given
        self._max_passes = max_passes
        self._n_passes = 0
        self._root = estimator._init_callback_context(max_subtasks=max_passes)
        self._root.call_on_fit_task_begin(estimator=estimator, **self._data)
        self._pass: Any = None
        self._begin_pass()

    def _begin_pass(self) -> None:
        self._pass = self._root.subcontext(task_name="pass")
        self._pass.call_on_fit_task_begin(estimator=self._estimator, **self._data)

    def end_pass(self, attributes: Callable[[], dict[str, Any]]) -> bool:
        """Report the end of a pass; True if a callback asks to stop.

        ``attributes`` returns fitted attributes of this moment; it is called only if a
        callback needs them.
        """
        stop = self._pass.call_on_fit_task_end(
            estimator=self._estimator, **self._data, reconstruction_attributes=attributes
        )
        return self._go_on(bool(stop))

    def repeat_pass(self, stop: bool) -> bool:
        """Report a pass of an earlier run, of which no more is known than how it ended."""
        self._pass.call_on_fit_task_end(estimator=self._estimator, **self._data)
        return self._go_on(stop)

    def _go_on(self, stop: bool) -> bool:
        self._pass = None
        self._n_passes += 1
        if not stop and self._n_passes < self._max_passes:
            self._begin_pass()
        return stop

    def close(self) -> None:
        """Report the end of the fit; the estimator is complete."""
        if self._pass is not None:  # begun, but the solver had converged
            self._pass.call_on_fit_task_end(estimator=self._estimator, **self._data)
        self._root.call_on_fit_task_end(
            estimator=self._estimator, **self._data, reconstruction_attributes={}
        )
