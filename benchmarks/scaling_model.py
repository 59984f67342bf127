"""A model of training on Dask workers, from measured parts: time by workers, rows and network.

A step of VBDTC with a mini-batch of b rows on w workers takes

    max(worker + row b / w, hidden) + serial + message + (w - 1) relay
    + (w bytes + b row_bytes) / bandwidth,

the last pass ``last n / w``. Client and scheduler share a machine, whose link all messages pass.
Not in it: reading the rows, the start, and workers that are slower than others.
"""

import pickle
import time
from dataclasses import asdict, dataclass, fields
from functools import partial

import numpy as np
from common import Report, parser
from dask_scaling import StepTimes, make_collections, start_cluster
from distributed import Client, wait

from skvbgp import VBDTCRegressor
from skvbgp._core.shards import ShardedRows

#: Rows and mini-batches of the measurements; the parts come from one worker, two are the check.
N, BATCH, SMALL_BATCH = 12 * 8192, 8192, 4096
M = 500
BYTES_OF_A_ROW = 8 * 9
HOUR = 3600.0


@dataclass(frozen=True)
class Parts:
    """What is measured, by default as on two cores, m = 500 and eight inputs."""

    worker: float = 0.0006  # CPU seconds of a worker's step, whatever its rows
    row: float = 4.30e-5  # for each of them
    last: float = 6.75e-5  # CPU seconds of a row in the last pass
    hidden: float = 0.0606  # seconds of the client while the workers compute
    serial: float = 0.0097  # ... while they wait
    message: float = 0.0058  # seconds of a worker's messages of a step, on one machine
    relay: float = 0.0039  # CPU seconds of client and scheduler in it
    bytes: float = 2.05e6  # of a worker's messages of a step, both ways, whatever its rows
    row_bytes: float = 72.0  # for each of them

    def step(self, n_workers, batch_size, bandwidth=np.inf):
        """Seconds of a step; bandwidth in bytes per second."""
        compute = max(self.worker + self.row * batch_size / n_workers, self.hidden)
        return compute + self.serial + self.exchange(n_workers, batch_size, bandwidth)

    def exchange(self, n_workers, batch_size, bandwidth):
        n_bytes = n_workers * self.bytes + batch_size * self.row_bytes
        return self.message + (n_workers - 1) * self.relay + n_bytes / bandwidth

    def client(self, n_workers):
        """CPU seconds of client and scheduler in a step."""
        return self.hidden + self.serial + n_workers * self.relay

    def on_shared_cores(self, n_workers, batch_size, n_cores):
        """Seconds of a step if workers, client and scheduler share the cores of one machine."""
        busy = n_workers * self.worker + self.row * batch_size + self.client(n_workers)
        return max(self.step(n_workers, batch_size), busy / n_cores)

    def fit(self, n, n_passes, n_workers, batch_size, bandwidth):
        """Seconds of a fit."""
        n_steps = n_passes * max(1, round(n / batch_size))
        return n_steps * self.step(n_workers, batch_size, bandwidth) + self.last * n / n_workers


# -- measurements --------------------------------------------------------------------------------


class Clock(StepTimes):
    """It notes wall time and CPU seconds of client and workers when passes end."""

    def __init__(self, client):
        super().__init__()
        self._client = client

    def read(self):
        workers = self._client.run(time.process_time)
        return np.array([time.perf_counter(), time.process_time(), np.mean(list(workers.values()))])

    def on_fit_task_end(self, estimator, context):
        self.ends.append(self.read())


class CountedMessages:
    """Within it, the bytes of the last step's messages to and from the first worker are kept."""

    def __enter__(self):
        self._begin = ShardedRows.begin
        counter = self

        def begin(rows, function, shared, index, own=lambda places: ()):
            begun = self._begin(rows, function, shared, index, own)
            places = begun.places[0]
            sent = (function, shared, index[places], own(places))
            counter.bytes = len(pickle.dumps(sent)) + len(pickle.dumps(begun.first[0]))
            return begun

        ShardedRows.begin = begin
        return self

    def __exit__(self, *error):
        ShardedRows.begin = self._begin


def measure_fit(n_workers, batch_size):
    """Wall seconds, CPU seconds of the client and of a worker in a step; of a row in the end.

    The CPU seconds of the scheduler are among the client's, whose process it shares.
    """
    model = VBDTCRegressor(M, max_iter=3, batch_size=batch_size, tol=0.0, random_state=0)
    with start_cluster(n_workers) as cluster, Client(cluster) as client:
        X, y = (rows.persist() for rows in make_collections(N))
        wait([X, y])
        clock = Clock(client)
        model.set_callbacks(clock).fit(X, y)
        end = clock.read()
    first, last = clock.ends[0], clock.ends[2]  # of the first pass and the third
    return (last - first) / (2 * round(N / batch_size)), (end - last)[2] * n_workers / N


