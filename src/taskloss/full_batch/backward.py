"""The backward pass of a loss over all batches, in the memory of one.

Let ``s = f(w)`` be the scores of all n samples and ``L(s)`` a loss that does not decompose over them. By the chain rule
``dL/dw = J(w)' g`` with ``g = dL/ds``, a vector of n numbers, and ``J' g`` is a sum over the batches. So:

1. score every batch, without a graph;
2. compute the loss of all scores, and its gradient ``g``;
3. run every batch again, with a graph, and backpropagate its part of ``g``.

The sum is that of the graph over all batches if both runs of a batch compute the same scores. Therefore random state, buffers
and the order of the loader are put back before the second run, and the scores are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from taskloss import _checks
from taskloss.full_batch.fields import BatchReader, Field, Part, describe, device_of, join, map_tree, move, read_scores
from taskloss.full_batch.progress import Report, make_report
from taskloss.full_batch.replay import record_buffers, record_gradients, record_loader, record_random_state
from taskloss.full_batch.replicas import Replicas

ADVICE = (
    "Put back before the second run are the buffers of the model, the global random state of torch, numpy and Python, and the "
    "generators and counters of the loader, its samplers and its data set. Register other state of the model as a buffer, draw "
    "from the global random state, and let no worker live on (persistent_workers=False). A model must not change its inputs in "
    "place, nor compute something else under torch.no_grad"
)


def full_batch_backward(
    model: nn.Module,
    batches: Iterable[Any],
    criterion: Callable[..., Tensor],
    *,
    inputs: Field | Sequence[Field] | None = None,
    target: Field | None = None,
    groups: Field | None = None,
    options: Mapping[str, Any] | None = None,
    scores: Field | None = None,
    scaler: torch.amp.GradScaler | None = None,
    tolerance: float | None = None,
    progress: bool | Report = False,
) -> Tensor:
    """Add the gradient of a loss over all batches to ``.grad`` of the parameters, with the graph of one batch in memory.

    The result is that of ``criterion(torch.cat([model(x) for x, _ in batches]), torch.cat([y for _, y in batches])).backward()``,
    random layers and buffers included. The batches are walked twice and the model scores them twice.

    A field is a key or the name of an attribute, an index, or a function of the batch.

    Args:
        model: the module that is trained, in the mode it is in; a compiled one, or one in DistributedDataParallel, too.
        batches: an iterable that can be walked twice, such as a DataLoader, or a list.
        criterion: ``(scores, target) -> loss``, a scalar; called once, with the scores of all samples and their targets.
        inputs: field that the model gets, the first of a tuple or list if left out. If it holds a dict, the model gets keyword
            arguments; a tuple or list, positional ones. If several fields are given, names become keyword arguments and the
            others positional ones. Inputs are moved to the device of the model.
        target: field with the target, the second of a tuple or list if left out; if it is a tuple or a dict of tensors, so is the
            target of the criterion. Batches are joined along the first axis.
        groups: field with query ids, given to the criterion as ``groups=``.
        options: keyword arguments of the criterion that are the same for all batches, such as ``weight`` or ``num_relevant``.
        scores: the part of the model's output that is scored: a key, attribute or index, or a function of the output.
        scaler: scales the loss for the backward pass, as ``scaler.scale(loss).backward()`` does.
        tolerance: largest difference between the scores of the two runs, relative to the largest score; by default the square
            root of the precision of their type (3e-4 in float32) or, under autocast, of its type.
        progress: True for a line on the error stream, or a function that is called with the number of batches done, both runs
            counted, and their total (None while it is unknown).

    Returns:
        The loss, without a graph and not scaled.

    Raises:
        ValueError: if the batches have another form than described, or the second run differs from the first. After any error the
            gradients, buffers and random states are those before the call.

    >>> import taskloss as tl
    >>> model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    >>> batches = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(10)]
    >>> loss = full_batch_backward(model, batches, tl.DirectLoss("average_precision"))
    >>> model[0].weight.grad.shape
    torch.Size([1, 3])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, whose buffers and parameters are known, got {type(model).__name__}")
    replicas = Replicas(model)
    with replicas.fail_together():
        parameters = _check_call(model, batches, criterion, tolerance)
    walk = _Walk(model, batches, BatchReader(inputs, target, groups), scores, device_of(parameters), make_report(progress))
    of_criterion = _modules_of_criterion(model, criterion)
    devices = {tensor.device for tensor in (*parameters, *model.buffers())}
    replicas.broadcast_buffers()
    replay = [
        record_random_state(devices),
        record_loader(batches),
        record_buffers([module for module in model.modules() if module not in of_criterion]),
    ]
    undo = [
        *replay,
        record_buffers(of_criterion),
        record_gradients({*model.parameters(), *(parameter for module in of_criterion for parameter in module.parameters())}),
    ]
    try:
        with replicas.without_ddp_sync(), replicas.fail_together():
            parts = walk.score()
            joined = join(parts) if parts else None
        empty_part = replicas.share_empty_part(parts[0] if parts else None)
        # The criterion may gather the scores of all processes, and no other exchange may come between: its errors are raised at
        # once. A loss with sync=True itself raises in all processes.
        with replicas.without_ddp_sync():
            loss, gradient = _differentiate(criterion, joined or walk.without_samples(empty_part), options or {}, scaler)
            score_gradients = gradient.split([len(part["scores"]) for part in parts])
        with replicas.without_ddp_sync(), replicas.fail_together():
            finish = record_random_state(devices)  # A criterion may have drawn numbers too.
            for restore in replay:
                restore()
            walk.backpropagate(parts, score_gradients, tolerance)
            finish()
        replicas.average_gradients()
    except BaseException:
        for restore in undo:
            restore()
        raise
    return loss


