"""Checks of the parameters of a maximum-likelihood fit."""

from qaffde import functional as QF
from qaffde.estimators.assembly import BASE_MEASURES, check_bounds_belong
from qaffde.estimators.compute import check_compute
from qaffde.estimators.encoder import check_encoder
from qaffde.estimators.likelihood_fit import LikelihoodEstimator
from qaffde.estimators.parameters import check_choice, check_count, check_rank, check_share
from qaffde.training import LoopConfig
from qaffde.training.solvers import SOLVERS


class LikelihoodParameters(LikelihoodEstimator):
    """Parameters, checked; they are those of :class:`QAFFDESGD`."""

    def _check_parameters(self) -> None:
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_count("n_base_components", self.n_base_components, auto=True)
        check_rank(self.rank)
        check_choice("features", self.features, ("auto", *QF.FREQUENCIES, "adaptive"))
        check_choice("base_measure", self.base_measure, BASE_MEASURES[:-1])
        check_choice("solver", self.solver, SOLVERS)
        check_choice("initialisation", self.initialisation, ("closed_form", "random"))
        check_choice("normalisation", self.normalisation, ("exact", "kernel"))
        for name in ("max_iter", "max_steps", "batch_size"):
            check_count(name, getattr(self, name))
        check_share("ridge", self.ridge, auto=True)
        check_share("background", self.background, auto=True)
        check_share("tolerance", self.tolerance)
        check_share("validation_fraction", self.validation_fraction)
        LoopConfig(  # for its checks, before anything takes time
            learning_rate=self.learning_rate,
            final_learning_rate=0.0,
            clip_norm=self.clip_norm,
            patience=self.patience,
            time_limit=self.time_limit,
        )
        check_bounds_belong(self.bounds, self.base_measure)
        check_compute(self.dtype, self.device)
        check_encoder(self.encoder)
        if self.normalisation == "kernel" and (self.base_measure, self.bounds) != ("auto", None):
            raise ValueError(
                'normalisation="kernel" has no base measure: leave base_measure and bounds out, '
                'or set normalisation="exact"'
            )
        if self.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "checkpoint needs a random_state: without one no two fits are the same, and one "
                "that was killed could not be taken up again"
            )
