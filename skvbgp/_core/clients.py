"""Clients of a Dask cluster, what those of other processes know, and how long they wait."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: What a copy of `ShardedRows` in another process says.
LOST_ELSEWHERE = (
    "Rows that the model knows are not on the workers any more: a worker was lost, or this is a "
    "copy from another process. Call the method again of the estimator that was fitted, where it "
    "was fitted: it makes them again from the collections."
)
#: Seconds of a wait for tasks after which Dask is asked whether it has any, and how often it has
#: none before they are given up.
_LOOK_EVERY, _MOST_IDLE = 5.0, 60


class IdleError(RuntimeError):
    """Dask has nothing to do, and what it was asked for is not there."""


def find_client() -> Any:
    """The client that the user has started."""
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        raise RuntimeError(
            "Training on a Dask collection needs a cluster: start a dask.distributed.Client."
        ) from None


def find_elsewhere() -> Any:
    """The client of a process that has a copy of the rows' handle, such as a worker."""
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        raise RuntimeError(LOST_ELSEWHERE) from None


def is_there(key: str) -> bool:
    """Whether a worker has the result of a task."""
    from distributed import Future

    client = find_elsewhere()
    return bool(client.who_has([Future(key, client)]).get(key))


def wait_for(
    client: Any, futures: Collection[Any], *, how: str = "ALL_COMPLETED", may_be_idle: bool = False
) -> None:
    """Wait for tasks, all or the first of them, but not for ever where Dask has nothing to do.

    It may have lost all workers for good. It does not notice (2026.8), either, that a task needs
    another one that has failed, as its workers died, if a third one between them is lost. With
    ``may_be_idle``, a cluster without any workers may still get some, however long that takes.

    What Dask has cancelled raises `CancelledError`, and nothing to do `IdleError`.
    """
    from distributed import wait

    n_idle = 0
    while n_idle < _MOST_IDLE:
        try:
            with client.as_current():
                wait(futures, timeout=_LOOK_EVERY, return_when=how)
            return
        except TimeoutError:
            by_worker = client.processing()
            waits = may_be_idle and not by_worker
            n_idle = 0 if waits or any(by_worker.values()) else n_idle + 1
    raise IdleError(f"Dask does nothing since {_MOST_IDLE * _LOOK_EVERY:.0f} seconds")


def get_result(future: Any) -> Any:
    """Result of a task that is done; its worker may still die for good before it has sent it.

    Raises what the task has raised, `CancelledError` if Dask has cancelled it, or `IdleError`.
    """
    if future.status == "error":
        return future.result()
    seconds = _MOST_IDLE * _LOOK_EVERY
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        raise IdleError(f"Dask has not sent a result within {seconds:.0f} seconds") from None
