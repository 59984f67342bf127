"""Where the models are an exact Gaussian process, or each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from skvbgp import VBDTCRegressor, VBPICRegressor
from tests.oracles.sgpr import kl_theta
from tests.sgpr.cases import BLOCKED, GIVEN, WITH_NOISE_KERNEL, every, make_data, small

pytestmark = pytest.mark.usefixtures("quick_block_start")


@every
def test_every_row_an_inducing_input_is_the_exact_gp(cls):
    X, y = make_data(40)
    y = y - 10.0
    length_scale, signal_std, noise_variance, variance = [0.6, 1.0], 2.1, 0.2, 1e-12
    kernel = sk.ConstantKernel(signal_std**2) * sk.RBF(length_scale)
    kernel += sk.WhiteKernel(noise_variance)
    exact = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    model = small(
        cls,
        inducing_inputs=X,
        length_scale=length_scale,
        signal_std=signal_std,
        noise_variance=noise_variance,
        hyperparameter_variance=variance,
        learn_hyperparameters=False,
        normalize_y=False,
    ).fit(X, y)
    mean, std = exact.predict(X, return_std=True)  # the noise kernel has no residual at Z = X
    mine, my_std = model.predict(X, return_std=True)
    assert_allclose(mine, mean, atol=2e-6)
    assert_allclose(my_std, std, rtol=2e-6)
    X_new, _ = make_data(25, seed=1)
    mean, cov = exact.predict(X_new, return_cov=True)
    cov -= noise_variance * np.eye(len(cov))
    mine, my_std = model.predict(X_new, return_std=True, include_noise=False)
    assert_allclose(mine, mean, atol=2e-6)
    assert_allclose(my_std, np.sqrt(np.diagonal(cov)), rtol=2e-6)
    if cls is not VBPICRegressor:  # there rows of different blocks share the inducing inputs only
        _, my_cov = model.predict(X_new, return_cov=True, include_noise=False)
        assert_allclose(my_cov, cov, atol=1e-5)
    # the bound is short of the evidence by the divergence of q(theta) from its prior, which
    # is standard normal in the coordinates of the inducing inputs
    scale = X.std(axis=0)
    unit = y.std()  # of the prior of the signal's standard deviation
    kl = kl_theta(
        scale / length_scale, variance * scale**2, signal_std / unit, variance / unit**2, 0.0, 4.0
    )
    evidence = exact.log_marginal_likelihood_value_
    assert_allclose(model.lower_bound_ + kl, evidence, atol=2e-5)


@every
@pytest.mark.parametrize("length_scale", [1e-2, 1e-4])
def test_bound_stays_below_the_evidence_at_extreme_parameters(cls, length_scale):
    """Where the signal outweighs the noise so much that rounding decides the trace term.

    The evidence at these (nearly certain) hyperparameters bounds it from above.
    """
    X, y = make_data()
    for signal_std, noise_variance in [(2.0, 0.2), (1e3, 1e-4), (1e6, 1e-7)]:
        model = small(
            cls,
            n_inducing=100,
            length_scale=length_scale,
            signal_std=signal_std,
            noise_variance=noise_variance,
            hyperparameter_variance=1e-12,
            learn_hyperparameters=False,
            normalize_y=False,
        )
        if signal_std == 1e6:  # beyond what the arithmetic can carry
            with pytest.raises(ValueError, match="noise is too small for the signal"):
                model.fit(X, y - 10.0)
            continue
        model.fit(X, y - 10.0)
        kernel = sk.ConstantKernel(signal_std**2) * sk.RBF(length_scale)
        kernel += sk.WhiteKernel(noise_variance)
        exact = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y - 10.0)
        assert model.lower_bound_ <= exact.log_marginal_likelihood_value_


@pytest.mark.parametrize("cls", BLOCKED)
def test_blocks_of_one_row_are_fitc(cls):
    X, y = make_data(30)
    same = {"inducing_inputs": X[::3], "learn_hyperparameters": False, "psi": "closed_form"}
    fitc = small(WITH_NOISE_KERNEL[0], **same)
    model = small(cls, n_blocks=30, **same)
    assert_allclose(model.fit(X, y).lower_bound_, fitc.fit(X, y).lower_bound_, rtol=1e-10)
    if cls is not VBPICRegressor:
        assert_allclose(model.predict(X), fitc.predict(X), rtol=1e-10)


def test_more_inducing_inputs_raise_the_bound():
    X, y = make_data()
    parameters = {**GIVEN, "learn_hyperparameters": False, "normalize_y": False}
    bounds = []
    for m in (2, 10, 40):
        model = small(VBDTCRegressor, inducing_inputs=X[:m], **parameters).fit(X, y)
        scale = X[:m].std(axis=0)  # unit of the coordinates in which the prior is standard normal
        nu, xi = scale / GIVEN["length_scale"], 0.02 * scale**2
        bounds.append(model.lower_bound_ + kl_theta(nu, xi, 1.7, 0.02, 0.0, 4.0))
    assert bounds[0] < bounds[1] < bounds[2]
