"""A stream through partial_fit: time and memory of chunks, first and last; accuracy at the end.

Rows are made chunk by chunk and never held together. Beside the stream: a fit, by the same
settings, on its last rows (with a window: on those). Each estimator has a process of its own.

VBDTC, VBFITC, VBKS, DecoupledGP (once its 50,000 rows are there) and the others with a window keep
as much after any number of chunks. Without one (`--parameters forgetting=1.0`) memory grows by
design: VBGP, EPDTC, HybridGPLVM, VBPIC and SVBSSGP keep all rows, from which they predict, and
VBPITC the centres of its blocks. The classes of a classifier are the signs of y, RMSE that of the
probability.
"""

import gc
import multiprocessing
import resource
import time

import numpy as np
from common import Report, literals, memory_now, parser, scores, smooth_data
from sklearn.base import is_classifier
from sklearn.metrics import log_loss

import skvbgp
from skvbgp.kernels import RBF, Matern

D = 4
N_TEST = 2_000
#: Settings besides the defaults: small models, as it is the number of rows that is looked at.
SETTINGS = {
    "VBDTC": ("VBDTCRegressor", {"n_inducing": 50}),
    "VBFITC": ("VBFITCRegressor", {"n_inducing": 50}),
    "VBPITC": ("VBPITCRegressor", {"n_inducing": 50, "forgetting": 5_000}),
    "VBPIC": ("VBPICRegressor", {"n_inducing": 50, "forgetting": 5_000}),
    "DecoupledGP": ("DecoupledGPRegressor", {"n_mean_basis": 200, "n_cov_basis": 50}),
    "DecoupledGPClassifier": ("DecoupledGPClassifier", {"n_mean_basis": 200, "n_cov_basis": 50}),
    "SVBSSGP": ("SVBSSGPRegressor", {"n_frequencies": 20, "forgetting": 20_000}),
    "VBKS": ("VBKSRegressor", {"kernels": [RBF(), Matern(nu=2.5)], "n_inducing": 50}),
    "VBGP": ("VBGPRegressor", {"forgetting": 5_000}),
    "VBGPClassifier": ("VBGPClassifier", {"forgetting": 100_000}),
    "EPDTC": ("EPDTCClassifier", {"n_inducing": 50, "forgetting": 20_000}),
    "HybridGPLVM": ("HybridGPLVM", {"forgetting": 10_000}),
}


def make_model(name, parameters):
    cls, settings = SETTINGS[name]
    return getattr(skvbgp, cls)(random_state=0, **settings | parameters)


def make_rows(model, size, rng):
    """Rows for a model: classes are the signs of y."""
    X, y = smooth_data(size, D, rng)
    return X, y > 0.0 if is_classifier(model) else y


def make_chunk(model, number, size):
    """The rows of a chunk, the same whenever they are asked for."""
    return make_rows(model, size, np.random.default_rng([1, number]))


def memory_peak():
    """The most MB of this process that were in memory until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def stream(model, n_chunks, size):
    """CPU seconds, memory afterwards and peak until then (MB) of each call, (n_chunks, 3)."""
    figures, options = np.empty((n_chunks, 3)), {}
    if is_classifier(model):
        options["classes"] = [False, True]
    for number in range(n_chunks):
        X, y = make_chunk(model, number, size)
        start = time.process_time()
        model.partial_fit(X, y, **options)
        seconds = time.process_time() - start
        gc.collect()
        figures[number] = seconds, memory_now(), memory_peak()
    return figures


def fit_to_the_last(model, n_chunks, size, n_rows):
    """A fit to the rows that the stream ended with."""
    first = max(0, n_chunks - -(-n_rows // size))
    chunks = [make_chunk(model, number, size) for number in range(first, n_chunks)]
    return model.fit(*(np.concatenate(parts)[-n_rows:] for parts in zip(*chunks, strict=True)))


def score(model):
    """RMSE and NLPD of rows that are not in the stream."""
    X, y = make_rows(model, N_TEST, np.random.default_rng(0))
    if is_classifier(model):
        probability = model.predict_proba(X)
        rmse = float(np.sqrt(np.mean((y - probability[:, 1]) ** 2)))
        return {"RMSE": rmse, "NLPD": log_loss(y, probability)}
    return scores(y, *model.predict(X, return_std=True))


def measure(name, parameters, n_chunks, size, n_last):
    """A row of the table. Tenths leave out the first chunk, which is a fit."""
    model = make_model(name, parameters)
    figures = stream(model, n_chunks, size)
    tenth = max(1, (n_chunks - 1) // 10)
    early, late = figures[1 : 1 + tenth], figures[-tenth:]
    (early_s, early_mb, _), (late_s, late_mb, _) = np.median(early, 0), np.median(late, 0)
    streamed = score(model)
    n_last = min(n_last, n_chunks * size)
    if getattr(model, "forgetting", 1.0) > 1.0:  # rows of a window; 1 forgets nothing
        n_last = min(n_last, int(model.forgetting))
    beside = score(fit_to_the_last(make_model(name, parameters), n_chunks, size, n_last))
    return {
        "first tenth s": float(early_s),
        "last tenth s": float(late_s),
        "time ratio": float(late_s / early_s),
        "first tenth MB": float(early_mb),
        "last tenth MB": float(late_mb),
        "growth of peak MB": float(late[-1, 2] - early[-1, 2]),
        "RMSE": streamed["RMSE"],
        "RMSE of fit": beside["RMSE"],
        "NLPD": streamed["NLPD"],
        "NLPD of fit": beside["NLPD"],
        "CPU s": float(figures[:, 0].sum()),
    }


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--chunk", type=int, default=10_000, help="rows of a call")
    arguments.add_argument("--last", type=int, default=1_000_000, help="rows of the fit beside")
    arguments.add_argument("--estimators", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    arguments.add_argument("--parameters", nargs="+", default=[], metavar="NAME=VALUE")
    options = arguments.parse_args()
    parameters = literals(options.parameters)
    n_chunks = options.rows // options.chunk
    if n_chunks < 3:
        arguments.error("a stream has at least three chunks")
    report = Report(options.json)
    context = multiprocessing.get_context("spawn")
    for name in options.estimators:
        with context.Pool(1) as pool:
            row = pool.apply(measure, (name, parameters, n_chunks, options.chunk, options.last))
        report.add(estimator=name, rows=n_chunks * options.chunk, chunk=options.chunk, **row)


if __name__ == "__main__":
    main()
