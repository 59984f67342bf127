"""Problems small enough for the dense twins, and their translation into the twins' arguments.

Every frame differs from the user's: the inputs have an origin and units, y has a mean and a
unit, and the noise kernel a factor, so that a forgotten conversion shows.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.testing import assert_allclose

from skvbgp._core.draws import quasi_normal
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import JITTER
from skvbgp._core.scaling import RunningScale
from skvbgp.kernels import RBF, Constant
from skvbgp.sgpr._bound import Evaluation, Prior, Shared
from skvbgp.sgpr._data import Coordinates, Data, Target
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._memory import Memory, Statistics, remember
from skvbgp.sgpr._noise import Blocks, Diagonal, HyperPrior, Model, White
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._quadrature import ClosedForm
from skvbgp.sgpr._state import State
from tests.derivatives import assert_slopes, numerical_gradient
from tests.oracles import sgpr as oracles

KINDS = ("dtc", "fitc", "pitc")
#: Each kind, with the ways to take its expectations; draws by row are for independent noise.
EXPECTATIONS = [
    case for case in product(KINDS, ["closed", "common", "by row"]) if case != ("pitc", "by row")
]
#: How often each row of `small_problem` counts.
REPETITIONS = np.array([1, 2, 3, 1, 1, 4, 2, 1, 1, 2, 1])

NOISE_VALUE, NOISE_LENGTHS, NOISE_SCALE = 0.5, (1.6, 0.6), 0.7


@dataclass(frozen=True)
class Problem:
    """A member of the family at some parameters, with data in groups."""

    kind: str
    model: Model
    parameters: Parameters
    data: Data
    groups: list

    @property
    def batch(self):
        return [self.data.rows(index) for index in self.groups]

    def at(self, parameters):
        return replace(self, parameters=parameters)

    def evaluation(self, draws=None, **options):
        """All the data at once; ``draws`` holds one array for every group, None the closed form."""
        draws = draws or [None] * len(self.batch)
        return Evaluation(self.model, self.parameters, self.batch, draws, **options)

    def memory(self, data=None):
        """What `remember` keeps of the rows, expectations in closed form."""
        return remember(
            Shared(self.model, self.parameters),
            self.data if data is None else data,
            ClosedForm(),
            n_jobs=None,
        )

    @property
    def scaled(self):
        """X and y of all rows as the model sees them."""
        rows = self.data.rows(slice(None))
        return rows.X, rows.y

    @property
    def theta(self):
        """Arguments nu, xi, alpha, beta of the twins."""
        p = self.parameters
        return p.nu, p.xi, p.alpha, p.beta

    @property
    def kl_theta(self):
        """KL(q(theta) || p(theta)), by the twin."""
        prior = self.model.hyperprior
        return oracles.kl_theta(*self.theta, prior.mean, prior.variance)

    @property
    def Z(self):
        return self.parameters.nu * self.parameters.U

    @property
    def labels(self):
        """Group of each row; every row its own where the noise is independent."""
        n = len(self.data)
        if self.kind != "pitc":
            return np.arange(n)
        labels = np.empty(n, dtype=int)
        for k, index in enumerate(self.groups):
            labels[index] = k
        return labels

    @property
    def U_original(self):
        coordinates = self.model.coordinates
        return self.parameters.U * coordinates.scale + coordinates.offset

    @property
    def noise_kernel(self):
        """k^eps with its factor, written out: (X, Z) in the user's coordinates to (n, m)."""
        if self.kind == "dtc":
            return None
        value, *lengths = np.exp(self.parameters.noise_theta)
        value *= self.model.structure.scale

        def kernel(X, Z):
            return value * oracles.se(X / lengths, Z / lengths)

        return kernel

    @property
    def noise_jitter(self):
        """The jitter of k^eps(U, U) is relative to its mean diagonal, here the amplitude."""
        if self.kind == "dtc":
            return 0.0
        return JITTER * self.model.structure.scale * np.exp(self.parameters.noise_theta[0])

    @property
    def C(self):
        """Dense noise covariance of all rows, by the twin."""
        return oracles.noise_covariance(
            self.data.X,
            self.U_original,
            self.noise_kernel,
            self.parameters.noise_variance,
            self.labels,
            self.noise_jitter,
            0.0 if self.data.variance is None else self.data.variance,
        )

    def moments_of_s(self, q):
        """Mean and covariance of s = L u."""
        L = np.linalg.cholesky(oracles.sigma_zz(self.Z, JITTER))
        return L @ q.mean, L @ np.linalg.inv(q.precision) @ L.T


