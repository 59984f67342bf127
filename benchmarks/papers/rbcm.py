"""Robust Bayesian committee machine (Deisenroth and Ng, 2015), which paper 000 compares with.

Experts are exact Gaussian processes on parts of the rows, with hyperparameters in common. These
maximise the sum of the evidence of some experts.
"""

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel


class RobustCommittee:
    """Committee for y of any scale, and inputs that are scaled to unit spread."""

    def __init__(self, expert_rows=256, n_trained=4, max_iter=30, random_state=0):
        self.expert_rows, self.n_trained = expert_rows, n_trained
        self.max_iter, self.random_state = max_iter, random_state

    def fit(self, X, y):
        self.offset_, scale = X.mean(axis=0), X.std(axis=0)
        self.scale_ = np.where(scale > 0.0, scale, 1.0)
        self.y_mean_, self.y_std_ = y.mean(), y.std()
        X, y = (X - self.offset_) / self.scale_, (y - self.y_mean_) / self.y_std_
        order = np.random.default_rng(self.random_state).permutation(len(y))
        parts = np.array_split(order, max(1, round(len(y) / self.expert_rows)))
        kernel = ConstantKernel() * RBF(np.full(X.shape[1], 2.0)) + WhiteKernel(0.1)
        trained = [_expert(kernel, X[part], y[part]) for part in parts[: self.n_trained]]

        def loss(theta):
            terms = [expert.log_marginal_likelihood(theta, True) for expert in trained]
            return -sum(value for value, _ in terms), -sum(gradient for _, gradient in terms)

        found = minimize(
            loss, kernel.theta, jac=True, method="L-BFGS-B", bounds=kernel.bounds,
            options={"maxiter": self.max_iter},
        )  # fmt: skip
        self.kernel_ = kernel.clone_with_theta(found.x)
        self.experts_ = [_expert(self.kernel_, X[part], y[part]) for part in parts]
        return self

    def predict(self, X):
        """Mean and standard deviation of y, noise included."""
        X = (X - self.offset_) / self.scale_
        prior = self.kernel_.k1.k1.constant_value
        noise = self.kernel_.k2.noise_level
        precision, shift = np.full(len(X), 1.0 / prior), np.zeros(len(X))
        for expert in self.experts_:
            mean, std = expert.predict(X, return_std=True)
            variance = np.maximum(std**2 - noise, 1e-10 * prior)
            trust = 0.5 * np.log(prior / variance)  # what the expert has learned, in nats
            precision += trust * (1.0 / variance - 1.0 / prior)
            shift += trust * mean / variance
        std = np.sqrt(1.0 / precision + noise)
        return self.y_mean_ + self.y_std_ * shift / precision, self.y_std_ * std


def _expert(kernel, X, y):
    return GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
