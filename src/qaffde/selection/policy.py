"""Constants of the search for a plan, in one place."""

from dataclasses import dataclass, fields, replace

from qaffde.parameters import check_count, check_positive, check_share


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    r"""Constants of the search for base measure, bandwidth, rank and ridge.

    None depends on the units of the data. Most were set looking at the true densities of planar
    sets and of random mixtures of three, five and ten columns; no benchmark of each alone is on
    record.

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
    rank, many_columns_rank : int, default=16, 64
        Of maximum likelihood up to `max_box_columns` columns and beyond.
    few_rows : int, default=10
        With fewer distinct rows nothing is held out: one Gaussian and Silverman's bandwidth.
    fold_rows, n_folds : int, default=1000, 4
        With fewer distinct rows than `fold_rows`, candidates are judged by `n_folds` folds.
    valid_share : float, default=0.3
        Share of the rows that one hold-out split holds out.
    rough_rows, fine_rows : int, default=10_000, 40_000
        Rows that candidates of maximum likelihood and maps of columns are first compared on; rows
        for last candidates, knots, mixtures and closed forms, whose cost hardly depends on them.
    worst : float, default=1e3
        Log-densities of held-out rows below minus this count as minus this.
    search_share : float, default=0.7
        Share of the time limit after which no new candidate is tried.
    max_features, rough_features, many_features : int, default=500, 250, 1000
        Largest number of features in two columns; in other numbers of columns and for candidates
        of maximum likelihood; of classifiers, and of a closed form on a box of two columns.
    rows_per_feature, min_features : int, default=4, 64
        Fewer rows have fewer features: one for each four rows, but no fewer than 64.
    lattice_margin : float, default=3.0
        Bandwidths between the data and their next image on a lattice.
    gaussian_reach : float, default=3.5
        Standard deviations that a lattice must tell apart on one Gaussian.
    max_box_columns : int, default=3
        Columns beyond which a box is not tried: it would be nearly all empty.
    box_reach : float, default=0.015
        A closed form on a box is tried with more features unless it is so many nats behind.
    room_rows : int, default=10
        A roomy box leaves as much room at an end as its outermost rows of this number take.
    far_spread, far_share : float, default=20.0, 0.01
        A column whose standard deviation is so many times half the distance between its 16 % and
        84 % quantiles has the latter as its unit; share of its values that classifiers,
        regressors and detectors move nearer then.
    lone_scale : float, default=1e-3
        Scale of a column with one value, in this value, but at least 1.
    mixture_sizes : tuple of int
        Sizes of Gaussian mixtures to compare.
    component_rows, gaussian_rows : int, default=4, 10
        No mixture has more components than rows over this; with fewer rows a column than the
        second, the covariance of one Gaussian is shrunk to its diagonal.
    max_mixtures : int, default=4
        Mixtures that are averaged in many columns, at most, as long as they have no more
        components together than the largest of `mixture_sizes`.
    far : float, default=100.0
        Rows so many deviations away have components of their own: no mixture is one Gaussian.
    mixture_patience : int, default=2
        Sizes in a row that are worse than a smaller one before no larger one is tried.
    cheap_components : int, default=32
        Without shrinkage, a larger mixture that is no better by a standard error is the last one
        tried. Set on random mixtures, six synthetic shapes, and two or three columns of POWER,
        of proteins and of a power plant, none of which then changes its likelihood.
    mixture_ridge, mixture_scatter : float, default=1e-7, 1e-2
        Variance added to every column of a component, and that of one more row in each.
    mixture_shrinkage, shrinkage_step : float, default=1.0, 4.0
        Rows for each column that the mean covariance is worth in every component, at first, and
        the factor by which this moves; up to `max_box_columns` columns there is none. Set on
        Stamps, vertebral, yeast, Cardiotocography, landsat, ALOI and breast_cancer, of which no
        row is reported.
    max_mixture_rows, mixture_iterations, last_iterations : int, default=100_000, 20, 4
        Rows that expectation–maximization sees; its iterations for the size that is chosen; those
        by which sizes are compared, and those that follow with all rows.
    mixture_gain : float, default=2e-5
        Nats that two iterations must gain.
    cluster_rows, cluster_iterations : int, default=5000, 10
        Of the k-means that mixtures begin with.
    mixture_passes, max_batches, batch_rows : int, default=4, 20, 4
        Passes over mini-batches that follow, the most batches of a pass, and rows of a batch for
        each mean and variance of a component.
    min_scale : float, default=1e-3
        Least standard deviation within components, of columns of deviation one.
    closed_form_start, likelihood_start, box_start : float, default=0.5, 1.2, 0.5
        First bandwidth, in standard deviations within components of the mixture; that of a closed
        form on a box, in that on a mixture.
    max_steps, rough_step : int, float, default=5, 2**0.5
        Most steps of the bandwidth in one direction, and factor between neighbors.
    rough_gain, closed_form_gain : float, default=3e-4, 1e-4
        Nats that a step must gain, for maximum likelihood and for closed forms.
    max_stretched_columns : int, default=3
        Up to this number of columns, each has a bandwidth of its own in maximum likelihood.
    ridge_rows, ridge_step : float, default=100.0, 3.0
        The ridge begins at ``ridge_rows / n`` and moves by the factor `ridge_step`.
    judge_iterations : int, default=10
        Iterations of L-BFGS for a candidate.
    kde_rows, kde_steps : int, default=5000, 12
        Rows of the exact kernel density estimate that the "kernel" form takes its bandwidth from,
        and factors of √2 that are tried on either side of Scott's.
    mapped_rows, map_errors : int, float, default=200, 2.0
        Distinct rows from which on maps of columns are tried, and standard errors by which they
        must raise the held-out likelihood.
    max_knots, knot_growth : int, tuple of float, default=128, (0.7, 0.45)
        Even quantiles that the map of a column goes through, at most; of n rows no more than the
        first number times n to the power of the second.
    tail_rows, tail_shares : int, tuple of float, default=10, (0.1, 0.45)
        Rows beyond the first and the last knot; share of the rows at either end whose slopes tell
        how heavy a tail is, the first with three knots or more.
    tail_rates, tail_knots : tuple of float, float, default=(0.1, 1.5), 4.0
        Least and largest rate of a tail without an end; with K knots, it is no less than the last
        number over K: a few rows do not show how heavy a tail is.
    map_edge : float, default=0.1
        Share of the rows that a map leaves as they are up to, before an end that is given.
    edge_rows, edge_share, magnitudes : int, float, float, default=100, 0.2, 30.0
        Zero is an end where the value at a tenth of so many least rows is below this share of
        the last of them; or where values differ by more than the last factor, and their logarithms
        are less skewed.
    table_rows, table_choice_iterations, table_iterations : int, default=28_000, 25, 100
        Of a table of mixed columns: rows that mixtures are compared on, and iterations of
        expectation–maximization then and in the end.
    max_codes, code_room : int, float, default=2000, 0.1
        Most values of an integer column; share of its range at either end that is for values
        still to come.
    code_strengths, code_widths : tuple of float
        Rows that the masses of codes over all components are worth in each one, and widths of the
        kernel that smooths integers, in Silverman's bandwidths.
    few_wave_rows, wave_ridge_rows : int, float, default=1000, 3.0
        With fewer rows to fit to, waves over the parts of a table are not tried; their ridge
        begins at the second number over n.
    gap_draws, drawn_rows, gap_rounds : int, default=5, 65_536, 2
        Draws that stand for a row with gaps under waves, and for all of them together, at most,
        and rounds of expectation–maximization over them.
    choice_shares : tuple of float, default=(1/6, 1/6, 1/3)
        Of :func:`qaffde.fit`, as all that begins with `choice`: shares of the time limit for
        `QAFFDE`, `QAFFDESGD` and `QAFFDETensorTrain`, the last of which may be left out; what is
        left is for the last fit.
    choice_rows, choice_fold_rows, choice_folds : int, default=50, 10_000, 3
        Fewer rows than the first have the first estimator; fewer than the second are all held out,
        in folds.
    choice_valid_share, choice_valid_rows : float, int, default=0.1, 20_000
        Else one split holds out this share, at most so many rows.
    class_sample_rows : int, default=20_000
        Rows of the sample that a classifier is selected on.
    class_rows, class_rows_per_feature, class_features : int, default=4000, 5, 512
        A classifier's candidates are judged on so many rows, or so many for each feature, and
        first with no more than so many features.
    class_few_rows, class_usual_bandwidth : int, float, default=30, 0.5
        With fewer rows nothing is held out, and this is the bandwidth.
    class_bandwidths, class_finest : tuple of float, float
        In units of √q for q coordinates; share of the best bandwidth with few features below which
        more features do not reach.
    class_ridges, class_ranks : tuple of float, tuple of int
        Of the "coherent" measurement; "pretty_good" takes the largest ridge but one. Of density
        matrices that are mixed.
    class_ridge : float or "auto", default="auto"
        Share of the largest eigenvalue that is added to all: of the mean density matrix of the
        classes in "pretty_good" and "coherent", of G in gradient training. "auto" chooses from
        `class_ridges`, and is `class_gradient_ridge` in gradient training.
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

    # The density of a plan
    min_trace: float = 0.9999
    background: float | str = "auto"
    background_spread: float = 2.0
    tolerance: float | str = "auto"
    rank: int = 16
    many_columns_rank: int = 64
    # Held-out rows
    few_rows: int = 10
    fold_rows: int = 1000
    n_folds: int = 4
    valid_share: float = 0.3
    rough_rows: int = 10_000
    fine_rows: int = 40_000
    worst: float = 1e3
    search_share: float = 0.7
    # Features and boxes
    max_features: int = 500
    rough_features: int = 250
    many_features: int = 1000
    rows_per_feature: int = 4
    min_features: int = 64
    lattice_margin: float = 3.0
    gaussian_reach: float = 3.5
    max_box_columns: int = 3
    box_reach: float = 0.015
    room_rows: int = 10
    # Units
    far_spread: float = 20.0
    far_share: float = 0.01
    lone_scale: float = 1e-3
    # Mixtures
    mixture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    component_rows: int = 4
    gaussian_rows: int = 10
    max_mixtures: int = 4
    far: float = 100.0
    mixture_patience: int = 2
    cheap_components: int = 32
    mixture_ridge: float = 1e-7
    mixture_scatter: float = 1e-2
    mixture_shrinkage: float = 1.0
    shrinkage_step: float = 4.0
    max_mixture_rows: int = 100_000
    mixture_iterations: int = 20
    last_iterations: int = 4
    mixture_gain: float = 2e-5
    cluster_rows: int = 5000
    cluster_iterations: int = 10
    mixture_passes: int = 4
    max_batches: int = 20
    batch_rows: int = 4
    min_scale: float = 1e-3
    # Bandwidth and ridge
    closed_form_start: float = 0.5
    likelihood_start: float = 1.2
    box_start: float = 0.5
    max_steps: int = 5
    rough_step: float = 2**0.5
    rough_gain: float = 3e-4
    closed_form_gain: float = 1e-4
    max_stretched_columns: int = 3
    ridge_rows: float = 100.0
    ridge_step: float = 3.0
    judge_iterations: int = 10
    kde_rows: int = 5000
    kde_steps: int = 12
    # Maps of columns
    mapped_rows: int = 200
    map_errors: float = 2.0
    max_knots: int = 128
    knot_growth: tuple[float, float] = (0.7, 0.45)
    tail_rows: int = 10
    tail_shares: tuple[float, ...] = (0.1, 0.45)
    tail_rates: tuple[float, float] = (0.1, 1.5)
    tail_knots: float = 4.0
    map_edge: float = 0.1
    edge_rows: int = 100
    edge_share: float = 0.2
    magnitudes: float = 30.0
    # Tables with kinds of columns or gaps
    table_rows: int = 28_000
    table_choice_iterations: int = 25
    table_iterations: int = 100
    max_codes: int = 2000
    code_room: float = 0.1
    code_strengths: tuple[float, ...] = (1.0, 10.0, 100.0)
    code_widths: tuple[float, ...] = (0.01, 0.5, 1.0, 2.0)
    few_wave_rows: int = 1000
    wave_ridge_rows: float = 3.0
    gap_draws: int = 5
    drawn_rows: int = 65_536
    gap_rounds: int = 2
    # qaffde.fit
    choice_shares: tuple[float, ...] = (1 / 6, 1 / 6, 1 / 3)
    choice_rows: int = 50
    choice_fold_rows: int = 10_000
    choice_folds: int = 3
    choice_valid_share: float = 0.1
    choice_valid_rows: int = 20_000
    # Classifiers
    class_sample_rows: int = 20_000
    class_rows: int = 4000
    class_rows_per_feature: int = 5
    class_features: int = 512
    class_few_rows: int = 30
    class_usual_bandwidth: float = 0.5
    class_bandwidths: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
    class_finest: float = 0.4
    class_ridges: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    class_ranks: tuple[int, ...] = (3, 10, 30, 100)
    class_ridge: float | str = "auto"
    class_gradient_rank: int = 20
    class_gradient_ridge: float = 1e-3
    class_background: float = 1e-4
    class_measure_ridge: float = 1e-3
    class_code_spread: float = 0.5
    projected_columns: int = 16
    max_components: int = 50
    explained: float = 0.95

    def for_maps(self) -> "SelectionPolicy":
        """The constants of the mixtures that compare maps of columns: all of them on few rows."""
        rows = self.rough_rows
        fine, most = min(self.fine_rows, rows), min(self.max_mixture_rows, rows)
        return replace(self, fine_rows=fine, max_mixture_rows=most)

    def for_ends(self) -> "SelectionPolicy":
        """The constants of the few sizes of mixtures that maps with an end are compared with."""
        return replace(self, mixture_sizes=self.mixture_sizes[:4])

    def __post_init__(self) -> None:
        check_share("min_trace", self.min_trace, whole=True)
        for name in ("background", "tolerance", "class_ridge"):
            check_share(name, getattr(self, name), auto=True)
        for field in fields(self):
            _check_like(field.name, getattr(self, field.name), field.default)
        for name in ("knot_growth", "tail_rates"):
            if len(pair := getattr(self, name)) != 2:
                raise ValueError(f"{name}={pair!r} must be two numbers")


def _check_like(name: str, value: object, default: object) -> None:
    """Reject anything but numbers of the kind of the default, which are positive."""
    if isinstance(default, int):
        check_count(name, value)
    elif isinstance(default, float):
        check_positive(name, value)
    elif isinstance(default, tuple):
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{name}={value!r} must be a tuple of numbers, such as {default}")
        for number in value:
            _check_like(name, number, default[0])


DEFAULT_POLICY = SelectionPolicy()

# What follows is no choice of a model: limits of memory, of caches and of floating-point numbers.

SAMPLE_ROWS = 100_000
"""Rows of the sample of a summary, which a plan is selected on."""
MANY_ROWS = 1_000_000
"""Rows of a stream that are trained on."""
USUAL_TOLERANCE = 1e-7
"""Eigenvalues of G below this share of the largest count as zero in maximum likelihood."""
DRAWN_TERMS = 2**24
"""Rows times components that are drawn at once."""
CACHED_TERMS = 2**17
"""Numbers of components times rows that stay in cache."""
MAX_BYTES, COVARIANCES, SEARCHED_COVARIANCES = 4e9, 8, 400
"""Of the covariances of a fit: how many there are at once, and where mixtures are searched."""
MAX_KEPT = 2**26
"""Products of two columns of all rows, half a GB, that are kept; more are made when used."""
LOG_NOTHING = -80.0
"""Logarithm of a share that adds nothing; exponentials that underflow are slow."""
SINGLE_RIDGE, SINGLE_REACH = 1e-5, 1e3
"""Least variance, and largest deviation, that float32 resolves in sums of squares."""
FINEST = 1e-12
"""Share of a deviation that float64 resolves beside it."""
MIN_DIGITS = 0.01
"""Rounding error of the values, in standard deviations, that is too much."""
EXACT, NEGLIGIBLE, LEAST_NOISE = 1e-12, 1e-10, 1e-6
"""Relative error of eigenvalues; share of the largest below which an axis is empty, and of their
mean that a direction without axis has at least."""
