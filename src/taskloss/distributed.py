"""The losses over several processes: the metric of the samples of all ranks, with its exact gradient.

With ``sync=True``, or ``process_group=``, every rank brings its samples, along the first axis, and all ranks evaluate the loss of
their union, ordered by rank. They compute the same value and the same gradient from the same data, so the backward pass needs no
communication: each rank keeps the rows of the gradient that belong to its own scores. A training loop that averages the gradients
of the parameters over W ranks divides each of these slices by W, so they are multiplied by W before
(``gradient_reduction="mean"``); the average is then the gradient that one process would compute with all the samples.

How the data travel, and how an error on one rank becomes the same error on all, is in :mod:`taskloss._ranks`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss._ranks import MOST_TENSORS, Ranks, Shard, digest
from taskloss.known_gradient import scaled
from taskloss.layout import to_numpy
from taskloss.tasks.task import Call, Task

GRADIENT_REDUCTIONS = ("mean", "sum")


class SyncOptions(TypedDict, total=False):
    """Settings of every loss that runs over several processes."""

    sync: bool | None
    """Whether the loss is that of the samples of all ranks. Left out, it is if ``process_group`` is given."""
    process_group: Any
    """The ranks that take part, a group of ``torch.distributed``; left out or None, with ``sync=True``, all of them."""
    gradient_reduction: str
    """What the training loop does with the gradients of the ranks: ``"mean"`` (default; DDP and FSDP), or ``"sum"``."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings of :class:`SyncOptions` that need no group."""
    if settings.get("sync") is not None:
        _checks.check_flag("sync", settings["sync"])
    _checks.check_choice("gradient_reduction", settings.get("gradient_reduction", "mean"), GRADIENT_REDUCTIONS)


def wants_union(sync: bool | None, process_group: Any) -> bool:
    """Whether these settings ask for the loss of all ranks; ``sync=False`` in a call turns off what the constructor was given."""
    return bool(sync) or (sync is None and process_group is not None)


