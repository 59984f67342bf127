"""What the displays share: axes, and the model inside a search or a pipeline."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvbgp.metrics._response import find_last_step

#: Lines to compare with, such as "perfectly calibrated".
REFERENCE_STYLE = {"color": "0.5", "linestyle": ":", "linewidth": 1.0}


def axes_or_new(ax: Any) -> Any:
    """The axes to draw on; None makes a figure. Matplotlib is imported here alone."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'Displays need matplotlib; it comes with `pip install "skvbgp[plot]"`.'
        ) from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def find_fitted_model(estimator: Any, *attributes: str) -> Any:
    """The last step of a fitted pipeline or search, or the estimator itself.

    Raises TypeError if it is fitted but has none of the attributes.
    """
    model = find_last_step(estimator)
    check_is_fitted(model)
    # a property of the class may take seconds to read
    if not any(hasattr(type(model), name) or hasattr(model, name) for name in attributes):
        raise TypeError(f"{type(model).__name__} has no {' or '.join(attributes)} to draw.")
    return model


def refuse_outputs(model: Any, name: str) -> None:
    """Raise ValueError if an attribute, a vector of one output, is that of several."""
    if np.ndim(getattr(model, name)[0]):
        raise ValueError(
            f"{type(model).__name__} has {model.n_outputs_} outputs, but this is about one: give "
            f"the class what is in {name}[j]."
        )


def display_name(estimator: Any, name: str | None) -> str:
    """The caller's name, or that of the model's class."""
    return type(find_last_step(estimator)).__name__ if name is None else name


def with_defaults(defaults: dict[str, Any], kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Style of a line or a marker; a caller's short names, such as ``lw``, are understood."""
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D

    return {**defaults, **normalize_kwargs(kwargs or {}, Line2D)}
