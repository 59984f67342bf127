"""Where training of kernels of classes starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, count_inputs
from skvbgp.gp._process import start_process
from skvbgp.gp.classes._probit_process import AlikeProcess, ProbitProcess
from skvbgp.gp.classes._process import LABEL_NOISE, ClassModel, ClassProcess
from skvbgp.gp.classes._versus_rest import AlikeVersusRest, VersusRest
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import bind_columns
from skvbgp.kernels._candidates import make_anova_kernel, make_leaves

#: Noise that a probit likelihood starts with.
_PROBIT_NOISE = float(np.exp(LABEL_NOISE[0]))


def make_class_kernels(n_inputs: int) -> list[tuple[str, Kernel]]:
    """Names and kernels of the first round, with one length scale for all inputs."""
    return make_leaves(n_inputs, isotropic=True)


def start_class_process(kernel: Kernel, d: int, owners: Owners = ()) -> ClassProcess:
    """A process of this kernel before training, of d columns; these are of `Process.owners`."""
    process = start_process(kernel, gaussian=True, owners=owners)
    return ClassProcess(replace(process, noise_prior=LABEL_NOISE), d)


def start_alike_process(
    d: int, owners: Owners, n_classes: int, log_scales: Array | None = None
) -> AlikeProcess | AlikeVersusRest:
    """A squared exponential with a probit likelihood before training, as `EPDTCClassifier` has.

    Its length scales start at the medians of their prior, which may be others' than its.
    """
    n_inputs = count_inputs(d, owners)
    (kernel,) = (one for name, one in make_leaves(n_inputs, isotropic=False) if name == "SE")
    started = start_class_process(bind_columns(kernel, d, owners), d, owners).process
    process = replace(started, noise=_PROBIT_NOISE)
    make = AlikeProcess if n_classes == 2 else AlikeVersusRest
    if log_scales is None:
        return make(process, d, float(np.sqrt(n_inputs)))
    level = float(np.mean(log_scales))
    model = make(process, d, float(np.exp(level)), log_ratios=log_scales - level)
    return model.with_vector(np.append(log_scales, model.vector[n_inputs:]))


def start_anova_process(d: int, owners: Owners, n_classes: int) -> ProbitProcess | VersusRest:
    """An ANOVA kernel with a probit likelihood before training."""
    kernel = bind_columns(make_anova_kernel(), d, owners)
    return give_probit(start_class_process(kernel, d, owners), n_classes)


def give_probit(model: ClassModel, n_classes: int) -> ProbitProcess | VersusRest:
    """The same model with a probit likelihood, before training."""
    process = replace(model.process, noise=_PROBIT_NOISE)
    make = ProbitProcess if n_classes == 2 else VersusRest
    return make(process, model.d, model.shared_scale, model.warp)


def free_length_scales(process: ClassModel) -> ClassModel:
    """The same process, with one length scale for each input."""
    kernel = process.kernel
    freed = replace(process.process, kernel=replace(kernel, isotropic=False).bind(process.d))
    return replace(process, process=freed, shared_scale=kernel.length_scale)
