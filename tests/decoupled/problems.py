"""Small problems at arbitrary parameters, for the tests of the mathematics."""

from dataclasses import replace

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.scaling import Coordinates
from skvbgp.decoupled._basis import GeneralizedSE, PlainKernel
from skvbgp.decoupled._bound import Evaluation, Model
from skvbgp.decoupled._inputwise import InputwiseSE
from skvbgp.decoupled._likelihoods import Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._variational_process import Rows
from skvbgp.kernels import RBF, Constant, Matern

PARAMETRIZATIONS = ["orthogonal", "hybrid", "decoupled"]
LIKELIHOODS = [Gaussian(), StudentT(), Poisson(0.3), Probit()]
N, D, M_ALPHA, M_BETA = 9, 2, 6, 4


def kernels(rng):
    """A kernel of each kind."""
    frame = Coordinates(rng.standard_normal(D), rng.uniform(0.5, 2.0, D))
    plain = Constant(1.3) * Matern(0.8, nu=2.5) + Constant(0.4) * RBF(1.7)
    return {
        "generalized": GeneralizedSE(0.2, rng.uniform(-0.3, 0.4, D)),
        "inputwise": InputwiseSE(0.2, rng.uniform(-0.3, 0.4, D)),
        "plain": PlainKernel(plain.bind(D), frame),
    }


def make_problem(
    parametrization="orthogonal", kind="generalized", likelihood=None, seed=0, n_functions=1
):
    """Model, parameters, q, X and y."""
    rng = np.random.default_rng(seed)
    kernel = kernels(rng)[kind]
    likelihood = likelihood or Gaussian()
    generalized = kind != "plain"
    per_point = (D,) if kind == "inputwise" else ()
    parameters = Parameters(
        theta=kernel.theta,
        noise=np.array(likelihood.start, dtype=float) + 0.1,
        alpha=rng.standard_normal((M_ALPHA, D)),
        alpha_log_c=rng.uniform(-0.5, 0.5, (M_ALPHA if generalized else 0, *per_point)),
        a0=0.5 * rng.standard_normal((M_ALPHA, n_functions)),
        beta=rng.standard_normal((M_BETA, D)),
        beta_log_c=rng.uniform(-0.5, 0.5, (M_BETA if generalized else 0, *per_point)),
        L0=np.zeros((n_functions, 0, 0)),
    )
    q = None
    if parametrization == "decoupled":
        L0 = np.tril(rng.standard_normal((n_functions, M_BETA, M_BETA)))
        parameters = Parameters(**{**vars(parameters), "L0": L0})
    else:
        roots = rng.standard_normal((n_functions, M_BETA, M_BETA))
        q = tuple(
            WhitenedGaussian(root @ root.T + np.eye(M_BETA), rng.standard_normal(M_BETA))
            for root in roots
        )
    X = rng.standard_normal((N, D))
    y = rng.standard_normal((N, n_functions))
    if isinstance(likelihood, Poisson):
        y = rng.poisson(2.0, y.shape).astype(float)
    elif isinstance(likelihood, Probit):
        y = np.where(y > 0.0, 1.0, -1.0)
    return Model(kernel, likelihood, parametrization, generalized, np.inf), parameters, q, X, y


def as_rows(X, y, counts=None, known=None):
    """Rows that count once if nothing else is said."""
    return Rows(X, y, np.ones(len(X)) if counts is None else counts, known)


def is_there(parameters):
    """Which numbers of the flat vector a model has: L0 has no upper triangles."""
    ones = parameters.unpack(np.ones_like(parameters.pack()))
    ones.L0[:] = np.tril(ones.L0)
    return ones.pack() > 0.0


def make_past(parametrization="orthogonal", kind="generalized", likelihood=None, n_functions=1):
    """What another process in the bases of the problem says."""
    other = make_problem(parametrization, kind, likelihood, seed=1, n_functions=n_functions)
    model, p, q, _, _ = make_problem(parametrization, kind, likelihood, n_functions=n_functions)
    p = replace(p, a0=other[1].a0, L0=other[1].L0, noise=p.noise - 0.3)
    return Evaluation(model, p, other[2]).as_past(5)
