"""Parsing numbers as people write them: ``1,234``, ``1.234,56``, ``1 234,5``, ``12%``, ``$5``, ``(123)``, dates.

``1,234`` is 1234 to some and 1.234 to others, so no cell is parsed alone: all the cells of a column must agree on one *style*, or
the column does not hold numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taskloss.tables import dates

PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
CURRENCIES = ("$", "€", "£", "¥")
SEPARATORS = (("", "."), (",", "."), ("", ","), (".", ","), (" ", ","), (" ", "."), ("'", "."), ("'", ","))
"""Thousands separator and decimal mark of each way of writing numbers; of ways that suit equally well the first is taken."""
SPACES = str.maketrans(dict.fromkeys("\u00a0\u2009\u202f", " ") | {"\u2019": "'", "\u2212": "-"})
"""Other characters for the space, the apostrophe and the minus sign."""
AMBIGUOUS = "day-first or month-first"
"""In place of the order of dates in a column that does not decide it."""
SAMPLE = 2000
"""Number of cells that suffice to rule out a style."""


@dataclass(frozen=True)
class NumberStyle:
    """The way in which the numbers of a column are written."""

    thousands: str = ""
    """Character between groups of three digits, empty for none."""
    decimal: str = "."
    """Decimal mark."""
    percent: bool = False
    """Whether every number ends in ``%``."""
    currency: str = ""
    """Currency sign of the numbers, empty for none."""
    parentheses: bool = False
    """Whether negative numbers stand in parentheses, as in accounting."""
    date: str = ""
    """One of :data:`taskloss.tables.dates.ORDERS` for dates, which are read as days since 1970-01-01, and for times of day, which
    are read as hours; empty for numbers."""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> NumberStyle:
        """Return the style with these fields; raise a ValueError if there is no such style."""
        style = cls(**record)
        known = (
            (style.thousands, style.decimal) in SEPARATORS
            and style.currency in ("", *CURRENCIES)
            and style.date in ("", *dates.ORDERS)
            and isinstance(style.percent, bool)
            and isinstance(style.parentheses, bool)
        )
        if not known:
            raise ValueError(f"there is no style {style}")
        return style

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are written without separators, signs of percent or currency, parentheses, or dates."""
        return self == NumberStyle()

    def parse(self, text: str) -> float | None:
        """Return the number, or None if the text is not a number in this style.

        Numbers without a thousands separator belong to every style except dates.

        >>> NumberStyle(thousands=",").parse("1,234.5"), NumberStyle(thousands=".", decimal=",").parse("1.234,5")
        (1234.5, 1234.5)
        >>> NumberStyle(percent=True).parse("12 %"), NumberStyle().parse("1,5"), NumberStyle(parentheses=True).parse("(3)")
        (0.12, None, -3.0)
        """
        if self.date:
            return dates.parse_date(text, self.date)
        if PLAIN.fullmatch(text) and not self.percent and self.decimal == "." and not self.currency:
            return float(text)
        digits = _bare(text, self.currency)
        negative = self.parentheses and digits[:1] == "(" and digits[-1:] == ")"
        if negative:
            digits = digits[1:-1].strip()
        if self.percent:
            if not digits.endswith("%"):
                return None
            digits = digits[:-1].rstrip()
        if not _pattern(self.thousands, self.decimal).fullmatch(digits):
            return None
        digits = digits.replace(" ", "").replace(self.thousands, "") if self.thousands else digits.replace(" ", "")
        value = float(digits.replace(self.decimal, ".")) / (100 if self.percent else 1)
        return -value if negative else value

    def describe(self, example: str) -> str:
        """Return how numbers of this style are read, by an example; empty for plain numbers.

        >>> NumberStyle(date="day-first").describe("31/12/2023")
        "dates, '31/12/2023' is read as 2023-12-31"
        """
        if self.is_plain:
            return ""
        value = self.parse(example)
        if value is None:
            return ""
        if self.date == dates.TIME:
            return f"times, {example!r} is read as {value:.6g} hours"
        if self.date:
            return f"dates, {example!r} is read as {dates.spell_date(value)}"
        return f"{example!r} is read as {value:.12g}"


