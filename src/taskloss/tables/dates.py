"""Parsing dates and times of day as people write them: ``2023-12-31``, ``31/12/2023 14:05``, ``12/31/23 2:05 PM``, ``14:05``.

``01/02/2023`` is the first of February to some and the second of January to others. No cell is parsed alone: the cells of a
column decide on one order, and where none of them does, the user is asked (:mod:`taskloss.tables.table`).
"""

from __future__ import annotations

import re
from datetime import date

YEAR_FIRST, DAY_FIRST, MONTH_FIRST, TIME = "year-first", "day-first", "month-first", "time"
ORDERS = (YEAR_FIRST, DAY_FIRST, MONTH_FIRST, TIME)
"""The ways of writing dates, and times of day."""

_CLOCK = r"(?P<hour>\d{1,3}):(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d(\.\d{1,9})?))?( ?(?P<half>[AaPp])\.?[Mm]\.?)?"
_ZONE = r"( ?(?P<zone>Z|UTC|GMT|[+-]\d{2}(:?\d{2})?))?"


def _date_pattern(*parts: str) -> re.Pattern[str]:
    """Return the pattern of a date with these parts in order, and perhaps a time after it."""
    digits = {"year": r"\d{4}", "short year": r"\d{4}|\d{2}", "month": r"\d{1,2}", "day": r"\d{1,2}"}
    first, second, third = (f"(?P<{part.split()[-1]}>{digits[part]})" for part in parts)
    return re.compile(rf"{first}(?P<mark>[-/.]){second}(?P=mark){third}([T ] ?{_CLOCK}{_ZONE})?", re.ASCII)


_PATTERNS = {
    YEAR_FIRST: _date_pattern("year", "month", "day"),
    DAY_FIRST: _date_pattern("day", "month", "short year"),
    MONTH_FIRST: _date_pattern("month", "day", "short year"),
    TIME: re.compile(_CLOCK, re.ASCII),
}
_EPOCH = date(1970, 1, 1).toordinal()
_SECONDS_PER_DAY = 86_400


def parse_date(text: str, order: str) -> float | None:
    """Return a date as days since 1970-01-01 (in UTC where the text has a time zone), or a time of day as hours.

    None if the text is not written in this order. Years of two digits are 1969 to 2068, as in POSIX; with dots they need two
    digits for day and month too, because ``1.12.10`` is more likely a version.

    >>> parse_date("02/01/1970 12:00", "day-first"), parse_date("01/02/1970", "month-first")
    (1.5, 1.0)
    >>> parse_date("1970-01-01T02:00:00+02:00", "year-first"), parse_date("1:30 PM", "time")
    (0.0, 13.5)
    """
    match = _PATTERNS[order].fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    seconds = _clock_seconds(parts, limit=None if order == TIME else 24)
    if seconds is None:
        return None
    if order == TIME:
        return seconds / 3600
    year = int(parts["year"])
    if len(parts["year"]) == 2:
        if parts["mark"] == "." and len(parts["day"] + parts["month"]) < 4:
            return None
        year += 1900 if year >= 69 else 2000
    try:
        days = date(year, int(parts["month"]), int(parts["day"])).toordinal() - _EPOCH
    except ValueError:
        return None
    return (days * _SECONDS_PER_DAY + seconds - _zone_seconds(parts["zone"])) / _SECONDS_PER_DAY


def spell_date(days: float) -> str:
    """Return days since 1970 as an ISO date, for messages.

    >>> spell_date(19722.25)
    '2023-12-31'
    """
    # The time zone may lead out of the range of the calendar by a day.
    return date.fromordinal(min(max(_EPOCH + int(days // 1), 1), date.max.toordinal())).isoformat()


def _clock_seconds(parts: dict[str, str | None], limit: int | None) -> float | None:
    """Return the time of day in seconds, 0 if there is none; None if the hour does not exist. Durations have no limit."""
    if parts["hour"] is None:
        return 0.0
    hour, half = int(parts["hour"]), parts["half"]
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "Pp" else 0)
    if limit is not None and hour >= limit:
        return None
    return hour * 3600 + int(parts["minute"] or 0) * 60 + float(parts["second"] or 0)


def _zone_seconds(zone: str | None) -> int:
    """Return how far a time zone is ahead of UTC.

    >>> _zone_seconds("+0130"), _zone_seconds("-08:00"), _zone_seconds("Z")
    (5400, -28800, 0)
    """
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60
    return -seconds if zone[0] == "-" else seconds
