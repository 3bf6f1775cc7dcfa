"""A second device for tests: tensors that say they are elsewhere, and refuse to be mixed with tensors on the CPU.

Their numbers are held by CPU tensors, so everything can be computed; but code that forgets to say on which device a tensor
belongs, or reads numbers without copying them over, fails as it would on an accelerator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "elsewhere"
_setup_privateuseone_for_python_backend(NAME)

brought_back: list[int] = []
"""How many numbers each copy to the CPU had; a single yes or no does not count."""


class _Elsewhere(torch.Tensor):
    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> _Elsewhere:
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        wrapper = torch.Tensor._make_wrapper_subclass(cls, held.shape, **layout, device=f"{NAME}:0")
        wrapper.held = held
        return wrapper

    def __repr__(self) -> str:
        return f"elsewhere({self.held!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.ops.aten._to_copy.default:
            device = kwargs.pop("device", None) or args[0].device
            copied = function(_numbers(args[0]), **kwargs, device="cpu")
            if torch.device(device).type == "cpu":
                brought_back.append(copied.numel())
                return copied
            return _Elsewhere(copied)
        if function is torch.ops.aten.copy_.default:
            return _copy_from(args[1], args[0])
        if function is torch.ops.aten._local_scalar_dense.default and args[0].dtype is not torch.bool:
            brought_back.append(1)
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        result = function(*tree_map(_unmixed, args), **tree_map(_unmixed, kwargs))
        # What was changed in place is returned as it was given.
        given = {id(arg.held): arg for arg in (*args, *kwargs.values()) if isinstance(arg, _Elsewhere)}

        def back(part: Any) -> Any:
            if not isinstance(part, torch.Tensor):
                return part
            return given[id(part)] if id(part) in given else _Elsewhere(part)

        return tree_map(back, result)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.held if isinstance(tensor, _Elsewhere) else tensor


def _unmixed(part: Any) -> Any:
    if isinstance(part, torch.Tensor) and not isinstance(part, _Elsewhere) and part.ndim > 0:
        raise RuntimeError(f"a tensor of shape {tuple(part.shape)} on the CPU among tensors {NAME}")
    return _numbers(part) if isinstance(part, torch.Tensor) else part


def _empty(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, **_: Any) -> Any:
    return _Elsewhere(torch.empty(size, dtype=dtype))


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    return _Elsewhere(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(target, _Elsewhere):
        brought_back.append(target.numel())
    _numbers(target).copy_(_numbers(source))
    return target


_factories = torch.library.Library("aten", "IMPL")
_factories.impl("empty.memory_format", _empty, "PrivateUse1")
_factories.impl("empty_strided", _empty_strided, "PrivateUse1")
_factories.impl("_copy_from", _copy_from, "PrivateUse1")