def _modules_of_criterion(model: nn.Module, criterion: Any) -> set[nn.Module]:
    """Return the modules of the criterion, which is called once, so that their buffers are not put back for the second run.

    If the criterion holds the model, as for a penalty on its weights, those of the model are left out.
    """
    if not isinstance(criterion, nn.Module):
        return set()
    modules, of_model = set(criterion.modules()), set(model.modules())
    return modules if criterion in of_model else modules - of_model


def _check_call(model: nn.Module, batches: Any, criterion: Any, tolerance: Any) -> list[nn.Parameter]:
    """Check what can be checked before the first batch, and return the parameters of the model."""
    if isinstance(batches, Iterator):
        raise TypeError(
            f"batches are walked twice, but {type(batches).__name__} is an iterator, which can be walked only once; pass a "
            "DataLoader, a list, or an object whose __iter__ returns a new iterator"
        )
    if not isinstance(batches, Iterable):
        raise TypeError(f"batches must be an iterable of batches, such as a DataLoader, got {type(batches).__name__}")
    if not callable(criterion):
        raise TypeError(f"criterion must be a function or module (scores, target) -> loss, got {type(criterion).__name__}")
    if not torch.is_grad_enabled():
        raise RuntimeError("gradients are switched off (torch.no_grad or inference_mode), so there is nothing to backpropagate")
    if tolerance is not None:
        _checks.check_positive("tolerance", tolerance)
    parameters = list(model.parameters())
    if any(nn.parameter.is_lazy(tensor) for tensor in (*parameters, *model.buffers())):
        raise ValueError("the model has lazy layers that are not initialized; run one batch through it first")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(f"{type(model).__name__} has no parameters that require a gradient")
    return parameters


def _differentiate(
    criterion: Callable[..., Tensor], joined: Part, options: Mapping[str, Any], scaler: torch.amp.GradScaler | None
) -> tuple[Tensor, Tensor]:
    """Return the loss of all scores, and its gradient in them."""
    scores, target = joined.pop("scores").requires_grad_(), joined.pop("target")
    loss = criterion(scores, target, **joined, **options)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ValueError(f"the criterion must return one number as a tensor (reduction='mean' or 'sum'), got {describe(loss)}")
    if not loss.requires_grad:
        raise ValueError("the loss does not depend on the scores: the criterion detached them, or returned a constant")
    (loss if scaler is None else scaler.scale(loss)).backward()
    if scores.grad is None:
        raise ValueError("the loss does not depend on the scores, only on parameters of the criterion")
    return loss.detach(), scores.grad


