"""Files of tensors and facts: safetensors with JSON in its header, never pickle, written completely or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

_FACTS = "taskloss"
"""The only key of the header's metadata. The order of several keys is not fixed, so equal models would give different files."""


def replace_file(path: Path, content: bytes) -> Path:
    """Write ``path`` completely or not at all: readers never see half a file, not even after the machine has crashed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write one file with the tensors by name and the facts as JSON; the same content gives the same bytes."""
    # Copies: safetensors refuses tensors that share memory, such as tied weights.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in sorted(tensors.items())}
    return replace_file(path, _safetensors().torch.save(copies, {_FACTS: json.dumps(facts, sort_keys=True)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, on the CPU, and the facts that :func:`write_tensors` wrote."""
    library = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with library.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        return tensors, json.loads(metadata[_FACTS])
    except (library.SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} was not written by taskloss, or is damaged: {error}") from error


def tensors_under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name begins with ``prefix`` and a dot, without that beginning."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError("files of models and checkpoints need safetensors: pip install 'taskloss[estimators]'") from error
    return safetensors