def without_sync(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call without those of :class:`SyncOptions`."""
    return {name: value for name, value in options.items() if name not in SyncOptions.__annotations__}


def gather(*tensors: Tensor, process_group: Any = None) -> tuple[Tensor, ...]:
    """Return the rows of all ranks, ordered by rank, of each tensor: for metrics of what several processes have predicted.

    The tensors of a rank have one row per sample along their first axis; the ranks may have different numbers of samples, also
    none. All ranks must call it. The results have no gradient.

    Args:
        tensors: one or more, with the same dtype and the same shape after the first axis on all ranks, such as scores, target and
            groups.
        process_group: the ranks that take part; all of them if left out.
    """
    union, _ = Ranks(process_group).exchange(lambda: _read_tensors(tensors))
    return tuple(union.values())


# torch.compile breaks its graph here, since the exchange cannot be traced. torch.compiler.disable would do the same, but load the
# whole compiler with ``import taskloss``.
@torch._disable_dynamo  # type: ignore[attr-defined]  # It has no public name.
def loss_of_union(
    loss: Callable[..., Tensor], task: Task, scores: Tensor, target: Tensor, options: Mapping[str, Any], **settings: Any
) -> Tensor:
    """Return the loss of the samples of all ranks, as a function of the scores of this rank.

    Args:
        loss: computes the loss of one process, ``loss(scores, target, **options)``.
        task: the task of the loss.
        scores: those of this rank.
        target: that of this rank.
        options: those of the call on this rank; ``loss`` gets them without those of :class:`SyncOptions`.
        settings: further settings of the loss, which must be equal on all ranks.
    """
    ranks = Ranks(options.get("process_group"))
    if ranks.count == 1:
        return loss(scores, target, **without_sync(options))
    union, counts = ranks.exchange(lambda: _read_call(task, scores, target, options, settings))
    factor = ranks.count if options.get("gradient_reduction", "mean") == "mean" else 1
    sizes = counts["scores"]
    # torch has no types for apply.
    all_scores = _Union.apply(scores, [union.pop("scores")], sum(sizes[: ranks.index]), factor)  # type: ignore[no-untyped-call]
    all_target = union.pop("target")
    if "groups" in union:
        union |= _values_by_query(union, counts, ranks)
    try:
        return loss(all_scores, all_target, **{**without_sync(options), **union})
    except (TypeError, ValueError) as error:
        # All ranks raise it, since all evaluate the same data.
        ends = zip(ranks.global_ranks, sizes, np.cumsum(sizes), strict=True)
        rows = (f"rank {number}: {end - size} to {end - 1}" for number, size, end in ends if size)
        error.add_note(f"The samples of all ranks were read as one batch; rows of {', '.join(rows)}.")
        raise


class _Union(torch.autograd.Function):
    """The scores of all ranks, at least float32, as a function of those of this rank."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, union: list[Tensor], start: int, factor: int) -> Tensor:
        ctx.rows, ctx.factor, ctx.dtype = slice(start, start + len(scores)), factor, scores.dtype
        # In a list, the union is no input of the function, and can be its output without a copy.
        return union[0].to(torch.promote_types(scores.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return scaled(grad_outputs[0][ctx.rows], ctx.factor, ctx.dtype), None, None, None


# --- what one rank brings ---------------------------------------------------------------------------------------------


def _read_tensors(tensors: Sequence[Any]) -> Shard:
    """Check the arguments of :func:`gather`."""
    if not 0 < len(tensors) <= MOST_TENSORS:
        raise ValueError(f"gather takes 1 to {MOST_TENSORS} tensors, got {len(tensors)}")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"argument {i} of gather must be a torch.Tensor, got {type(tensor).__name__}; use torch.as_tensor")
        if tensor.ndim == 0 or len(tensor) != len(tensors[0]):
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise ValueError(f"the tensors have shapes {shapes}; expected one row per sample in each, along the first axis")
    return Shard({f"argument {i}": tensor.detach() for i, tensor in enumerate(tensors)}, {"function": _text("gather")})


def _read_call(task: Task, scores: Tensor, target: Tensor, options: Mapping[str, Any], settings: Mapping[str, Any]) -> Shard:
    """Check the arguments of a loss, as far as they can be without those of the other ranks."""
    check_settings(options)
    _checks.check_tensors(scores, target)
    _checks.check_reduction(options.get("reduction", "mean"))
    dims, ignore_index = _checks.as_dims(options.get("dim")), options.get("ignore_index")
    _checks.check_ignore_index(ignore_index)
    data = {name: _checks.as_optional_tensor(name, options.get(name)) for name in ("groups", "weight", "num_relevant")}
    arrays = {name: None if tensor is None else to_numpy(tensor) for name, tensor in data.items()}
    groups = arrays["groups"]
    task.refuse_unknown(Call(dims, groups, ignore_index, arrays["num_relevant"], arrays["weight"]))
    _check_batch_axis(task, scores, target)
    _check_finite(scores, target, ignore_index)

    item_per_row = task.has_item_per_row(tuple(scores.shape), tuple(target.shape), dims, groups is not None)
    on_first_axis = dims is None or _checks.check_dims(dims, scores.ndim)[0] == 0
    by_query = groups is not None and on_first_axis and not item_per_row
    rows = {"scores": scores.detach(), "target": target}
    defaults = {"dim": None, "ignore_index": None, "reduction": "mean", "gradient_reduction": "mean"}
    described = {"function": "loss", "task": task, **settings, **{name: options.get(name, defaults[name]) for name in defaults}}
    must_match = {name: _text(value) for name, value in described.items()}
    for name, tensor in data.items():
        if tensor is None:
            must_match[name] = "not given"
        elif by_query if name == "groups" else tensor.ndim > 0 and (by_query or item_per_row):
            _check_rows(name, to_numpy(tensor), None if item_per_row else groups, len(scores))
            rows[name] = tensor
        else:
            values = tensor.tolist() if tensor.numel() <= 8 else f"of digest {digest(to_numpy(tensor).tobytes()):x}"
            must_match[name] = f"{tensor.dtype} {values}, shape {tuple(tensor.shape)}"
    return Shard(rows, must_match)


def _check_rows(name: str, values: np.ndarray, groups: np.ndarray | None, samples: int) -> None:
    """Check that an option has one row per sample or, if it is not the groups themselves, one per query of this rank."""
    if name == "groups":
        return _checks.check_groups(values, samples)
    expected = samples if groups is None else len(np.unique(groups))
    if len(values) != expected:
        what = "row of the scores" if groups is None else "query of this rank, in sorted order of their ids"
        raise ValueError(f"{name} has shape {values.shape}; expected {expected} in all, one per {what}")
    return None


def _check_batch_axis(task: Task, scores: Tensor, target: Tensor) -> None:
    """Check that the first axis of scores and target holds the samples, or the items, of this rank."""
    if scores.ndim == 0 or target.ndim == 0 or len(scores) != len(target):
        raise ValueError(
            f"scores has shape {tuple(scores.shape)} and target has shape {tuple(target.shape)}; over several processes the "
            "first axis of both is the batch of this rank, so its length must be the same"
        )
    if task.target_kind == "structure" and not task.values_shape(tuple(scores.shape), tuple(target.shape), None, None):
        raise ValueError(
            "over several processes the first axis is the batch of this rank, and batch_dims=0 says that there is none; pass "
            "scores[None] and target[None] with batch_dims=1"
        )


def _check_finite(scores: Tensor, target: Tensor, ignore_index: int | None) -> None:
    """Check that no score is NaN or infinite, except where the target is ignored."""
    # The sum of finite scores may be infinite; then they are looked at one by one.
    if torch.isfinite(scores.detach().sum()):
        return
    kept = None
    if ignore_index is not None:
        counts = to_numpy(target) != ignore_index
        # A mask of classes lacks the second axis of the scores.
        kept = np.broadcast_to(counts if target.ndim == scores.ndim else np.expand_dims(counts, 1), scores.shape)
    _checks.check_finite(to_numpy(scores), kept)


def _values_by_query(union: Mapping[str, Tensor], counts: Mapping[str, Sequence[int]], ranks: Ranks) -> dict[str, Tensor]:
    """Return weight and num_relevant with one value per query of the union, in sorted order of the ids.

    They come with one value per query of each rank; a query that several ranks hold must have the same value on each.
    """
    values = {name: rows for name, rows in union.items() if name != "groups"}
    if not values:
        return values
    ids = [np.unique(to_numpy(part)) for part in union["groups"].split(list(counts["groups"]))]
    all_ids, owner = np.concatenate(ids), np.repeat(ranks.global_ranks, [len(part) for part in ids])
    _, first, index = np.unique(all_ids, return_index=True, return_inverse=True)
    for name, rows in values.items():
        array = to_numpy(rows)
        differ = array != array[first][index]
        if differ.any():
            other = int(np.nonzero(differ)[0][0])
            one = int(first[index[other]])
            raise ValueError(
                f"{name} of query {all_ids[other]} is {array[one].tolist()} on rank {owner[one]} and {array[other].tolist()} on "
                f"rank {owner[other]}; a query that several ranks hold is one ranking or labeling, so its {name} must be the "
                "same on each"
            )
        values[name] = rows[torch.from_numpy(first).to(rows.device)]
    return values


def _text(value: Any) -> str:
    """Return the text of a setting, the same in all processes if the setting is: without addresses, with what texts leave out."""
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    parts = (value, *(getattr(value, field.name) for field in fields))
    contents = (f", digest {digest(content):x}" for part in parts for content in _hidden_content(part))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)) + "".join(contents)


