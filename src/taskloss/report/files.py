"""Files of a report: write the page and the records, and read the records back."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from taskloss._storage import replace_file
from taskloss.report.page import render_page
from taskloss.report.records import FORMAT, Comparison
from taskloss.report.summary import summarize

PAGE, RESULTS = "index.html", "results.json"


def as_json(comparison: Comparison) -> str:
    """Return the text of ``results.json``, the records and their summary: one line per run, the rest indented."""
    record = {"format": FORMAT, **asdict(comparison), "summary": asdict(summarize(comparison))}
    runs = [json.dumps(run, allow_nan=False) for run in record.pop("runs")]
    head = json.dumps(record, indent=1, allow_nan=False)
    return head.removesuffix("\n}") + ',\n "runs": [\n  ' + ",\n  ".join(runs) + "\n ]\n}\n"


def write_report(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the page and the records to ``folder``; return their paths, the page first."""
    contents = {PAGE: render_page(comparison).encode(), RESULTS: as_json(comparison).encode()}
    folder.mkdir(parents=True, exist_ok=True)
    return [replace_file(folder / name, content) for name, content in contents.items()]


def read_results(path: Path) -> Comparison:
    """Read the records in a ``results.json``.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no such file; the message names the damaged entry.
    """
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:  # neither JSON nor text
        raise ValueError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply to be results of taskloss") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path} holds no results that this version reads (format {FORMAT}); run taskloss compare again")
    try:
        comparison = restore(Comparison, record, "results")
        summarize(comparison)
        comparison.check_classes()
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return comparison


def restore(kind: Any, value: Any, where: str) -> Any:
    """Convert parsed JSON to the type ``kind``, a dataclass for example; ``where`` names the entry in errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else restore(arguments[0], value, where)
    if dataclasses.is_dataclass(kind):
        return _restore_record(kind, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(restore(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: restore(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    accepted = (int, float) if kind is float else kind
    if origin is not None or isinstance(value, bool) or not isinstance(value, accepted):
        raise ValueError(f"{where} is {type(value).__name__}; expected {getattr(kind, '__name__', kind)}")
    return float(value) if kind is float else value


def _restore_record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {type(value).__name__}; expected an object")
    hints = typing.get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            fields[field.name] = restore(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} has no {field.name}")
    return kind(**fields)
