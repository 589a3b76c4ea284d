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
    few_rows : int, default=10
        With fewer distinct rows nothing is held out: one Gaussian and Silverman's bandwidth.
    fold_rows, n_folds : int, default=1000, 4
        With fewer distinct rows than `fold_rows`, candidates are judged by `n_folds` folds.
    valid_share : float, default=0.3
        Share of the rows that one hold-out split holds out.
    rough_rows, fine_rows : int, default=10_000, 40_000
        Rows that candidates of maximum likelihood and maps of columns are first compared on; rows
        for last candidates, mixtures and closed forms, whose cost hardly depends on them.
    max_features, rough_features, many_features : int, default=500, 250, 1000
        Largest number of features in two columns; in other numbers of columns and for candidates
        of maximum likelihood; of classifiers, and of a closed form on a box of two columns.
    box_reach : float, default=0.015
        A closed form on a box is tried with more features unless it is so many nats behind.
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
    mixture_sizes : tuple of int
        Sizes of Gaussian mixtures to compare.
    far : float, default=100.0
        Rows so many deviations away have components of their own: no mixture is one Gaussian.
    max_mixtures : int, default=4
        Mixtures that are averaged in many columns, at most, as long as they have no more
        components together than the largest of `mixture_sizes`.
    mixture_patience : int, default=2
        Sizes in a row that are worse than a smaller one before no larger one is tried.
    mixture_ridge : float, default=1e-7
        Variance added to every column of a component.
    mixture_shrinkage, shrinkage_step : float, default=1.0, 4.0
        Rows for each column that the mean covariance is worth in every component, at first, and
        the factor by which this moves; up to `max_box_columns` columns there is none. Set on
        Stamps, vertebral, yeast, Cardiotocography, landsat, ALOI and breast_cancer, of which no
        row is reported.
    component_rows : int, default=4
        No mixture has more components than rows over this.
    max_mixture_rows, mixture_iterations, last_iterations : int, default=100_000, 20, 4
        Rows that expectation–maximization sees; its iterations for the size that is chosen; those
        by which sizes are compared, and those that follow with all rows.
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
    search_share : float, default=0.7
        Share of the time limit after which no new candidate is tried.
    rank, many_columns_rank : int, default=16, 64
        Of maximum likelihood up to `max_box_columns` columns and beyond.
    max_knots : int, default=128
        Even quantiles that the map of a column goes through, at most.
    mapped_rows, map_errors : int, float, default=200, 2.0
        Distinct rows from which on maps of columns are tried, and standard errors by which they
        must raise the held-out likelihood.
    few_wave_rows : int, default=1000
        With fewer rows to fit to, waves over the parts of a table are not tried.
    table_rows, table_choice_iterations, table_iterations : int, default=28_000, 25, 100
        Of a table of mixed columns: rows that mixtures are compared on, and iterations of
        expectation–maximization then and in the end.
    max_codes : int, default=2000
        Most values of an integer column.
    code_strengths, code_widths : tuple of float
        Rows that the masses of codes over all components are worth in each one, and widths of the
        kernel that smooths integers, in Silverman's bandwidths.
    kde_rows : int, default=5000
        Rows of the exact kernel density estimate that the "kernel" form takes its bandwidth from.
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

    min_trace: float = 0.9999
    background: float | str = "auto"
    background_spread: float = 2.0
    tolerance: float | str = "auto"
    few_rows: int = 10
    fold_rows: int = 1000
    n_folds: int = 4
    valid_share: float = 0.3
    rough_rows: int = 10_000
    fine_rows: int = 40_000
    max_features: int = 500
    rough_features: int = 250
    many_features: int = 1000
    box_reach: float = 0.015
    rows_per_feature: int = 4
    min_features: int = 64
    lattice_margin: float = 3.0
    gaussian_reach: float = 3.5
    max_box_columns: int = 3
    room_rows: int = 10
    mixture_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    far: float = 100.0
    max_mixtures: int = 4
    mixture_patience: int = 2
    mixture_ridge: float = 1e-7
    mixture_shrinkage: float = 1.0
    shrinkage_step: float = 4.0
    component_rows: int = 4
    max_mixture_rows: int = 100_000
    mixture_iterations: int = 20
    last_iterations: int = 4
    min_scale: float = 1e-3
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
    search_share: float = 0.7
    rank: int = 16
    many_columns_rank: int = 64
    max_knots: int = 128
    mapped_rows: int = 200
    few_wave_rows: int = 1000
    map_errors: float = 2.0
    table_rows: int = 28_000
    table_choice_iterations: int = 25
    table_iterations: int = 100
    max_codes: int = 2000
    code_strengths: tuple[float, ...] = (1.0, 10.0, 100.0)
    code_widths: tuple[float, ...] = (0.01, 0.5, 1.0, 2.0)
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