def _hidden_content(value: Any) -> Iterator[bytes]:
    """Yield what the text of a value does not show: numbers of a cost matrix, weights of a module, code of a function."""
    if isinstance(getattr(value, "values", None), np.ndarray):
        yield value.values.tobytes()
    elif isinstance(value, nn.Module):
        yield from (to_numpy(tensor).tobytes() for tensor in value.state_dict().values())
    else:
        function = getattr(value, "py_func", value)  # numba keeps the function that it has compiled.
        if isinstance(function, FunctionType):
            captured = [cell.cell_contents for cell in function.__closure__ or ()]
            yield f"{_plain_text(function.__code__)} {_plain_text(captured)}".encode()


def _plain_text(value: Any) -> str:
    """Return a text of code, numbers and strings, and of other things only their type.

    What a function captures may rightly differ between ranks: its device, a logger, an open file.
    """
    if isinstance(value, CodeType):
        return f"{value.co_code!r} {value.co_names} {_plain_text(value.co_consts)}"
    if isinstance(value, (tuple, list)):
        return str([_plain_text(part) for part in value])
    if isinstance(value, frozenset):  # Their order is another in every process.
        return str(sorted(_plain_text(part) for part in value))
    return repr(value) if isinstance(value, (bool, int, float, complex, str, bytes)) else type(value).__name__
