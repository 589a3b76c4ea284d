"""Methods that an estimator cannot have, with the reason."""

from typing import Any


class Refused:
    """Attribute that is not there, and says why.

    ``hasattr`` is False, as scikit-learn expects of a method that does not apply.

    Parameters
    ----------
    reason : str

    Examples
    --------
    >>> class Stone:
    ...     fly = Refused("stones have no wings")
    >>> hasattr(Stone(), "fly")
    False
    >>> Stone().fly
    Traceback (most recent call last):
    AttributeError: stones have no wings
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __get__(self, instance: object, owner: Any = None) -> Any:
        raise AttributeError(self.reason)
