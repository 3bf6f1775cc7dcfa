"""Parsing numbers as people write them: ``1,234``, ``3,14``, ``12%``, ``$5``, dates.

``1,234`` is 1234 to some and 1.234 to others, so no cell is parsed alone: all the cells of a column must agree on one *style*, or
the column does not hold numbers.
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
MICROSECONDS_PER_DAY = 86_400e6


@dataclass(frozen=True)
class NumberStyle:
    """The way in which the numbers of a column are written."""

    comma: str = "none"
    """Meaning of a comma: ``"none"`` (there are no commas), ``"thousands"`` or ``"decimal"``."""
    percent: bool = False
    """Whether every number ends in ``%``."""
    currency: str = ""
    """Currency sign of the numbers, empty for none."""
    date: bool = False
    """Whether the cells are ISO dates, read as days since 1970-01-01."""

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are written without commas, signs of percent or currency, or dates."""
        return self == NumberStyle()

    def parse(self, text: str) -> float | None:
        """Return the number, or None if the text is not a number in this style. All styles except dates accept plain numbers.

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
        """Return a notice about how numbers of this style are read; empty for plain numbers."""
        if self.is_plain:
            return ""
        if self.date:
            return "dates, read as days since 1970"
        return f"{example!r} is read as {self.parse(example):g}"


def _days(text: str) -> float | None:
    """Return an ISO date as days since 1970-01-01, None if the text is not a date."""
    if not DATE.fullmatch(text):
        return None
    try:
        moment = np.datetime64(text.rstrip("Z").replace(" ", "T"), "us")
    except ValueError:
        return None
    return float(moment.astype(np.int64)) / MICROSECONDS_PER_DAY


def find_style(cells: Iterable[str]) -> tuple[NumberStyle, str]:
    """Return the style that suits most of the cells, and one cell that shows it.

    A percent sign or a currency is part of the style when most cells have it. A comma groups thousands if every number with a
    comma can be read this way (``1,234``, ``12,345.6``). It is a decimal comma if every such number can be read that way and one
    can be read in no other (``1,5``). A column that mixes ``1,5`` and ``1,234,567`` has no style: these cells count as text.

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
    numeric = {cell: text for cell, text in with_comma.items() if GROUPED.fullmatch(text) or DECIMAL_COMMA.fullmatch(text)}
    if numeric:
        example = next(iter(numeric))
        if all(GROUPED.fullmatch(text) for text in numeric.values()):
            comma = "thousands"
        elif all(DECIMAL_COMMA.fullmatch(text) for text in numeric.values()):
            comma = "decimal"
            example = next(cell for cell, text in numeric.items() if not GROUPED.fullmatch(text))
    style = NumberStyle(comma, percent, currency)
    if not example:
        example = next((cell for cell in cells if style.parse(cell) is not None), "")
    return style, example
