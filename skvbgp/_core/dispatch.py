"""Independent tasks on the workers of a Dask cluster that joblib has been told to use.

joblib sends tasks to Dask itself, but (1.4 to 1.6) waits for ever for one that Dask gives up, or
whose arguments cannot be sent ahead because their worker has just died; and it runs all of them in
the client where only one worker is left. Therefore it only says here which cluster that is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from typing import Any
from uuid import uuid4

from joblib import parallel_config
from joblib.parallel import get_active_backend

from skvbgp._core.clients import IdleError, get_result, wait_for

#: How often tasks are started again whose shared arguments died with a worker, and for how many
#: seconds Dask may see meanwhile that it is gone.
_MAX_LOSSES, _PAUSE = 3, 1.0
#: Seconds that a worker is kept busy at a time, by several tasks if they are quick.
_BATCH_SECONDS = 0.2
#: Bytes of tasks that go through the scheduler together; larger ones are sent ahead of their call.
_MOST_BYTES = 4 * 2**20


class LostError(Exception):
    """Tasks, or what they share, have died with a worker."""


def find_dask() -> Any:
    """The backend of ``joblib.parallel_config("dask")``, or None where another one is active."""
    backend, _ = get_active_backend()
    return backend if type(backend).__module__ == "joblib._dask" else None


def dispatch(
    backend: Any,
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    receive: Callable[[Any], object],
    shared: tuple[Any, ...],
) -> None:
    """`parallel_each` on the workers of a backend that `find_dask` has found."""
    n_received = 0
    n_cores = backend.effective_n_jobs(-1)  # waits for workers as long as the user has said
    with backend.retrieval_context():  # another task may take the place of one that waits for these
        for n_losses in range(_MAX_LOSSES + 1):
            if n_losses:
                time.sleep(_PAUSE)
            try:
                results = _collect_results(backend, function, tasks, n_received, shared, n_cores)
                with closing(results):
                    for result in results:
                        receive(result)
                        n_received += 1
                return
            except LostError as error:
                lost = error.__cause__
    raise RuntimeError(
        f"Workers were lost {_MAX_LOSSES + 1} times together with data that tasks need; "
        f"{n_received} of {len(tasks)} tasks were done. Their logs may tell why, often it is "
        "memory."
    ) from lost


def _collect_results(
    backend: Any,
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    start: int,
    shared: tuple[Any, ...],
    n_cores: int,
) -> Generator[Any]:
    """Results of tasks from one on, in order, as long as nothing is lost."""
    from distributed import KilledWorker

    client = backend.client
    common = _send_ahead(client, shared)
    batches: deque[Any] = deque()
    size, n_bytes = 1.0, 1.0  # tasks of a batch, and what each of them takes
    try:
        while batches or start < len(tasks):
            running = [batch for batch in batches if not batch.done()]
            while len(running) < 2 * n_cores and start < len(tasks):
                end = min(start + max(1, int(min(size, _MOST_BYTES / n_bytes))), len(tasks))
                chosen = range(start, end)
                batch, total_bytes = _submit_batch(backend, function, common, tasks, chosen)
                running.append(batch)
                batches.append(batch)
                n_bytes, start = total_bytes / len(chosen), end
            if running:
                wait_for(client, running, how="FIRST_COMPLETED")
            while batches and batches[0].done():
                seconds, results = get_result(batches.popleft())
                size = min(2.0 * size, _BATCH_SECONDS * len(results) / max(seconds, 1e-6))
                yield from results
    except CancelledError as error:
        raise LostError from error
    except KilledWorker as error:
        raise RuntimeError(
            "Dask has given up a task: one worker after the other died that ran it. Their logs may "
            "tell why, often it is memory."
        ) from error
    except IdleError as error:
        raise RuntimeError(
            f"{error}, and tasks are not done: no worker is left that may run them."
        ) from None
    finally:  # an exception keeps this frame: Dask would go on with what nobody waits for
        for future in (*batches, common):
            future.release()


def _submit_batch(
    backend: Any,
    function: Callable[..., Any],
    common: Any,
    tasks: Sequence[tuple[Any, ...]],
    chosen: range,
) -> tuple[Any, int]:
    """Future of some tasks, and how many bytes these take."""
    from distributed.protocol.pickle import dumps

    payload = dumps([tasks[i] for i in chosen])
    n_bytes = len(payload)
    if n_bytes > _MOST_BYTES:
        payload = _send_ahead(backend.client, payload)
    options = backend.submit_kwargs | {"key": f"{function.__name__}-{uuid4().hex}"}
    return backend.client.submit(_run_batch, function, common, payload, **options), n_bytes


def _send_ahead(client: Any, value: Any) -> Any:
    """Future of a value that a worker has."""
    try:
        # data of the same name, which hash=True gives to equal ones, may just be forgotten
        (future,) = client.scatter([value], hash=False)
    except OSError as error:  # the worker is gone, but the scheduler does not know yet
        raise LostError from error
    return future


# -- what runs on the workers --------------------------------------------------------------------


def _run_batch(
    function: Callable[..., Any], shared: tuple[Any, ...], payload: bytes
) -> tuple[float, list[Any]]:
    """Seconds and results of some tasks, which may have tasks of their own for Dask.

    They come as bytes: Dask would look into them for what it knows, and call a kernel.
    """
    from distributed.protocol.pickle import loads

    tasks = loads(payload)
    begin = time.perf_counter()
    with parallel_config("dask"):
        results = [function(*shared, *task) for task in tasks]
    return time.perf_counter() - begin, results
