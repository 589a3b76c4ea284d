"""Pure tensor mathematics in the paper's symbols: tensors in, tensors out, no state."""

from qaffde.functional.density_matrix import (
    add_rank_update,
    born_mass,
    born_rule,
    leading_eigenpairs,
    resolve_rank,
    symmetrize_lower,
)
from qaffde.functional.fourier import FREQUENCIES, fourier_features
from qaffde.functional.gram import gram_matrix, range_eigenpairs
from qaffde.functional.kernels import gamma_from_bandwidth, gaussian_kernel, log_kernel_mass
from qaffde.functional.lattice import Lattice, LatticeSeries
from qaffde.functional.measures import (
    box_characteristic,
    box_pair_characteristics,
    gaussian_characteristic,
    gaussian_pair_characteristics,
    log_box_density,
    log_gaussian_density,
)
from qaffde.functional.spectrum import purity, von_neumann_entropy

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
