"""Density matrices of low rank as a layer."""

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF


class DensityMatrix(nn.Module):
    r"""Density matrix ρ = LᵀL of rank r: positive semidefinite, whatever L is (paper, Eq. 4).

    The Born rule gives the probability of a feature vector,

    .. math:: p(\phi) = \frac{\phi^\top \rho\, \phi}{\operatorname{tr} \rho}
              = \frac{\lVert L \phi \rVert^2}{\lVert L \rVert_F^2}

    which is a density where the features are orthonormal. Both the factor and the features may
    come from any network.

    Parameters
    ----------
    factor : Tensor of shape (r, D)
        L, a parameter.

    Examples
    --------
    >>> state = DensityMatrix(torch.tensor([[2.0, 0.0]]))
    >>> state(torch.tensor([[1.0, 1.0], [0.5, 0.0]])).exp().detach()
    tensor([1.0000, 0.2500])
    """

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor.clone())

    @classmethod
    def draw(
        cls, n_features: int, rank: int, generator: Generator | None = None
    ) -> "DensityMatrix":
        """Draw a random state of trace one."""
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        factor = torch.randn(rank, n_features, generator=generator)
        return cls(factor / torch.linalg.norm(factor))

    @property
    def rank(self) -> int:
        """The number of rows r of the factor."""
        return len(self.factor)

    def forward(self, phi: Tensor) -> Tensor:
        """Logarithm of the Born rule, of shape (...), at features of shape (..., D)."""
        return self.log_expectation(phi) - self.log_trace()

    def log_expectation(self, phi: Tensor) -> Tensor:
        """Log φᵀρφ of shape (...), not divided by the trace."""
        return self.expectation(phi).log()

    def expectation(self, phi: Tensor) -> Tensor:
        """Born rule φᵀρφ = ‖Lφ‖² of shape (...), not divided by the trace."""
        return QF.born_rule(phi, self.factor)

    def log_trace(self) -> Tensor:
        """Logarithm of the trace of ρ."""
        return self.factor.square().sum().log()

    @torch.no_grad()
    def spectrum(self, G: Tensor | None = None) -> Tensor:
        """Eigenvalues of LGLᵀ of shape (r,), falling, of sum one; G is the identity by default."""
        L = self.factor.double()
        state = L @ L.T if G is None else L @ G.double() @ L.T
        lam = torch.linalg.eigvalsh((state + state.T) / 2).flip(0).clamp(min=0)
        return lam / lam.sum()

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"rank={self.rank}, n_features={self.factor.shape[1]}"
