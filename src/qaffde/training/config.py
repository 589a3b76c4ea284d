"""Settings of the training algorithms."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AdaptiveConfig:
    """Settings of Algorithm 1, :func:`qaffde.training.fit_adaptive_features`.

    Lengths are in bandwidths there, so the defaults do not depend on the units of the data. They
    take a second or two for 1000 features in two dimensions.

    Parameters
    ----------
    n_pairs : int, default=10_000
        Pairs in an epoch, as many as in the paper; as many again are held out.
    n_epochs : int, default=30
    batch_size : int, default=500
        Pairs in a step of Adam.
    learning_rate : float, default=0.01
        Of the first step; it falls to zero as a polynomial.
    decay_power : float, default=1.0
        Degree of that polynomial.
    near_share : float, default=0.25
        Share of near pairs, in [0, 1]. Random pairs alone show only zeros of the kernel.
    fresh : bool, default=True
        Draw new pairs for every epoch. False is the paper's fixed set, which many features
        begin to learn by heart.

    Examples
    --------
    >>> AdaptiveConfig(n_epochs=10).n_steps
    200
    """

    n_pairs: int = 10_000
    n_epochs: int = 30
    batch_size: int = 500
    learning_rate: float = 0.01
    decay_power: float = 1.0
    near_share: float = 0.25
    fresh: bool = True

    def __post_init__(self) -> None:
        for name in ("n_pairs", "n_epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        for name in ("learning_rate", "decay_power"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        if not 0 <= self.near_share <= 1:
            raise ValueError(f"near_share must lie between 0 and 1, got {self.near_share!r}")

    @property
    def n_steps(self) -> int:
        """Steps of Adam in all."""
        return self.n_epochs * -(-self.n_pairs // self.batch_size)