def _bare(text: str, currency: str) -> str:
    """Return the text without its currency sign, with one character for spaces, apostrophes and minus signs."""
    return text.translate(SPACES).replace(currency, "", 1).strip() if currency else text.translate(SPACES)


@functools.cache
def _pattern(thousands: str, decimal: str) -> re.Pattern[str]:
    """Return the pattern of numbers with these separators, without any signs but plus and minus."""
    mark = re.escape(decimal)
    grouped = rf"[1-9]\d{{0,2}}({re.escape(thousands)}\d{{3}})+|" if thousands else ""
    # Only the decimal point may follow no digits or be followed by none, and only with it there is an exponent.
    plain = (
        rf"({grouped}\d+)({mark}\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?" if decimal == "." else rf"({grouped}\d+)({mark}\d+)?"
    )
    return re.compile(rf"[+-]? ?({plain})", re.ASCII)


def find_style(cells: Iterable[str]) -> tuple[NumberStyle, str]:
    """Return the style that suits most of the cells, and one cell that shows it.

    A percent sign or a currency is part of the style when most cells have it. The separators are those that suit the most cells:
    a comma groups thousands if every number can be read this way (``1,234``, ``12,345.6``), and it is a decimal comma if a number
    can be read in no other way (``1,5``). A column that mixes ``1,5`` and ``1,234,567`` has no style: such cells count as text.
    The order of day and month is the one that suits more of the dates, and :data:`AMBIGUOUS` if both suit all of them; dates
    with dots have the day first, as in every country that writes them so.

    >>> find_style(["1,234", "17", "12,000.5"])
    (NumberStyle(thousands=',', decimal='.', percent=False, currency='', parentheses=False, date=''), '1,234')
    >>> find_style(["01/02/2023", "05/06/2023"])[0].date
    'day-first or month-first'
    """
    cells = list(cells)
    sample = cells[:: len(cells) // SAMPLE + 1]
    if order := _date_order(cells, sample):
        return NumberStyle(date=order), cells[0] if order == AMBIGUOUS else _example(cells, NumberStyle(date=order))
    half = len(sample) / 2
    percent = sum(cell.endswith(("%", "%)")) for cell in sample) > half
    currency = next((sign for sign in CURRENCIES if sum(sign in cell for cell in sample) > half), "")
    parentheses = any(cell[:1] == "(" for cell in (_bare(cell, currency) for cell in cells))
    styles = [NumberStyle(*separators, percent, currency, parentheses) for separators in SEPARATORS]
    possible = [style for style in styles if _count(sample, style) > 0] or styles[:1]
    style = max(possible, key=lambda style: _count(cells, style)) if len(possible) > 1 else possible[0]
    if parentheses and not any(_bare(cell, currency)[:1] == "(" for cell in cells if style.parse(cell) is not None):
        style = NumberStyle(style.thousands, style.decimal, percent, currency)
    return style, _example(cells, style)


def _date_order(cells: Sequence[str], sample: Sequence[str]) -> str:
    """Return the order of the dates if most cells are dates, :data:`AMBIGUOUS` if the cells do not decide it, else nothing."""
    if not any(mark in cell for cell in sample for mark in ":/-."):
        return ""
    possible = [order for order in dates.ORDERS if _count(sample, NumberStyle(date=order)) > len(sample) / 2]
    if not {dates.DAY_FIRST, dates.MONTH_FIRST} <= set(possible):
        return possible[0] if possible else ""
    day_first, month_first = (_count(cells, NumberStyle(date=order)) for order in (dates.DAY_FIRST, dates.MONTH_FIRST))
    if day_first == month_first:
        return dates.DAY_FIRST if all("." in cell.split(" ")[0] for cell in cells) else AMBIGUOUS
    return dates.DAY_FIRST if day_first > month_first else dates.MONTH_FIRST


def _count(cells: Iterable[str], style: NumberStyle) -> int:
    return sum(style.parse(cell) is not None for cell in cells)


def _example(cells: Iterable[str], style: NumberStyle) -> str:
    """Return a cell that shows the style: one that could not be read otherwise, if there is any."""
    readable = (cell for cell in cells if style.parse(cell) is not None)
    first = next(readable, "")
    if not PLAIN.fullmatch(first):
        return first
    return next((cell for cell in readable if not PLAIN.fullmatch(cell)), first)
