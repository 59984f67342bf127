import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skvbgp import VBKSRegressor
from skvbgp.inspection import KernelPosteriorDisplay
from tests.kernel_selection.cases import make_series, small


def test_bars_of_a_fitted_estimator():
    model = small().fit(*make_series())
    display = KernelPosteriorDisplay.from_estimator(model, color="tab:green")
    widths = [bar.get_width() for bar in display.bars_]
    assert widths == sorted(model.kernel_posterior_, reverse=True)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[0] == model.best_kernel_[0]
    assert display.figure_ is display.ax_.figure


def test_only_the_best_kernels_on_given_axes():
    model = small().fit(*make_series())
    _, ax = plt.subplots()
    display = KernelPosteriorDisplay.from_estimator(model, max_kernels=1, ax=ax)
    assert display.ax_ is ax
    assert len(display.bars_) == 1


def test_from_names_and_probabilities():
    display = KernelPosteriorDisplay(["a", "b"], np.array([0.7, 0.3])).plot()
    assert [bar.get_width() for bar in display.bars_] == [0.7, 0.3]


def test_an_estimator_that_is_not_fitted():
    with pytest.raises(NotFittedError):
        KernelPosteriorDisplay.from_estimator(VBKSRegressor())