class _Echo:
    """An actor that answers with as many bytes as it is asked for."""

    def answer(self, received, n_bytes):
        return np.zeros(n_bytes // 8)


def measure_message(n_bytes, n_calls=20):
    """Wall seconds, and CPU seconds of client and scheduler, of a call with bytes either way."""
    with start_cluster(1) as cluster, Client(cluster) as client:
        echo = client.submit(_Echo, actor=True).result()
        sent = np.zeros(n_bytes // 8)
        echo.answer(sent, n_bytes).result()
        before = time.perf_counter(), time.process_time()
        for _ in range(n_calls):
            echo.answer(sent, n_bytes).result()
        after = time.perf_counter(), time.process_time()
    return (np.array(after) - before) / n_calls


def measure_parts():
    """All parts, from one worker."""
    with CountedMessages() as large_messages:
        (wall, client, large), last = measure_fit(1, BATCH)
    with CountedMessages() as small_messages:
        (_, _, small), _ = measure_fit(1, SMALL_BATCH)
    n_rows = BATCH - SMALL_BATCH  # more in the one than in the other
    row = (large - small) / n_rows
    row_bytes = (large_messages.bytes - small_messages.bytes) / n_rows
    # two calls a step: the matrices, and then the gradients, which are small
    message, relay = measure_message(large_messages.bytes // 2) + measure_message(0)
    serial = max(wall - large - message, 0.0)
    figures = {
        "worker": large - BATCH * row,
        "row": row,
        "last": last,
        "hidden": max(client - serial - relay, 0.0),
        "serial": serial,
        "message": message,
        "relay": relay,
        "bytes": large_messages.bytes - BATCH * row_bytes,
        "row_bytes": row_bytes,
    }
    return Parts(**{name: float(value) for name, value in figures.items()})


# -- what comes out ------------------------------------------------------------------------------


def choose_batch_size(n_workers, rows_per_worker):
    """At least what the parts were measured with."""
    return max(BATCH, rows_per_worker * n_workers)


def add_predictions(report, parts, options):
    """A row for each size, network and number of workers."""
    for n in options.rows:
        for gigabits in options.gigabits:
            for n_workers in options.workers:
                batch_size = choose_batch_size(n_workers, options.rows_per_worker)
                bandwidth = gigabits * 1e9 / 8
                step = parts.step(n_workers, batch_size, bandwidth)
                exchange = parts.exchange(n_workers, batch_size, bandwidth)
                seconds = parts.fit(n, options.passes, n_workers, batch_size, bandwidth)
                report.add(
                    **{
                        "rows": f"{n:.0e}",
                        "Gbit/s": gigabits,
                        "workers": n_workers,
                        "batch": batch_size,
                        "GB/worker": n * BYTES_OF_A_ROW / 1e9 / n_workers,
                        "step ms": 1e3 * step,
                        "exchange": f"{exchange / step:.0%}",
                        "hours": seconds / HOUR,
                    }
                )


def draw(parts, options, path):
    """Hours by workers, a line for each size and network."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    workers = np.unique(np.geomspace(min(options.workers), max(options.workers), 60).astype(int))
    for k, n in enumerate(options.rows):
        for gigabits, style in zip(options.gigabits, ("--", "-", ":", "-."), strict=False):
            hours = [
                parts.fit(
                    n,
                    options.passes,
                    w,
                    choose_batch_size(w, options.rows_per_worker),
                    gigabits * 1e9 / 8,
                )
                / HOUR
                for w in workers
            ]
            label = f"{n:.0e} rows, {gigabits:g} Gbit/s"
            axes.loglog(workers, hours, style, color=f"C{k}", label=label)
    axes.set_xlabel("workers")
    axes.set_ylabel(f"hours of {options.passes} passes and the last one")
    axes.set_xticks(options.workers, labels=[str(w) for w in options.workers], minor=False)
    axes.minorticks_off()
    figure.legend(fontsize="small", loc="outside right upper")
    figure.savefig(path, dpi=120)


def check(parts, n_cores):
    """The step of two workers that share a machine: predicted from one, and measured."""
    (wall, client, worker), _ = measure_fit(2, BATCH)
    return {
        "worker CPU ms predicted": 1e3 * (parts.worker + parts.row * BATCH / 2),
        "worker CPU ms": 1e3 * float(worker),
        "client CPU ms predicted": 1e3 * parts.client(2),
        "client CPU ms": 1e3 * float(client),
        "step ms predicted": 1e3 * parts.on_shared_cores(2, BATCH, n_cores),
        "step ms": 1e3 * float(wall),
        "step ms predicted with cores of their own": 1e3 * parts.step(2, BATCH),
    }


def main():
    arguments = parser(__doc__)
    for part in fields(Parts):
        arguments.add_argument(f"--{part.name}", type=float, default=part.default)
    arguments.add_argument("--rows", type=float, nargs="+", default=[1e8, 1e9, 1e10])
    arguments.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 10.0])
    powers = [2, 4, 8, 16, 32, 64, 128, 256]
    arguments.add_argument("--workers", type=int, nargs="+", default=powers)
    arguments.add_argument("--rows-per-worker", type=int, default=2048, help="of a mini-batch")
    arguments.add_argument("--passes", type=int, default=2)
    arguments.add_argument("--plot", metavar="FILE")
    arguments.add_argument(
        "--measure", action="store_true", help="the parts here, and two workers as a check"
    )
    arguments.add_argument("--cores", type=int, default=2, help="of this machine, for the check")
    options = arguments.parse_args()
    parts = Parts(**{part.name: getattr(options, part.name) for part in fields(Parts)})
    make_report = partial(Report, options.json)
    if options.measure:
        parts = measure_parts()
        make_report().add(**asdict(parts))
        make_report().add(**check(parts, options.cores))
    add_predictions(make_report(), parts, options)
    if options.plot:
        draw(parts, options, options.plot)


if __name__ == "__main__":
    main()
