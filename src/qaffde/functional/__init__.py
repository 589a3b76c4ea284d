"""Pure tensor mathematics in the paper's symbols: tensors in, tensors out, no state."""

from qaffde.functional.density_matrix import (
    add_rank_update,
    born_mass,
    born_rule,
    leading_eigenpairs,
    purity,
    resolve_rank,
    symmetrize_lower,
    von_neumann_entropy,
)
from qaffde.functional.fourier import (
    FREQUENCIES,
    fourier_features,
    gamma_from_bandwidth,
    gaussian_kernel,
    log_kernel_mass,
)
from qaffde.functional.lattice import Lattice, LatticeSeries
from qaffde.functional.measures import (
    box_characteristic,
    box_pair_characteristics,
    gaussian_characteristic,
    gaussian_pair_characteristics,
    gram_matrix,
    log_box_density,
    log_gaussian_density,
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
    "gamma_from_bandwidth",
    "gaussian_characteristic",
    "gaussian_kernel",
    "gaussian_pair_characteristics",
    "gram_matrix",
    "leading_eigenpairs",
    "log_box_density",
    "log_gaussian_density",
    "log_kernel_mass",
    "purity",
    "range_eigenpairs",
    "resolve_rank",
    "symmetrize_lower",
    "von_neumann_entropy",
]
