"""The one error of this package."""

from __future__ import annotations


class TableError(ValueError):
    """A file that cannot be used as it is. The message names the row and the column, and says what to do.

    Rows are counted from 1, the header not included.
    """


def shorten(value: object, most: int = 40) -> str:
    """A cell as messages show it: in quotes, on one line, not too long.

    >>> shorten("a" * 99, most=8)
    "'aaaaaaa...'"
    """
    text = repr(str(value))
    return text if len(text) <= most + 2 else f"{text[:most]}...'"