def state_of(problem):
    """What knows the data, with expectations in closed form."""
    target = problem.data.target
    return State(
        model=problem.model,
        parameters=problem.parameters,
        memory=problem.memory(),
        reference=target,
        target=target,
        summary=RunningScale(len(problem.data), np.array([target.mean]), np.array([target.unit])),
        draw_rule=ClosedForm(),
        seed=0,
        n_seen=len(problem.data),
        places=Places.none(problem.data.X.shape[1]),
    )


def structure_of(kind, kernel, scale=1.0):
    """The structure of the noise of a kind; DTC has no kernel."""
    return {"dtc": White(), "fitc": Diagonal(kernel, scale), "pitc": Blocks(kernel, scale)}[kind]


def small_problem(kind, seed=0):
    """Eleven rows in three interleaved groups, four inducing inputs, d = 2."""
    rng = np.random.default_rng(seed)
    n, m, d = 11, 4, 2
    coordinates = Coordinates(np.array([3.0, -1.0]), np.array([2.0, 0.5]))
    scaled = rng.normal(size=(n, d))
    y = 10.0 + 2.5 * (np.sin(2.0 * scaled[:, 0]) + 0.3 * rng.normal(size=n))
    groups = [np.array([0, 3, 4, 8]), np.array([1, 5, 10]), np.array([2, 6, 7, 9])]
    structure = structure_of(kind, Constant(NOISE_VALUE) * RBF(NOISE_LENGTHS), NOISE_SCALE)
    model = Model(
        coordinates,
        HyperPrior(np.array([0.5, 1.2, 0.8]), np.array([0.3, 2.0, 0.7])),
        structure,
    )
    parameters = Parameters(
        nu=np.array([1.1, 0.6]),
        xi=np.array([0.1, 0.2]),
        alpha=0.9,
        beta=0.15,
        noise_variance=0.2,
        noise_theta=structure.theta,
        U=1.5 * rng.normal(size=(m, d)),
    )
    data = Data(scaled * coordinates.scale + coordinates.offset, y, coordinates, Target(10.2, 2.3))
    if kind == "pitc":
        data = replace(data, blocks=groups)
    return Problem(kind, model, parameters, data, groups)


def row_problem(n, d, m, seed=0, noise_variance=0.1):
    """Rows of a smooth function with white noise, one group, identity frames (DTC)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(X.sum(axis=1)) + np.sqrt(noise_variance) * rng.normal(size=n)
    coordinates = Coordinates(np.zeros(d), np.ones(d))
    model = Model(coordinates, HyperPrior(np.ones(d + 1), np.full(d + 1, 0.1)), White())
    parameters = Parameters(
        nu=np.ones(d),
        xi=np.full(d, 0.01),
        alpha=1.0,
        beta=0.01,
        noise_variance=noise_variance,
        noise_theta=np.empty(0),
        U=X[rng.permutation(n)[:m]] + 0.1,
    )
    data = Data(X, y, coordinates, Target(0.0, 1.0))
    return Problem("dtc", model, parameters, data, [slice(None)])


def random_q(m, seed=1):
    """A generic q(u), far from the prior and from any optimum."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, m))
    return WhitenedGaussian(np.eye(m) + root @ root.T, rng.normal(size=m))


def common_draws(problem, n_draws=5, seed=2):
    """The same draws for every group: one (S, 1, d) array for each."""
    d = len(problem.parameters.nu)
    draws = np.random.default_rng(seed).normal(size=(n_draws, 1, d))
    return [draws] * len(problem.groups)


