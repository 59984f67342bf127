"""Clients of a Dask cluster, and what those of other processes know."""

from __future__ import annotations

from typing import Any

#: What a copy of `ShardedRows` in another process says.
LOST_ELSEWHERE = (
    "Rows that the model knows are not on the workers any more: a worker was lost, or this is a "
    "copy from another process. Call the method again of the estimator that was fitted, where it "
    "was fitted: it makes them again from the collections."
)


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
