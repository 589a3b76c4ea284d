"""Parts of pages that are written from result rows, between markers."""

from pathlib import Path


def markers(name: str) -> tuple[str, str]:
    """What begins and what ends a part of a page."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def fill(page: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- name:begin -->`` and ``<!-- name:end -->`` of a page.

    Parameters
    ----------
    page : Path
    name : str
        Of the markers, which must be there once.
    text : str
    """
    begin, end = markers(name)
    whole = page.read_text(encoding="utf-8")
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise ValueError(f"{page} must have the markers {begin} and {end} once")
    before, after = whole.split(begin)[0], whole.split(end)[1]
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