def row_draws(problem, n_draws=3, seed=3):
    """Draws of their own for every row: one (S, n, d) array for each group."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n_draws, *rows.X.shape)) for rows in problem.batch]


def past_of(problem, seed=7):
    """Memory of other rows under an earlier prior with fewer inducing inputs, and its target."""
    then = small_problem(problem.kind, seed)
    p = then.parameters
    p = replace(p, nu=0.8 * p.nu, alpha=0.7, U=problem.parameters.U[:-1] + 0.1)
    return then.at(p).memory(), np.array([1.3, -0.4])


def pseudo_likelihood(memory: Memory, prior: Prior, q, alpha, second, target):
    """E_q of the past's Gaussian pseudo-likelihood of sigma_f L u, up to a constant."""
    carried = memory.carry_to(prior)
    moment = np.linalg.inv(q.precision) + np.outer(q.mean, q.mean)
    linear = q.mean @ carried.sums.targets_information @ target
    residual = memory.sums.trace - np.trace(memory.sums.information)  # of the rows, given u
    return alpha * linear - 0.5 * second * (np.sum(carried.sums.information * moment) + residual)


def draws_of(problem, expectation):
    """Draws of theta for each group: none, those in common to all rows, or those of each row."""
    if expectation == "closed":
        return [None] * len(problem.groups)
    return common_draws(problem) if expectation == "common" else row_draws(problem)


def check_gradient(problem, expectation):
    """The bound's gradient in all parameters is that of its values."""
    q, start, draws = random_q(4), problem.parameters, draws_of(problem, expectation)

    def value(x):
        return problem.at(start.unpack(x)).evaluation(draws).gradient(q)[0]

    gradient = start.pack_gradient(problem.evaluation(draws).gradient(q)[1])
    assert_slopes(value, start.pack(), gradient, atol=1e-7 * np.abs(gradient).max())


def check_exact_gradient(mixture):
    """The gradient of the bound in all that is learned is that of its values."""
    p = mixture.parameters
    learned = p.all_but("U")
    analytic = p.pack_gradient(mixture.gradient())[learned]
    numerical = numerical_gradient(lambda x: mixture.at(p.unpack(x)).lower_bound, p.pack())
    assert_allclose(analytic, numerical[learned], rtol=1e-6, atol=1e-6)


def mixture_of(problem):
    """The exact posterior of all rows, over a few draws of theta."""
    rows, groups = problem.data.rows(slice(None)), tuple(problem.groups)
    draws = quasi_normal(6, 3, seed=1)
    return Mixture(problem.model, problem.parameters, rows, draws, groups)


def check_repetitions(weighted, plain, expectation):
    """The bound of rows that count as REPETITIONS say is that of the plain rows repeated."""
    q, draws = random_q(4), draws_of(weighted, expectation)
    evaluation = weighted.evaluation(draws)
    value, gradient = evaluation.gradient(q)
    groups = [np.repeat(group, REPETITIONS[group]) for group in weighted.groups]
    if expectation == "by row":
        draws = [
            np.repeat(e, REPETITIONS[group], axis=1)
            for e, group in zip(draws, weighted.groups, strict=True)
        ]
    repeated = replace(plain, groups=groups).evaluation(draws)
    expected, expected_gradient = repeated.gradient(q)
    assert_allclose(value, expected, rtol=1e-11)
    pack = weighted.parameters.pack_gradient
    assert_allclose(pack(gradient), pack(expected_gradient), rtol=1e-9, atol=1e-10)
    assert_allclose(evaluation.ceiling, repeated.ceiling)


def check_memory_of_repetitions(weighted, plain):
    """The same of what is remembered of the rows."""
    data, index = plain.data, np.repeat(np.arange(11), REPETITIONS)
    if data.blocks is not None:
        blocks = [np.flatnonzero(np.isin(index, block)) for block in data.blocks]
        data = replace(data, blocks=blocks)
    variance = None if data.variance is None else data.variance[index]
    repeated = replace(data, X=data.X[index], y=data.y[index], variance=variance)
    found, expected = weighted.memory().sums, plain.memory(repeated).sums
    for name in Statistics._fields[1:]:
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-11, err_msg=name)
    assert_allclose(found.information, expected.information, rtol=1e-11, atol=1e-12)
    assert found.n == REPETITIONS.sum()
