"""Numbers as people write them: ``1,234``, ``3,14``, ``12%``, ``$5``, dates.

``1,234`` is 1234 to some and 1.234 to others, so no cell is read alone: all the cells of a column agree on one *style*, or the
column is no column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z?)?", re.ASCII)
CURRENCIES = ("$", "€", "£", "¥")


@dataclass(frozen=True)
class NumberStyle:
    """How the numbers of a column are written."""

    comma: str = "none"
    """What a comma means: ``"none"`` (there are none), ``"thousands"`` or ``"decimal"``."""
    percent: bool = False
    """Every number ends in ``%``."""
    currency: str = ""
    """The sign that every number begins with."""
    date: bool = False
    """ISO dates, read as days since 1970-01-01."""

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are written as computers write them."""
        return self == NumberStyle()

    def parse(self, text: str) -> float | None:
        """The number, or None if the text is none in this style. Plain numbers are understood in every style but dates.

        >>> NumberStyle(comma="thousands").parse("1,234.5"), NumberStyle(comma="decimal").parse("1,5")
        (1234.5, 1.5)
        >>> NumberStyle(percent=True).parse("12 %"), NumberStyle().parse("1,5")
        (0.12, None)
        """
        if self.date:
            return _days(text)
        if self.currency:
            text = text.replace(self.currency, "", 1).strip()
        if self.percent:
            if not text.endswith("%"):
                return None
            text = text[:-1].rstrip()
        if self.comma == "thousands" and GROUPED.fullmatch(text):
            text = text.replace(",", "")
        elif self.comma == "decimal" and DECIMAL_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        if not PLAIN.fullmatch(text):
            return None
        return float(text) / (100 if self.percent else 1)

    def describe(self, example: str) -> str:
        """What a reader of the notices should know; empty for plain numbers."""
        if self.is_plain:
            return ""
        if self.date:
            return "dates, read as days since 1970"
        return f"{example!r} is read as {self.parse(example):g}"


def _days(text: str) -> float | None:
    if not DATE.fullmatch(text):
        return None
    try:
        moment = np.datetime64(text.rstrip("Z").replace(" ", "T"), "us")
    except ValueError:
        return None
    return float(moment.astype(np.int64)) / 86_400e6


def find_style(cells: Iterable[str]) -> tuple[NumberStyle, str]:
    """The style that suits most of the cells, and one cell that shows it.

    A percent sign or a currency is taken for the style when most cells have it. A comma groups thousands if every number with a
    comma allows it (``1,234``, ``12,345.6``), and is a decimal comma if all of them allow that and one allows nothing else
    (``1,5``). A column that mixes ``1,5`` and ``1,234,567`` has no style: those cells then count as text.

    >>> find_style(["1,234", "17", "12,000.5"])
    (NumberStyle(comma='thousands', percent=False, currency='', date=False), '1,234')
    """
    cells = list(cells)
    half = len(cells) / 2
    if sum(_days(cell) is not None for cell in cells) > half:
        return NumberStyle(date=True), ""
    percent = sum(cell.endswith("%") for cell in cells) > half
    currency = next((sign for sign in CURRENCIES if sum(sign in cell for cell in cells) > half), "")
    comma, example = "none", ""
    bare = {cell: cell.replace(currency, "", 1).strip().rstrip("%").rstrip() for cell in cells}
    with_comma = {cell: text for cell, text in bare.items() if "," in text}
    numbers = {cell: text for cell, text in with_comma.items() if GROUPED.fullmatch(text) or DECIMAL_COMMA.fullmatch(text)}
    if numbers:
        example = next(iter(numbers))
        if all(GROUPED.fullmatch(text) for text in numbers.values()):
            comma = "thousands"
        elif all(DECIMAL_COMMA.fullmatch(text) for text in numbers.values()):
            comma = "decimal"
            example = next(cell for cell, text in numbers.items() if not GROUPED.fullmatch(text))
    style = NumberStyle(comma, percent, currency)
    if not example:
        example = next((cell for cell in cells if style.parse(cell) is not None), "")
    return style, example
