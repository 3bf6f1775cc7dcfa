"""Batches as loaders give them: which part the model gets, which part is the target, and which the groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Field = str | int | Callable[[Any], Any]
"""A part of a batch or of the output of a model: a key or the name of an attribute, an index, or a function of the whole."""


Part = dict[str, Any]
"""What a criterion gets of a batch: ``scores``, ``target`` (a tensor, or a tuple or dict of tensors), and perhaps ``groups``."""


class BatchReader:
    """The fields of a batch by the names that the caller gave them."""

    def __init__(self, inputs: Field | Sequence[Field] | None, target: Field | None, groups: Field | None) -> None:
        self._inputs, self._target, self._groups = inputs, target, groups

    def inputs(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments of the model."""
        self._check_form(batch)
        fields = 0 if self._inputs is None else self._inputs
        if isinstance(fields, Sequence) and not isinstance(fields, str):
            named = {field: select(batch, field, "inputs") for field in fields if isinstance(field, str)}
            return tuple(select(batch, field, "inputs") for field in fields if not isinstance(field, str)), named
        selected = select(batch, fields, "inputs")
        if isinstance(selected, Mapping):
            return (), dict(selected)
        # Named tuples, such as a PackedSequence, are one argument.
        return tuple(selected) if type(selected) in (tuple, list) else (selected,), {}

    def target_and_groups(self, batch: Any, device: torch.device) -> Part:
        """Return target and groups on a device, as tensors."""
        fields = {"target": 1 if self._target is None else self._target, "groups": self._groups}
        return {
            name: map_tree(lambda part, name=name: _as_tensor(part, name).to(device), select(batch, field, name))
            for name, field in fields.items()
            if field is not None
        }

    def part_without_samples(self) -> Part:
        """Return a part for one score per sample and targets that are integers."""
        names = ("target",) if self._groups is None else ("target", "groups")
        return {"scores": torch.empty(0), **{name: torch.empty(0, dtype=torch.int64) for name in names}}

    def _check_form(self, batch: Any) -> None:
        if self._inputs is not None and self._target is not None:
            return
        advice = "name its parts: inputs=..., target=... (keys, attributes, indices or functions of the batch)"
        if not isinstance(batch, (tuple, list)):
            raise ValueError(f"expected batches (inputs, target), got {describe(batch)}; {advice}")
        if len(batch) < 2 or (len(batch) > 2 and self._inputs is None and self._target is None and self._groups is None):
            raise ValueError(f"expected batches (inputs, target), got {describe(batch)}; {advice}, groups=2 for query ids")


def select(whole: Any, field: Field, what: str) -> Any:
    """Return the part of a batch or of an output that a field names."""
    if callable(field):
        return field(whole)
    try:
        if isinstance(field, str) and not isinstance(whole, Mapping):
            return getattr(whole, field)
        return whole[field]
    except (AttributeError, KeyError, IndexError, TypeError):
        raise ValueError(f"{what}={field!r} is not a part of {describe(whole)}") from None


def describe(whole: Any) -> str:
    """Describe a batch or an output for a message, with the names of its parts."""
    kind = type(whole).__name__
    if isinstance(whole, Mapping):
        return f"a {kind} with the keys {', '.join(map(repr, whole))}"
    if dataclasses.is_dataclass(whole):
        return f"a {kind} with the fields {', '.join(field.name for field in dataclasses.fields(whole))}"
    if isinstance(whole, tuple) and hasattr(whole, "_fields"):
        return f"a {kind} with the fields {', '.join(whole._fields)}"
    if isinstance(whole, (tuple, list)):
        return f"a {kind} of {len(whole)}: {', '.join(describe(part) for part in whole[:5])}"
    if isinstance(whole, Tensor):
        return f"a tensor of shape {tuple(whole.shape)}"
    return f"an object of type {kind}"


def read_scores(output: Any, field: Field | None) -> Tensor:
    """Return the scores in the output of a model."""
    scores = output if field is None else select(output, field, "scores")
    if not isinstance(scores, Tensor):
        which = "the model returned" if field is None else f"scores={field!r} selected"
        raise ValueError(
            f"{which} {describe(scores)}; say which part of the output is the tensor of scores, as in scores='logits'"
        )
    if scores.ndim == 0 or not scores.is_floating_point():
        raise ValueError(
            f"the scores of a batch must be floats with the samples along the first axis, got {describe(scores)} ({scores.dtype})"
        )
    return scores


def map_tree(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply a function to the leaves of dicts, tuples and lists of the same form."""
    if isinstance(first, Mapping):
        return {key: map_tree(function, first[key], *(other[key] for other in others)) for key in first}
    if type(first) in (tuple, list):
        return type(first)(map_tree(function, *parts) for parts in zip(first, *others, strict=True))
    return function(first, *others)


def join(parts: Sequence[Part]) -> Part:
    """Concatenate the parts along the first axis."""

    def concatenate(*tensors: Tensor) -> Tensor:
        for number, tensor in enumerate(tensors):
            if tensor.shape[1:] != tensors[0].shape[1:]:
                raise ValueError(
                    f"batch {number} has scores or targets of shape {tuple(tensor.shape)}, batch 0 of {tuple(tensors[0].shape)}; "
                    "batches are joined along the first axis, so the other axes must agree. Pad them to a common length "
                    "(ignore_index), or flatten them, as in scores=torch.flatten, target=lambda batch: batch[1].flatten()"
                )
        return torch.cat(tensors)

    return map_tree(concatenate, *parts)


def move(tree: Any, device: torch.device | None) -> Any:
    """Return inputs on a device; what is neither a tensor nor has a method ``to`` stays as it is."""

    def move_part(part: Any) -> Any:
        if isinstance(part, Tensor):
            # Copies to the CPU must be complete before they are read.
            return part if part.device == device else part.to(device, non_blocking=device != torch.device("cpu"))
        return part.to(device) if hasattr(part, "to") and not isinstance(part, (nn.Module, type)) else part

    return tree if device is None else map_tree(move_part, tree)


def device_of(parameters: Iterable[Tensor]) -> torch.device | None:
    """Return the device of the parameters, or None if they lie on several."""
    devices = {parameter.device for parameter in parameters}
    return devices.pop() if len(devices) == 1 else None


def _as_tensor(part: Any, what: str) -> Tensor:
    if isinstance(part, (Tensor, np.ndarray)) and part.ndim > 0:
        return torch.as_tensor(part)
    raise ValueError(
        f"{what} must be a tensor or an array with the samples along its first axis (or a tuple or dict of such), got "
        f"{describe(part)}"
    )
