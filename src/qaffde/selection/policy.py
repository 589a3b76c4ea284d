"""Constants of the search for a plan, in one place."""

from dataclasses import dataclass, fields
from numbers import Real

from qaffde.parameters import check_count, check_positive, check_share


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    r"""Constants of the search for base measure, bandwidth, rank and ridge.

    Nothing here depends on the units of the data. The values are those that the
    searches had before they were one. The closed form's were set looking at seed 0 of the planar
    densities; for most of the others no benchmark of each constant alone is on record.

    Parameters
    ----------
    min_trace : float, default=0.9999
        Share of the trace of ρ that a closed form keeps when `rank` is "auto".
    background : float or "auto", default="auto"
        Weight of a broad Gaussian that keeps every log-density finite; "auto" is 1/(n + 1). Of a
        classifier: weight of the base measure in every class; "auto" is `class_background`.
    background_spread : float, default=2.0
        Its standard deviation, in those of the data.
    tolerance : float or "auto", default="auto"
        Eigenvalues of G below this share of the largest count as zero; "auto" is 1e-6 for closed
        forms and 1e-7 for maximum likelihood and classifiers.

    few_rows : int, default=10
        With fewer distinct rows nothing is held out: one Gaussian and Silverman's bandwidth.
    fold_rows, n_folds : int, default=1000, 4
        With fewer distinct rows than `fold_rows`, candidates are judged by `n_folds` folds.
    valid_share : float, default=0.2
        Share of the rows that one hold-out split holds out, and at most a quarter of those drawn.
    rough_rows, fine_rows, fine_folds : int, default=40_000, 60_000, 3
        Rows that candidates are compared on, and rows and folds of the last steps of maximum
        likelihood, which one split barely tells apart.

    max_features, max_column_features, max_mixture_features : int, default=1000, 256, 350
        Largest number of features; for one column; on a mixture of more than `many_parts` parts.
    many_parts : int, default=128
    rows_per_feature, min_features : int, default=4, 64
        Fewer rows have fewer features: one for each four rows, but no fewer than 64.
    lattice_margin : float, default=3.0
        Bandwidths between the data and their next image on a lattice.
    gaussian_reach : float, default=3.5
        Standard deviations that a lattice must tell apart on one Gaussian.

    max_box_columns : int, default=3
        Columns beyond which a box is not tried: it would be nearly all empty.
    room_rows : int, default=10
        A roomy box leaves as much room at an end as its outermost rows of this number take.
    mixture_sizes, many_mode_sizes : tuple of int
        Sizes of Gaussian mixtures to compare, and those beyond `max_box_columns` columns.
    mixture_patience : int, default=2
        Sizes in a row that are worse than a smaller one before no larger one is tried.
    mixture_ridge : float, default=1e-7
        Variance added to every column of a component.
    max_mixture_rows, max_choice_rows : int, default=100_000, 20_000
        Rows that expectation–maximization sees, and sees while the size is chosen.

    min_averaged_columns : int, default=3
        From this number of columns on, maximum likelihood averages mixtures over their posterior.
        It does not always pay: on one seed of random mixtures of ten columns (s = .2, 20 000 rows)
        the average had −1.56 nats, the most likely mixture with 350 features −1.33.
    averaged_rows : int, default=80
        Least rows for each mean and variance of a component.
    averaged_sizes : tuple of int, default=(1, 8, 64, 128)
        Components of a draw to compare.
    averaged_parts : int, default=4
        Components of a draw for each column, where there are fewer columns.
    averaged_strength : float, default=20.0
        Rows that the prior is worth, compared with none.
    averaged_work, averaged_choice_work, max_sweeps : int, default=25_600, 10_240, 400
        Sweeps times components of the chain, the same while choosing, and the most sweeps.
    averaged_reach, averaged_seconds : float, default=0.02, 20.0
        With few columns averages are tried if the most likely mixture is at most this many nats
        behind, and if this many seconds are left.

    min_scale : float, default=1e-3
        Least standard deviation within components, of columns of deviation one.
    closed_form_start, likelihood_start : float, default=0.5, 1.2
        First bandwidth, in standard deviations within components of the mixture.
    max_doublings, max_steps : int, default=6, 12
        Most steps of the bandwidth in one direction.
    many_rows : int, default=5000
        From so many held-out rows on, of two indistinct bandwidths the smaller is taken.
    rough_step, fine_step : float, default=2**0.5, 2**0.3
        Factors between neighboring bandwidths.
    rough_gain, fine_gain : float, default=1e-3, 2e-5
        Nats that a step must gain.
    max_stretched_columns : int, default=3
        Up to this number of columns, each has a bandwidth of its own in maximum likelihood.
    ridge_rows, ridge_step, blur_step : float, default=100.0, 3.0, 0.4
        The ridge begins at ``ridge_rows / n`` and moves by the factor `ridge_step`; a mixture is
        blurred by steps of so many bandwidths.
    base_errors : float, default=2.0
        Standard errors within which base measures are not told apart.
    judge_iterations : int, default=20
        Iterations of L-BFGS for a candidate.
    search_share : float, default=0.7
        Share of the time limit after which no new candidate is tried.
    rank, many_columns_rank : int, default=16, 64
        Of maximum likelihood up to `max_box_columns` columns and beyond.
        On potential_3 more than 8 changed no likelihood.
    kde_rows : int, default=5000
        Rows of the exact kernel density estimate that the "kernel" form takes its bandwidth from.

    class_rows, class_rows_per_feature, class_features : int, default=4000, 5, 512
        A classifier's candidates are judged on so many rows, or so many for each feature, and
        first with no more than so many features.
    class_few_rows : int, default=30
        With fewer rows nothing is held out.
    class_bandwidths : tuple of float
        In units of √q for q coordinates.
    class_finest : float, default=0.4
        Share of the best bandwidth with few features below which more features do not reach.
    class_ridges : tuple of float
        Of the "coherent" measurement; "pretty_good" takes the largest but one.
    class_ridge : float or "auto", default="auto"
        Share of the largest eigenvalue that is added to all: of the mean density matrix of the
        classes in "pretty_good" and "coherent", of G in gradient training. "auto" chooses from
        `class_ridges`, and is `class_gradient_ridge` in gradient training.
    class_ranks : tuple of int
        Of density matrices that are mixed.
    class_usual_bandwidth : float, default=0.5
        Bandwidth of a classifier with too few rows to choose one, in the same units.
    class_gradient_rank, class_gradient_ridge : int, float, default=20, 1e-3
        Of gradient training.
    class_background, class_measure_ridge : float, default=1e-4, 1e-3
        Weight of the base measure in every class, and variance that is added to its coordinates.
    class_code_spread : float, default=0.5
        Standard deviation of the base measure of codes, which an encoder keeps within (−1, 1); the
        usual bandwidth is √q of them.
    projected_columns, max_components, explained : int, int, float, default=16, 50, 0.95
        More columns than the first are projected on components that hold the last share of their
        variance, at most so many.
    """

    min_trace: float = 0.9999
    background: float | str = "auto"
    background_spread: float = 2.0
    tolerance: float | str = "auto"

    few_rows: int = 10
    fold_rows: int = 1000
    n_folds: int = 4
    valid_share: float = 0.2
    rough_rows: int = 40_000
    fine_rows: int = 60_000
    fine_folds: int = 3

    max_features: int = 1000
    max_column_features: int = 256
    max_mixture_features: int = 350
    many_parts: int = 128
    rows_per_feature: int = 4
    min_features: int = 64
    lattice_margin: float = 3.0
    gaussian_reach: float = 3.5

    max_box_columns: int = 3
    room_rows: int = 10
    mixture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    many_mode_sizes: tuple[int, ...] = (64, 96, 128)
    mixture_patience: int = 2
    mixture_ridge: float = 1e-7
    max_mixture_rows: int = 100_000
    max_choice_rows: int = 20_000

    min_averaged_columns: int = 3
    averaged_rows: int = 80
    averaged_sizes: tuple[int, ...] = (1, 8, 64, 128)
    averaged_parts: int = 4
    averaged_strength: float = 20.0
    averaged_work: int = 25_600
    averaged_choice_work: int = 10_240
    max_sweeps: int = 400
    averaged_reach: float = 0.02
    averaged_seconds: float = 20.0

    min_scale: float = 1e-3
    closed_form_start: float = 0.5
    likelihood_start: float = 1.2
    max_doublings: int = 6
    max_steps: int = 12
    many_rows: int = 5000
    rough_step: float = 2**0.5
    fine_step: float = 2**0.3
    rough_gain: float = 1e-3
    fine_gain: float = 2e-5
    max_stretched_columns: int = 3
    ridge_rows: float = 100.0
    ridge_step: float = 3.0
    blur_step: float = 0.4
    base_errors: float = 2.0
    judge_iterations: int = 20
    search_share: float = 0.7
    rank: int = 16
    many_columns_rank: int = 64
    kde_rows: int = 5000

    class_rows: int = 4000
    class_rows_per_feature: int = 5
    class_features: int = 512
    class_few_rows: int = 30
    class_bandwidths: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
    class_finest: float = 0.4
    class_ridges: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    class_ridge: float | str = "auto"
    class_ranks: tuple[int, ...] = (3, 10, 30, 100)
    class_usual_bandwidth: float = 0.5
    class_gradient_rank: int = 20
    class_gradient_ridge: float = 1e-3
    class_background: float = 1e-4
    class_measure_ridge: float = 1e-3
    class_code_spread: float = 0.5
    projected_columns: int = 16
    max_components: int = 50
    explained: float = 0.95

    def __post_init__(self) -> None:
        check_share("min_trace", self.min_trace, whole=True)
        check_share("background", self.background, auto=True)
        check_share("tolerance", self.tolerance, auto=True)
        check_share("class_ridge", self.class_ridge, auto=True)
        for field in fields(self):
            _check_like(field.name, getattr(self, field.name), field.default)

    def n_features(self, n: int | None, d: int, n_parts: int = 1) -> int:
        """Number of features for n rows (None: rows are still to come) of d columns.

        On a base measure of many parts, each of which costs a Gram matrix, there are fewer.
        """
        many = n_parts > self.many_parts
        most = self.max_mixture_features if many else self.max_features
        if d == 1:
            most = self.max_column_features
        if n is None:
            return most
        return min(most, max(self.min_features, n // self.rows_per_feature))


def _check_like(name: str, value: object, default: object) -> None:
    """Reject anything but numbers of the kind of the default; all but one are positive."""
    if isinstance(default, int):
        check_count(name, value)
    elif name == "averaged_reach":
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{name}={value!r} must be a number")
    elif isinstance(default, float):
        check_positive(name, value)
    elif isinstance(default, tuple):
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{name}={value!r} must be a tuple of numbers, such as {default}")
        for number in value:
            _check_like(name, number, default[0])


DEFAULT_POLICY = SelectionPolicy()
