"""A memory of scores: the last batches join the ranking of the present one.

For those who can afford neither a large batch nor two passes over the data. The scores of earlier batches come from older
weights, so the gradient is not that of any one set of weights; this is the price of a ranking that is longer than a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taskloss import _checks
from taskloss._ranks import Ranks, Shard, digest
from taskloss.distributed import wants_union
from taskloss.known_gradient import scaled

_BUFFERS = ("scores", "target", "groups", "sizes")


class ScoreMemory(nn.Module):
    """A criterion that ranks the samples of the present batch among those of the last few batches.

    In training, the value is that of the criterion for the union of the present batch and the remembered ones. The gradient flows
    to the present scores only. A batch is a part of the union, and its part of the gradient is as much smaller; it is multiplied
    by ``samples of the union / samples of the batch``, so that for samples in random order it has the scale of the gradient of
    all the union, and learning rates carry over from the plain criterion. After the call, the batch is remembered and the oldest
    one forgotten. In evaluation (``module.eval()``), the criterion is called as it is, and nothing is remembered.

    With ``groups``, remembered samples join the queries of the present batch; other queries are no part of the value. The factor
    is then that of each query. An id must mean the same query in every batch: ids that count from 0 in each batch would join
    different queries. Samples whose targets are all ``ignore_index`` are neither remembered nor counted.

    What is remembered is part of ``state_dict``. Keep ``batches`` below the batches of an epoch: beyond, the union holds a sample
    twice. With ``sync=True`` or ``process_group=``, all ranks remember the samples of all ranks, which takes one more exchange of
    scores and targets; every rank must restore the state. DDP overwrites the buffers of its module, such as this memory, with
    those of rank 0: keep the criterion outside of the DDP-wrapped module, or use ``sync=True``.

    Args:
        criterion: a loss of this library, or any function ``(scores, target, **options) -> loss`` whose samples lie along the
            first axis. It must be a metric or a mean over samples: in a sum over samples, the part of a batch is not smaller, and
            its gradient would be too large by the factor. ``num_relevant`` is refused, as are calls in which each row is a
            ranking of its own (``dim=1``).
        batches: number of batches that are remembered.

    >>> import taskloss as tl
    >>> criterion = ScoreMemory(tl.DirectLoss("average_precision"), batches=1)
    >>> criterion(torch.tensor([0.9, 0.5]), torch.tensor([1, 0])).item()
    0.0
    >>> scores = torch.tensor([0.2, 0.3], requires_grad=True)
    >>> loss = criterion(scores, torch.tensor([0, 1]))          # the ranking is 0.9, 0.5, 0.3, 0.2
    >>> round(loss.item(), 4)
    0.1667
    >>> loss.backward()
    >>> scores.grad                                             # twice the gradient of a ranking of all four: half are present
    tensor([ 1., -1.])
    """

    scores: Tensor
    """Remembered scores, the oldest batch first, at least float32."""
    target: Tensor
    groups: Tensor
    """Query ids of the remembered samples; empty if there are none."""
    sizes: Tensor
    """Number of samples of each remembered batch, int64."""

    def __init__(self, criterion: Callable[..., Tensor], *, batches: int) -> None:
        super().__init__()
        if not callable(criterion):
            raise TypeError(f"criterion must be a loss, called as criterion(scores, target), got {type(criterion).__name__}")
        self.criterion = criterion
        self.batches = _checks.check_count("batches", batches)
        for name in _BUFFERS:
            self.register_buffer(name, torch.empty(0))
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        for name in _BUFFERS:
            setattr(self, name, torch.empty(0, dtype=torch.int64, device=self.scores.device))

    def forward(self, scores: Tensor, target: Tensor, **options: Any) -> Tensor:
        if not self.training:
            return self.criterion(scores, target, **options)
        settings = {**getattr(self.criterion, "settings", {}), **options}
        if wants_union(settings.get("sync"), settings.get("process_group")):
            ranks = Ranks(settings.get("process_group"))
            rows, counts = ranks.exchange(lambda: self._shard(scores, target, settings))
            batch, first_rank = _Rows(rows["scores"], rows["target"], rows.get("groups")), ranks.index == 0
            own_groups = None if batch.groups is None else batch.groups.split(counts["groups"])[ranks.index]
        else:
            batch, first_rank = self._read(scores, target, settings), True
            own_groups = batch.groups
        past = self._past(batch)
        kept = _kept_rows(batch.target, settings.get("ignore_index"))
        # torch has no types for apply.
        present = _Rescaled.apply(scores, _factors(own_groups, batch, past, kept))  # type: ignore[no-untyped-call]
        # The criterion takes the samples of all ranks together, so only one of them may bring the memory.
        union = _Rows(present, target, own_groups).join(past if first_rank else past.empty())
        if union.groups is not None:
            options["groups"] = union.groups
        value = self.criterion(union.scores, union.target, **options)
        self._remember(batch.select(kept))
        return value

    def _read(self, scores: Tensor, target: Tensor, settings: dict[str, Any]) -> _Rows:
        """Check a call, and return its rows."""
        rows = _read_rows(scores, target, settings.get("groups"))
        _checks.check_ignore_index(settings.get("ignore_index"))
        if settings.get("num_relevant") is not None:
            raise ValueError(
                "num_relevant cannot be combined with a memory of scores: it counts the relevant items of one ranking, and the "
                "remembered samples make it another. Leave it out, or call the criterion without a memory"
            )
        if rows.groups is not None:
            _checks.check_groups(rows.groups.cpu().numpy(), len(scores))
        _check_first_axis(self.criterion, scores, target, settings.get("dim"), rows.groups is not None)
        return rows

    def _shard(self, scores: Tensor, target: Tensor, settings: dict[str, Any]) -> Shard:
        """Return what this rank brings to a call over several processes, and what must be equal on all ranks."""
        rows = self._read(scores, target, settings)
        weighted = settings.get("weight") is not None
        if weighted and rows.groups is not None:
            raise ValueError(
                "weights of queries cannot be combined with a memory of scores over several processes, since the memory "
                "brings queries of other ranks; leave out weight=, or call the criterion without a memory"
            )
        equal = {
            "function": "ScoreMemory",
            "batches": str(self.batches),
            "weight": "given" if weighted else "not given",
            "dim": str(_checks.as_dims(settings.get("dim"))),
            "ignore_index": str(settings.get("ignore_index")),
            "the memory, to be restored or reset on all ranks alike": self._describe_memory(),
        }
        return Shard({name: part for name, part in rows._asdict().items() if part is not None}, equal)

    def _describe_memory(self) -> str:
        """Return a text that is the same on all ranks if what they remember is."""
        if not len(self.sizes):
            return "empty"
        parts = [getattr(self, name).cpu() for name in _BUFFERS]
        content = b"".join(part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for part in parts)
        kinds = "".join(f"{part.dtype}{tuple(part.shape)}" for part in parts)
        return f"batches of {', '.join(map(str, self.sizes.tolist()))} samples of digest {digest(kinds.encode() + content):x}"

    def _past(self, batch: _Rows) -> _Rows:
        """Return the remembered samples that join this batch: all, or with groups those of its queries."""
        if not len(self.scores):
            return batch.empty()
        past = self._memory(batch.scores.device)
        if past.kind() != batch.kind():
            raise ValueError(
                f"{batch.kind()} do not fit the remembered {past.kind()}. Only the number of samples may change between calls; "
                "call reset() to forget the earlier batches"
            )
        if batch.groups is None or past.groups is None:
            return past
        return past.select(torch.isin(past.groups, batch.groups))

    def _memory(self, device: torch.device) -> _Rows:
        groups = self.groups.to(device) if len(self.groups) else None
        return _Rows(self.scores.to(device), self.target.to(device), groups)

    def _remember(self, batch: _Rows) -> None:
        """Add a batch and forget the oldest, if there are more than ``batches``."""
        if len(self.scores):
            batch = self._memory(batch.scores.device).join(batch)
        sizes = torch.cat([self.sizes, self.sizes.new_tensor([len(batch.scores) - len(self.scores)])])
        self._set(batch, sizes)

    def _set(self, rows: _Rows, sizes: Tensor) -> None:
        self.sizes = sizes[-self.batches :]
        start = len(rows.scores) - int(self.sizes.sum())
        self.scores, self.target = rows.scores[start:], rows.target[start:]
        self.groups = self.sizes.new_empty(0) if rows.groups is None else rows.groups[start:]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the sizes and dtypes of the buffers from the state; the number of remembered samples varies."""
        for name in _BUFFERS:
            stored = state_dict.get(prefix + name)
            if isinstance(stored, Tensor):
                setattr(self, name, torch.empty_like(stored, device=self.scores.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
        samples = len(self.scores)
        if int(self.sizes.sum()) != samples or len(self.target) != samples or len(self.groups) not in (0, samples):
            lengths = ", ".join(f"{name} {len(getattr(self, name))}" for name in _BUFFERS[:3])
            args[-1].append(f"the lengths of the memory do not fit: {lengths}, sizes {self.sizes.tolist()}")
            self.reset()
        self._set(self._memory(self.scores.device), self.sizes)

    def extra_repr(self) -> str:
        return f"batches={self.batches}"


class _Rows(NamedTuple):
    """Samples, one row each."""

    scores: Tensor
    target: Tensor
    groups: Tensor | None

    def select(self, rows: Tensor) -> _Rows:
        """Return the rows of a mask."""
        return _Rows(self.scores[rows], self.target[rows], None if self.groups is None else self.groups[rows])

    def empty(self) -> _Rows:
        """Return no rows, of the same kind."""
        return _Rows(self.scores[:0], self.target[:0], None if self.groups is None else self.groups[:0])

    def join(self, other: _Rows) -> _Rows:
        """Return these rows and then the others; both or neither have groups."""
        groups = None if self.groups is None or other.groups is None else torch.cat([self.groups, other.groups])
        return _Rows(torch.cat([self.scores, other.scores]), torch.cat([self.target, other.target]), groups)

    def kind(self) -> str:
        """Describe what must not change between batches."""
        described = (
            f"{name} {part.dtype} of shape (n{''.join(f', {size}' for size in part.shape[1:])})"
            for name, part in (("scores", self.scores), ("target", self.target))
        )
        return f"{' and '.join(described)} {'without' if self.groups is None else 'with'} groups"


class _Rescaled(torch.autograd.Function):
    """The scores, at least float32, with a gradient that is multiplied by a factor per row."""

    @staticmethod
    def forward(scores: Tensor, factor: Tensor) -> Tensor:
        return scores.to(torch.promote_types(scores.dtype, torch.float32), copy=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        scores, factor = inputs
        ctx.save_for_backward(factor)
        ctx.dtype = scores.dtype

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = ctx.saved_tensors
        return scaled(grad_outputs[0], factor, ctx.dtype), None


def _read_rows(scores: Tensor, target: Tensor, groups: Any) -> _Rows:
    """Return the rows of a call, with scores as they are remembered."""
    _checks.check_tensors(scores, target)
    ids = _checks.as_optional_tensor("groups", groups)
    if scores.ndim == 0 or target.ndim == 0 or len(scores) != len(target):
        raise ValueError(
            f"scores has shape {tuple(scores.shape)} and target has shape {tuple(target.shape)}; expected one row per sample "
            "in both, along the first axis"
        )
    if ids is not None and not ids.is_floating_point():
        ids = ids.to(scores.device, torch.int64)
    return _Rows(scores.detach().to(torch.promote_types(scores.dtype, torch.float32)), target, ids)


def _factors(own_groups: Tensor | None, batch: _Rows, past: _Rows, kept: Tensor) -> Tensor:
    """Return ``samples of the union / samples of the batch``, of the query of each own row, in the shape ``(n or 1, 1, ...)``."""
    if own_groups is None or batch.groups is None or past.groups is None:
        own, added = kept.sum(), kept.new_tensor(len(past.scores), dtype=torch.int64)
        factor = (own + added) / own.clamp(min=1)
    else:
        queries, index = batch.groups.unique(return_inverse=True)
        own = torch.bincount(index[kept], minlength=len(queries))
        added = torch.bincount(torch.searchsorted(queries, past.groups), minlength=len(queries))
        factor = ((own + added) / own.clamp(min=1))[torch.searchsorted(queries, own_groups)]
    return factor.to(batch.scores.dtype).reshape(-1, *(1,) * (batch.scores.ndim - 1))


def _kept_rows(target: Tensor, ignore_index: int | None) -> Tensor:
    """Return which samples have a target that is not ignored, bool ``(n,)``."""
    if ignore_index is None:
        return torch.ones(len(target), dtype=torch.bool, device=target.device)
    return (target != ignore_index).reshape(len(target), -1).any(1)


def _check_first_axis(criterion: Any, scores: Tensor, target: Tensor, dim: Any, grouped: bool) -> None:
    """Raise unless more rows of scores are more samples of the same rankings or labelings."""
    dims = _checks.as_dims(dim)
    shapes = tuple(scores.shape), tuple(target.shape)
    separate = dims is not None and 0 not in _checks.check_dims(dims, scores.ndim)
    if not separate and hasattr(criterion, "task"):
        separate = criterion.task.has_item_per_row(*shapes, dims, grouped)
    if separate:
        raise ValueError(
            f"each row of scores of shape {shapes[0]} is a ranking or labeling of its own (dim={dim}), which no remembered row "
            "can join. Use the criterion without a memory; to pool images over batches, include axis 0, as in dim=(0, 2, 3)"
        )
