"""What a training leaves to be read and drawn."""

from dataclasses import dataclass, field


@dataclass
class History:
    """What happened in training, one entry of each list for an evaluation.

    Attributes
    ----------
    steps : list of int
    train_loss : list of float
        Mean over the steps since the last evaluation.
    valid_loss : list of float
        NaN where nothing is held out.
    learning_rate : list of float
    seconds : list of float
        Since the start, time before a resume included.
    n_recoveries : int
        How often a loss or gradient was not finite.
    stopped_by : {"", "max_steps", "patience", "time_limit"}
        Empty while training goes on.
    """

    steps: list[int] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    valid_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    n_recoveries: int = 0
    stopped_by: str = ""
