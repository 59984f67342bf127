"""Gradients through the covariance of inducing outputs, in a kernel and in inducing inputs."""

from dataclasses import dataclass

from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array, cholesky_vjp
from skvbgp.kernels._base import Kernel


@dataclass(eq=False)
class InducingPrior(InducingOutputs):
    """Those of a kernel, with gradients."""

    kernel: Kernel

    def vjp(self, LtdL: Array, dK: Array | float = 0.0) -> tuple[Array, Array]:
        """Gradients in theta (p,) and Z (m, d) from ``L.T @ dL`` and, if any, from that of K."""
        dtheta, dZ, _ = self.kernel.vjp(self.Z, None, self.K, cholesky_vjp(LtdL, self.L_inv) + dK)
        return dtheta, dZ
