"""Paper 001, Fig. 2: sVBSSGP by gamma, against other models, and its training time.

(a) RMSE against gamma on aimpeak; (b) RMSE against passes of sVBSSGP, PIC+, DTC+ and VSSGP on
aimpeak and (c) on flights, two inputs in the place of AIRLINE's eight; (d) training time against
passes on flights. PIC+ and DTC+ are VBPIC and VBDTC, which keep a posterior of the hyperparameters
that the paper's do not have; the peers' SVGP is the paper's DTC+ with point estimates. 20
frequencies, 200 blocks (flights: about 60 rows a block) and 250 inducing inputs.
"""

import matplotlib.pyplot as plt
from common import load_split
from figures import Options, Result, draw_curves, fits, pivoted, rmse
from peers import learning_curve

from skvbgp import SVBSSGPRegressor, VBDTCRegressor, VBPICRegressor

N_FREQUENCIES, N_INDUCING, BATCH_SIZE = 20, 250, 1024
GAMMAS = [0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
N_BLOCKS = {"aimpeak": 200, "flights": "auto"}
#: A quick run trains on every so many rows.
QUICK_STRIDE = {"aimpeak": 1, "flights": 5}


def run(options: Options) -> Result:
    passes = [1, 2] if options.quick else [1, 2, 4, 8]
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    tables, by_gamma = {}, []
    for name, axis in zip(N_BLOCKS, axes.flat[1:], strict=False):
        X, y, X_test, y_test = load_split(options.data, name, 0)
        stride = QUICK_STRIDE[name] if options.quick else 1
        X, y = X[::stride], y[::stride]
        rows = []
        for label, regressor in models(N_BLOCKS[name], options.seed).items():
            for n_passes, seconds, model in fits(regressor, X, y, passes):
                error = rmse(y_test, model.predict(X_test))
                rows.append({"model": label, "passes": n_passes, "RMSE": error, "seconds": seconds})
            if name == "aimpeak" and label == "sVBSSGP":
                by_gamma = [
                    {"gamma": g, "RMSE": rmse(y_test, model.set_params(gamma=g).predict(X_test))}
                    for g in GAMMAS
                ]
        for peer, python in options.peers.items():
            rows += learning_curve(
                peer, python, options, dataset=name, passes=passes,
                n_inducing=N_INDUCING, batch_size=BATCH_SIZE, n_rows=len(y), stride=stride,
            )  # fmt: skip
        draw_curves(axis, rows, "model")
        axis.set_title(f"RMSE, {name}")
        tables[f"RMSE by passes, {name}"] = pivoted(rows, "passes", "model", "RMSE")
        tables[f"Seconds of training by passes, {name}"] = pivoted(
            rows, "passes", "model", "seconds"
        )
    axes[0, 0].plot(GAMMAS, [row["RMSE"] for row in by_gamma], marker=".")
    axes[0, 0].set(xlabel="gamma", ylabel="RMSE", title="sVBSSGP by gamma, aimpeak")
    draw_curves(axes[1, 1], rows, "model", value="seconds")
    axes[1, 1].set_title("training time, flights")
    return Result(figure, {"RMSE by gamma, aimpeak": by_gamma} | tables)


def models(n_blocks, seed):
    """The paper's models, by the names of its figure."""
    spectrum = SVBSSGPRegressor(
        N_FREQUENCIES, n_blocks=n_blocks, n_neighbors=None, random_state=seed
    )
    return {
        "sVBSSGP": spectrum,
        "VSSGP": SVBSSGPRegressor(
            N_FREQUENCIES, gamma=1.0, posterior="factorised", objective="bound",
            n_blocks=n_blocks, random_state=seed,
        ),
        "PIC+": VBPICRegressor(
            N_INDUCING, noise_kernel=None, solver="stochastic", random_state=seed,
        ),
        "DTC+": VBDTCRegressor(N_INDUCING, solver="stochastic", random_state=seed),
    }  # fmt: skip
