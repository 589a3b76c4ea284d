"""Pure tensor mathematics in the paper's symbols: tensors in, tensors out, no state."""

from qaffde.functional.density_matrix import (
    add_rank_update,
    born_mass,
    born_rule,
    leading_eigenpairs,
    resolve_rank,
    symmetrize_lower,
)
from qaffde.functional.fourier import (
    FREQUENCIES,
    Lattice,
    LatticeSeries,
    fourier_features,
    fourier_waves,
    gamma_from_bandwidth,
    gaussian_kernel,
    log_kernel_mass,
)
from qaffde.functional.measures import (
    box_characteristic,
    box_pair_characteristics,
    gaussian_characteristic,
    gaussian_coefficients,
    gaussian_pair_characteristics,
    log_box_density,
    log_gaussian_density,
    monomials,
    range_eigenpairs,
)

__all__ = [
    "FREQUENCIES",
    "Lattice",
    "LatticeSeries",
    "add_rank_update",
    "born_mass",
    "born_rule",
    "box_characteristic",
    "box_pair_characteristics",
    "fourier_features",
    "fourier_waves",
    "gamma_from_bandwidth",
    "gaussian_characteristic",
    "gaussian_coefficients",
    "gaussian_kernel",
    "gaussian_pair_characteristics",
    "leading_eigenpairs",
    "log_box_density",
    "log_gaussian_density",
    "log_kernel_mass",
    "monomials",
    "range_eigenpairs",
    "resolve_rank",
    "symmetrize_lower",
]