class _Walk:
    """The two runs of the model over the batches."""

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        reader: BatchReader,
        field: Field | None,
        device: torch.device | None,
        report: Report,
    ) -> None:
        self._model, self._batches, self._reader, self._field = model, batches, reader, field
        self._device, self._report = device, report
        try:
            self._total: int | None = 2 * len(batches)  # type: ignore[arg-type]  # Not all have a length; some raise.
        except (TypeError, NotImplementedError):
            self._total = None

    def score(self) -> list[Part]:
        """Return scores, target and groups of every batch."""
        parts: list[Part] = []
        # Autocast keeps converted weights, and the weights may have changed since.
        torch.clear_autocast_cache()
        with torch.no_grad():
            for batch in self._batches:
                # Copies: a view would keep a whole output in memory, and compiled models and loaders may reuse their memory.
                parts.append(map_tree(torch.clone, self._run(batch)))
                self._report(len(parts), self._total)
        self._total = 2 * len(parts)
        return parts

    def without_samples(self, empty_part: Part | None) -> Part:
        """Return what a process without batches gives to a criterion that gathers the scores of all processes."""
        if empty_part is None and not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            raise ValueError("there are no batches: the iterable is empty")
        return move(empty_part or self._reader.part_without_samples(), self._device)

    def backpropagate(self, parts: Sequence[Part], gradients: Sequence[Tensor], tolerance: float | None) -> None:
        """Run the batches again, compare them with the first run, and backpropagate the gradients of their scores."""
        torch.clear_autocast_cache()
        number, with_gradient = 0, 0
        for number, batch in enumerate(self._batches, 1):
            if number > len(parts):
                break
            first, second = parts[number - 1], self._run(batch)
            scores = second["scores"]
            _check_target_and_groups(number - 1, first, second)
            _check_scores(number - 1, first["scores"], scores, tolerance)
            if scores.requires_grad:
                with_gradient += 1
                # The types of the forward pass hold; autocast must not choose them again.
                with torch.autocast(scores.device.type, enabled=False) if _is_autocast(scores) else nullcontext():
                    torch.autograd.backward(scores, gradients[number - 1].to(scores.dtype))
            self._report(len(parts) + number, self._total)
        if number != len(parts):
            count = "more" if number > len(parts) else number
            raise ValueError(
                f"the first run over the loader gave {len(parts)} batches, the second {count}: __iter__ must return a new "
                f"iterator over the same batches every time. {ADVICE}"
            )
        if parts and not with_gradient:
            raise ValueError("the scores do not depend on a parameter that requires a gradient; does the model detach them?")

    def _run(self, batch: Any) -> Part:
        arguments, keywords = move(self._reader.inputs(batch), self._device)
        scores = read_scores(self._model(*arguments, **keywords), self._field)
        return {"scores": scores, **self._reader.target_and_groups(batch, scores.device)}


def _check_target_and_groups(number: int, first: Part, second: Part) -> None:
    def compare(a: Tensor, b: Tensor) -> None:
        if a.shape != b.shape or not bool(_same(a, b).all()):
            raise ValueError(f"batch {number} has another target or other groups in the second run than in the first. {ADVICE}")

    map_tree(compare, *({name: tree for name, tree in part.items() if name != "scores"} for part in (first, second)))


def _check_scores(number: int, first: Tensor, second: Tensor, tolerance: float | None) -> None:
    with torch.no_grad():
        if first.shape == second.shape:
            if torch.equal(first, second):
                return
            differences = (second - first).abs().masked_fill(_same(first, second), 0.0)
            # Padding, such as a score of -1e9, must not decide what counts as a small difference.
            is_padding = (first == second) & ((first == first.min()) | (first == first.max()))
            scale = first.abs().masked_fill(is_padding | ~first.isfinite(), 0.0).max()
            worst, largest = float(differences.max()), float(scale)
            if worst <= (tolerance or _precision(second) ** 0.5) * largest:
                return
            seen = f"the largest difference is {worst:.2g}, the largest score {largest:.2g}"
        else:
            seen = f"of shape {tuple(second.shape)} instead of {tuple(first.shape)}"
    raise ValueError(f"batch {number} has other scores in the second run than in the first: {seen}. {ADVICE}")


def _same(first: Tensor, second: Tensor) -> Tensor:
    return (first == second) | (first != first) & (second != second)


def _precision(scores: Tensor) -> float:
    types = [scores.dtype, *([torch.get_autocast_dtype(scores.device.type)] if _is_autocast(scores) else [])]
    return max(torch.finfo(dtype).eps for dtype in types)


def _is_autocast(scores: Tensor) -> bool:
    return torch.amp.is_autocast_available(scores.device.type) and torch.is_autocast_enabled(scores.device.type)
