"""The stages of a maximum-likelihood fit: search, convex problem, learned features."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.estimators.assembly import (
    FEW_ROWS,
    MAX_BOX_DIMS,
    background_weight,
    candidate_measures,
    constant_feature,
    default_size,
    defended,
    draw_features,
)
from qaffde.estimators.bandwidth import silverman
from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.candidates import RIDGE_ROWS, Candidate
from qaffde.estimators.data_measure import MeasureSpec, n_distinct
from qaffde.estimators.design import Split
from qaffde.estimators.encoder import (
    has_parameters,
)
from qaffde.estimators.kernel_rule import held_out_kde
from qaffde.estimators.likelihood_design import Search
from qaffde.estimators.rows import Clock, Rows
from qaffde.estimators.totals import effective_count
from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    Density,
    DensityMatrix,
    Encoder,
    KernelMeasure,
    StandardizedDensity,
    TransformedDensity,
)
from qaffde.training import (
    Checkpoint,
    History,
    LoopConfig,
    fit_adaptive_features,
    negative_log_likelihood,
    print_progress,
    train,
)
from qaffde.training.checkpoint import fingerprint
from qaffde.training.joint import LearnedBorn
from qaffde.training.likelihood import (
    Whitening,
    maximise_likelihood,
    solve,
    whiten,
)
from qaffde.training.progress import line_printer

RANK, MANY_COLUMNS_RANK = 16, 64
"""Up to three columns, where more than eight changed no likelihood of potential_3, and beyond."""
SEARCH_ITERATIONS = 20
SEARCH_SHARE = 0.7
"""Share of the time limit after which no new candidate is tried."""
N_EVALUATIONS = 50


class Tabulated(Density):
    """Log-densities that are already known, for rows that come in their order."""

    def __init__(self, log_p: Tensor) -> None:
        super().__init__()
        self.log_p = log_p

    def log_prob(self, x: Tensor) -> Tensor:
        """The known values."""
        return self.log_p


def _silent(line: str) -> None:
    """Print nothing."""


Rule = Callable[[Tensor, Tensor, Generator], float]


def _silverman(Z: Tensor, weight: Tensor, generator: Generator) -> float:
    return silverman(effective_count(weight), Z.shape[1])


class LikelihoodEstimator(BornEstimator):
    """The stages of a maximum-likelihood fit; the parameters are those of :class:`QAFFDESGD`."""

    n_features: int | str
    rank: int | float | str
    features: str
    base_measure: str
    ridge: float | str
    solver: str
    initialisation: str
    learn_features: bool
    encoder: Any
    normalisation: str
    max_iter: int
    max_steps: int
    batch_size: int
    learning_rate: float
    clip_norm: float | None
    validation_fraction: float
    patience: int | None
    n_base_components: int | str
    background: float | str
    tolerance: float
    checkpoint: str | os.PathLike[str] | None
    verbose: bool
    device: str

    def _search(self, rows: Rows, seed: int, clock: Clock) -> Search:
        """The search for a candidate, with what a killed fit has already found."""
        file = None if self.checkpoint is None else self._file("search")
        identity = fingerprint(rows=(rows.Z, rows.weight), parameters=self._settings(), seed=seed)
        saved = None if file is None else file.load(identity)
        known: dict[str, Tensor] = {} if saved is None else saved["known"]
        show = line_printer() if self.verbose else _silent

        def report(name: str, value: float) -> None:
            show(f"{clock.seconds:6.1f} s  {name}: held-out log-likelihood {value:.5f}")
            if file is not None:
                file.save({"known": dict(known)}, identity)

        return Search(
            rows.Z,
            rows.weight,
            partial(self._judge, seed=seed),
            seed=seed,
            deadline=clock.at(SEARCH_SHARE),
            known=known,
            report=report,
            free=self._is_free(),
        )

    def _is_free(self) -> bool:
        """Whether nothing is learned but ρ, and nobody asked for features, a rank or a mixture."""
        free = (self.n_features, self.bandwidth, self.features, self.rank, self.n_base_components)
        is_auto = (isinstance(value, str) and value == "auto" for value in free)
        return all(is_auto) and not (self.learn_features or has_parameters(self.encoder))

    def _settings(self) -> dict[str, Any]:
        """Parameters that a candidate's value depends on."""
        free = (
            "checkpoint",
            "verbose",
            "time_limit",
            "encoder",
            "dtype",
            "device",
            "compile",
            "random_state",
        )
        return {k: v for k, v in sorted(self.get_params(deep=False).items()) if k not in free}

    def _file(self, stage: str) -> Checkpoint:
        return Checkpoint(f"{os.fspath(self.checkpoint)}.{stage}")  # type: ignore[arg-type]

    def _candidate(
        self, rows: Rows, search: Search, h: Tensor | None, ends: Tensor | None
    ) -> Candidate:
        """Base measure, bandwidth and ridge: given, by a rule, or by held-out likelihood."""
        n, d = n_distinct(rows.Z), rows.Z.shape[1]
        if self.normalisation == "kernel":
            rule = held_out_kde if n >= FEW_ROWS else _silverman
            return Candidate(MeasureSpec("kernel"), self._by_rule(h, rule, rows, search))
        box = MeasureSpec("box", bounds=ends, roomy=True)
        specs = candidate_measures(self.base_measure, self.n_base_components, box, n, d)
        ridge = None if self.ridge == "auto" else float(self.ridge) * rows.count
        if n < FEW_ROWS:
            h = self._by_rule(h, _silverman, rows, search)
            return Candidate(specs[0], h, RIDGE_ROWS if ridge is None else ridge)
        return search.run(specs, h, ridge)

    @staticmethod
    def _by_rule(h: Tensor | None, rule: Rule, rows: Rows, search: Search) -> Tensor:
        if h is not None:
            return h
        return torch.full_like(rows.scale, rule(rows.Z, rows.weight, search.generator()))

    @staticmethod
    def _measure(candidate: Candidate, search: Search, rows: Rows) -> BaseMeasure:
        if candidate.spec.kind == "kernel":
            return KernelMeasure(candidate.bandwidth)
        return search.measure(candidate.spec, candidate.bandwidth, rows.totals)

    def _judge(
        self, measure: BaseMeasure, candidate: Candidate, splits: list[Split], seed: int
    ) -> Tensor:
        """Held-out log-densities after short trainings with frozen features."""
        generator = torch.Generator().manual_seed(seed)
        first = Rows.plain(splits[0].train, splits[0].train_weight)
        space = self._whitened(first, measure, candidate, generator, adapt=False)
        codes = [space.coordinates(split.valid) for split in splits]
        scores = []
        for number, split in enumerate(splits):
            rows = Rows.plain(split.train, split.train_weight)
            others = codes[:number] + codes[number + 1 :]
            E = torch.cat(others) if others else space.coordinates(rows.Z)
            state = self._start(space, rows, E, generator)
            solve(
                state,
                E,
                rows.relative_weight,
                solver="lbfgs",
                max_iter=SEARCH_ITERATIONS,
                generator=generator,
            )
            log_p = space.log_prob(state, split.valid, codes[number]).cpu()
            scores.append(self._defended(Tabulated(log_p), rows).log_prob(split.valid))
        return torch.cat(scores)

    def _whitened(
        self,
        rows: Rows,
        measure: BaseMeasure,
        candidate: Candidate,
        generator: Generator,
        *,
        adapt: bool,
    ) -> Whitening:
        """Features for a candidate, by Algorithm 1 if they are to be adaptive, whitened."""
        n, d = rows.Z.shape
        if candidate.bare:
            return whiten(constant_feature(d), measure, 0.0, self.tolerance).to(self.device)
        parts = candidate.spec.n_components
        D = default_size(n, d, parts) if self.n_features == "auto" else int(self.n_features)
        h = candidate.bandwidth
        features = draw_features(self.features, D, h, measure, rows.ends, generator)
        if self.features == "adaptive" and adapt:
            features = fit_adaptive_features(features, rows.Z, h, generator=generator)
        ridge = candidate.ridge / rows.count
        return whiten(features, measure, ridge, self.tolerance).to(self.device)

    def _start(
        self, space: Whitening, rows: Rows, E: Tensor | None, generator: Generator
    ) -> DensityMatrix:
        auto = RANK if rows.Z.shape[1] <= MAX_BOX_DIMS else MANY_COLUMNS_RANK
        rank = QF.resolve_rank(auto if self.rank == "auto" else self.rank, space.level, 1.0)
        if self.initialisation == "random":
            return DensityMatrix.draw(len(space.level), rank, generator).to(self.device)
        if E is not None:
            return space.start_from(E, rows.relative_weight, rank)
        return space.start(rows.Z, rows.relative_weight, rank)

    def _maximise(
        self,
        rows: Rows,
        measure: BaseMeasure,
        candidate: Candidate,
        seed: int,
        clock: Clock,
        *_: object,
    ) -> tuple[BornDensity, list[History]]:
        """The convex problem of frozen features."""
        space, state, history = self._solved(rows, measure, candidate, seed, clock)
        return space.density(state).cpu(), [history]

    def _solved(
        self, rows: Rows, measure: BaseMeasure, candidate: Candidate, seed: int, clock: Clock
    ) -> tuple[Whitening, DensityMatrix, History]:
        generator = torch.Generator().manual_seed(seed)

        def begin() -> tuple[Whitening, DensityMatrix]:
            space = self._whitened(rows.typical, measure, candidate, generator, adapt=True)
            return space, self._start(space, rows.typical, None, generator)

        space, state = rows.peers.first(begin)
        history = maximise_likelihood(
            space,
            state,
            rows.Z,
            rows.relative_weight,
            solver=self.solver,
            max_iter=self.max_iter,
            generator=generator,
            time_limit=clock.left,
            checkpoint=None if self.checkpoint is None else self._file("state"),
            report=print_progress(self.max_iter) if self._speaks(rows) else None,
            peers=rows.peers,
        )
        return space, state, history

    def _speaks(self, rows: Rows) -> bool:
        """Whether this process prints progress."""
        return self.verbose and rows.peers.rank == 0

    def _learn(
        self,
        rows: Rows,
        measure: BaseMeasure,
        candidate: Candidate,
        seed: int,
        clock: Clock,
        values: Tensor,
        encoder: Encoder | None,
    ) -> tuple[BornDensity, list[History]]:
        """Features and encoder too, from the convex solution, with rows held out."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(values), generator=generator)
        n_valid = max(1, round(self.validation_fraction * len(values)))
        valid, chosen = order[:n_valid], order[n_valid:]
        space, state, convex = self._solved(rows.part(chosen), measure, candidate, seed, clock)

        born = LearnedBorn(space, state, learn_features=self.learn_features)
        density: Density = self._defended(born, rows)
        inputs = rows.Z
        if encoder is not None and has_parameters(encoder):
            density = StandardizedDensity(density, rows.location, rows.scale)
            density, inputs = TransformedDensity(density, encoder), values
        inputs = inputs.to(self.device, torch.float32)
        weight = rows.relative_weight.to(inputs)
        config = LoopConfig(
            max_steps=self.max_steps,
            batch_size=rows.peers.share_of(self.batch_size),
            learning_rate=self.learning_rate,
            final_learning_rate=min(1e-5, self.learning_rate),
            clip_norm=self.clip_norm,
            eval_every=max(1, self.max_steps // N_EVALUATIONS),
            patience=self.patience,
            time_limit=clock.left,
        )
        history = train(
            density.to(inputs),
            negative_log_likelihood,
            (inputs[chosen], weight[chosen]),
            (inputs[valid], weight[valid]),
            config,
            generator,
            checkpoint=None if self.checkpoint is None else self._file("learning"),
            report=print_progress(self.max_steps) if self._speaks(rows) else None,
            peers=rows.peers,
        )
        density.double()
        return born.density(space).cpu(), [convex, history]

    def _defended(self, born: Density, rows: Rows) -> Density:
        """Add the background, unless the paper's own form is asked for."""
        if self.normalisation == "kernel":
            return born
        epsilon = background_weight(self.background, rows.count)
        return defended(born, epsilon, rows.Z.shape[1])
