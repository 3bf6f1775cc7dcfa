"""The exchange of data among the ranks of a process group, in which an error on one rank becomes the same error on all.

An exchange has two collectives. The first carries a header of fixed size: whether this rank found an error in its input, a digest
of everything that must be equal on all ranks, and how many rows it has. If a rank reports an error, or the digests differ, the
ranks exchange the reports behind the headers and all raise the same error; none is left waiting. The second carries the rows
themselves, as bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

MOST_TENSORS = 8
"""Largest number of tensors in one exchange; the header has room for the number of rows of each."""


class Shard(NamedTuple):
    """The checked data of one rank."""

    rows: dict[str, Tensor]
    """What is gathered, by name; at least one tensor. They may have different numbers of rows."""
    must_match: dict[str, str]
    """What must be equal on all ranks, as text, besides dtypes and the shapes of the rows."""


def digest(data: bytes) -> int:
    """Return a hash that is the same in all processes, within the range of int64."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "little")


class Ranks:
    """The members of a process group, and this process as one of them."""

    def __init__(self, process_group: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "a loss over several processes needs a process group, and none is initialized; call "
                "torch.distributed.init_process_group() first and start the script with torchrun, or leave out sync= and "
                "process_group="
            )
        if process_group == dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("this process is not a member of process_group; only its members may call the loss with it")
        group = dist.group.WORLD if process_group is None else process_group
        if not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"process_group must be a group of torch.distributed, got {type(group).__name__}")
        self.group = group
        self.global_ranks = dist.get_process_group_ranks(group)
        """Global rank of each member."""
        self.count = len(self.global_ranks)
        self.index = dist.get_rank(group)
        """Index of this process among the members."""

    def exchange(self, read: Callable[[], Shard]) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
        """Gather the rows of all ranks, or raise the same error on all ranks.

        What ``read`` raises on one rank is raised on all, as is an error that names what should be equal on all ranks and is not.

        Args:
            read: checks the data of this rank.

        Returns:
            The rows of all ranks by name, ordered by rank; and how many of them each rank has.
        """
        if self.count == 1:
            rows = read().rows
            return dict(rows), {name: [len(tensor)] for name, tensor in rows.items()}
        shard, error = None, None
        try:
            shard = read()
        except Exception as raised:
            error = raised
        text = json.dumps(_report(shard, error)).encode()
        own = [] if shard is None else [len(tensor) for tensor in shard.rows.values()]
        header = [int(error is not None), digest(text), len(text), *own, *[0] * (MOST_TENSORS - len(own))]
        table = self._all_gather(torch.tensor(header, device=self._device())).tolist()
        if shard is None or any(row[0] or row[1] != table[0][1] for row in table):
            self._raise_together(text, [row[2] for row in table], error)
        counts = np.array([row[3 : 3 + len(own)] for row in table])
        union = self._gather_rows(list(shard.rows.values()), counts)
        return dict(zip(shard.rows, union, strict=True)), dict(zip(shard.rows, counts.T.tolist(), strict=True))

    def _gather_rows(self, tensors: Sequence[Tensor], counts: np.ndarray) -> list[Tensor]:
        """Gather tensors, ``counts[rank, i]`` rows of each, as one buffer of bytes per rank, padded to the longest."""
        sizes = counts * [tensor.element_size() * prod(tensor.shape[1:]) for tensor in tensors]
        # Numbers of any dtype can be read in place where each tensor starts at a multiple of 8 bytes.
        ends = np.cumsum(-(-sizes // 8) * 8, axis=1)
        starts = np.pad(ends[:, :-1], ((0, 0), (1, 0)))
        # Not empty even if no rank has samples: parts of an empty buffer have no place in memory.
        length = max(int(ends[:, -1].max()), 8)
        buffer = torch.zeros(length, dtype=torch.uint8, device=self._device(tensors[0].device))
        for tensor, start, size in zip(tensors, starts[self.index], sizes[self.index], strict=True):
            buffer[start : start + size] = tensor.to(buffer.device).contiguous().reshape(-1).view(torch.uint8)
        gathered = self._all_gather(buffer)

        def union(i: int) -> Tensor:
            each = zip(gathered, starts[:, i], sizes[:, i], strict=True)
            parts = [row[start : start + size].view(tensors[i].dtype) for row, start, size in each]
            return torch.cat(parts).reshape(int(counts[:, i].sum()), *tensors[i].shape[1:]).to(tensors[i].device)

        return [union(i) for i in range(len(tensors))]

    def _device(self, preferred: torch.device | None = None) -> torch.device:
        """Return the device to gather on: the preferred one if a backend other than gloo serves it, else by the group alone."""
        backends = dict(pair.split(":") for pair in str(dist.get_backend_config(self.group)).split(","))
        if preferred is not None and backends.get(preferred.type, "gloo") != "gloo":
            return preferred
        return torch.device("cpu" if "cpu" in backends else next(iter(backends)))

    def _all_gather(self, row: Tensor) -> Tensor:
        """Return a row of equal length from each rank, ``(ranks, length)``."""
        # gloo accepts only a flat result.
        result = row.new_empty(self.count * len(row))
        dist.all_gather_single(result, row, group=self.group)
        return result.reshape(self.count, len(row))

    def _raise_together(self, text: bytes, lengths: Sequence[int], cause: Exception | None) -> NoReturn:
        """Exchange the reports behind unequal headers, and raise the error that follows from them."""
        buffer = torch.zeros(max(lengths), dtype=torch.uint8)
        buffer[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        rows = self._all_gather(buffer.to(self._device())).cpu().numpy()
        reports = [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]
        errors = [report.get("error") for report in reports]
        if any(errors):
            found = [(error, who) for error, who in self._by_value(errors) if error]
            kind = TypeError if all(error[0] == "TypeError" for error, _ in found) else ValueError
            raise kind("; ".join(f"on {who}: {error[1]}" for error, who in found)) from cause
        differences = []
        for name in dict.fromkeys(name for report in reports for name in report["equal"]):
            values = self._by_value([report["equal"].get(name, "not given") for report in reports])
            if len(values) > 1:
                differences.append(f"{name} ({', '.join(f'{value} on {who}' for value, who in values)})")
        raise ValueError(
            f"the ranks differ in {'; '.join(differences[:3])}. All ranks must call the same loss with the same settings, and "
            "with data of the same dtype and the same shape after the first axis"
        )

    def _by_value(self, values: Sequence[Any]) -> list[tuple[Any, str]]:
        """Return the distinct values, each with the ranks that have it."""
        found: dict[str, tuple[Any, list[int]]] = {}
        for number, value in zip(self.global_ranks, values, strict=True):
            found.setdefault(json.dumps(value), (value, []))[1].append(number)
        return [(value, f"rank{'s' * (len(who) > 1)} {', '.join(map(str, who))}") for value, who in found.values()]


def _report(shard: Shard | None, error: Exception | None) -> dict[str, Any]:
    """Return what the header is a digest of: the error, or all that must be equal on all ranks."""
    if shard is None:
        return {"error": [type(error).__name__, str(error)]}
    kinds = {name: f"{tensor.dtype} rows of shape {tuple(tensor.shape[1:])}" for name, tensor in shard.rows.items()}
    return {"equal": {**shard.must_match, **kinds, "device": next(iter(shard.rows.values())).device.type}}
