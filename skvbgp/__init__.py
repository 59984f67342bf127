"""Variational Bayesian sparse Gaussian processes with the scikit-learn interface.

What is named here is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
    from skvbgp.ep import EPDTCClassifier, HybridGPLVM
    from skvbgp.gp import VBGPClassifier, VBGPRegressor
    from skvbgp.kernel_selection import VBKSRegressor, kernel_grammar
    from skvbgp.sgpr import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
    from skvbgp.spectrum import SVBSSGPRegressor

__version__ = "0.3.0.dev0"

__all__ = [
    "DecoupledGPClassifier",
    "DecoupledGPRegressor",
    "EPDTCClassifier",
    "HybridGPLVM",
    "SVBSSGPRegressor",
    "VBDTCRegressor",
    "VBFITCRegressor",
    "VBGPClassifier",
    "VBGPRegressor",
    "VBKSRegressor",
    "VBPICRegressor",
    "VBPITCRegressor",
    "__version__",
    "kernel_grammar",
]

_HOMES = {
    "callbacks": (),
    "decoupled": ("DecoupledGPClassifier", "DecoupledGPRegressor"),
    "ep": ("EPDTCClassifier", "HybridGPLVM"),
    "gp": ("VBGPClassifier", "VBGPRegressor"),
    "inspection": (),
    "kernel_selection": ("VBKSRegressor", "kernel_grammar"),
    "kernels": (),
    "metrics": (),
    "sgpr": ("VBDTCRegressor", "VBFITCRegressor", "VBPICRegressor", "VBPITCRegressor"),
    "spectrum": ("SVBSSGPRegressor",),
}


def __getattr__(name: str) -> Any:
    for package, names in _HOMES.items():
        if name == package or name in names:
            home = import_module(f"skvbgp.{package}")
            return home if name == package else getattr(home, name)
    raise AttributeError(f"module 'skvbgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES})
