"""Numbers of several lanes as one value: what the processor adds, multiplies or compares in one instruction.

A compiled loop over a few lanes ends as one instruction a lane, since the compiler cannot know that the arrays do not overlap.
Here a row of an array ``(rows, lanes)`` is loaded whole, as a vector of the machine, and kernels compute with that as with a
number: ``+ - * /``, and the functions below. With one lane it *is* a number.

The number of lanes is the length of a tuple ``lanes``, which is part of its type, so that the compiler knows it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from taskloss.kernels._numba import intrinsic


class LaneVector(types.Type):
    """The type of a value with ``width`` numbers."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"float64x{width}")


@register_model(LaneVector)
class _LaneVectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: LaneVector) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType(), kind.width))


def _kind(lanes: types.BaseTuple) -> types.Type:
    return types.float64 if len(lanes) == 1 else LaneVector(len(lanes))


def _width(kind: types.Type) -> int:
    return kind.width if isinstance(kind, LaneVector) else 1


def _pointer(context: Any, builder: Any, array_type: types.Array, array: Any, row: Any, kind: types.Type) -> Any:
    """To a row, as a pointer to a value of ``kind``. As in all kernels, the row is not checked against the length."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    first = builder.mul(row, ir.Constant(row.type, _width(kind)))
    place = builder.gep(data, [first])
    return builder.bitcast(place, context.get_data_type(kind).as_pointer())


def _check(array: types.Type) -> None:
    if not (isinstance(array, types.Array) and array.dtype == types.float64 and array.layout == "C"):
        raise TypeError(f"expected an array of float64 in the order of C, got {array}")


@intrinsic
def load(_, array, row, lanes):
    """The numbers of a row of an array ``(rows, lanes)``, or of the only row of an array ``(lanes,)``."""
    _check(array)
    kind = _kind(lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.cast(builder, arguments[1], row, types.intp)
        pointer = _pointer(context, builder, array, arguments[0], place, kind)
        return builder.load(pointer, align=8)

    return kind(array, row, lanes), generate


@intrinsic
def store(_, array, row, value):
    """Write a row of an array ``(rows, lanes)``, or the only row of an array ``(lanes,)``."""
    _check(array)
    if value != types.float64 and not isinstance(value, LaneVector):
        raise TypeError(f"expected numbers of float64, got {value}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.cast(builder, arguments[1], row, types.intp)
        pointer = _pointer(context, builder, array, arguments[0], place, value)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, row, value), generate


@intrinsic
def in_all(_, number, lanes):
    """One number in all lanes."""
    kind = _kind(lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = context.cast(builder, arguments[0], number, types.float64)
        width = _width(kind)
        if width == 1:
            return value
        whole = ir.VectorType(ir.DoubleType(), width)
        first = builder.insert_element(ir.Constant(whole, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
        return builder.shuffle_vector(first, ir.Constant(whole, ir.Undefined), zeros)

    return kind(number, lanes), generate


@intrinsic
def larger(_, one, other):
    """The larger one in every lane; ``other`` where one of them is undefined."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return one(one, other), generate


@intrinsic
def smaller(_, one, other):
    """The smaller one in every lane; ``other`` where one of them is undefined."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return one(one, other), generate


@intrinsic
def where_positive(_, condition, one, other):
    """``one`` in the lanes where the condition is above zero, ``other`` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        test, yes, no = arguments
        return builder.select(builder.fcmp_ordered(">", test, ir.Constant(test.type, _zeros(test.type))), yes, no)

    return one(condition, one, other), generate


@intrinsic
def size_of(_, value):
    """Without its sign."""
    return value(value), _of_each("fabs")


@intrinsic
def root_of(_, value):
    """The square root in every lane."""
    return value(value), _of_each("sqrt")


def _of_each(name: str) -> Callable[..., Any]:
    """What writes a function of the machine that works on every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        full_name = f"llvm.{name}.v{kind.count}f64" if isinstance(kind, ir.VectorType) else f"llvm.{name}.f64"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), full_name)
        return builder.call(function, arguments)

    return generate


def _zeros(kind: ir.Type) -> Any:
    return [0.0] * kind.count if isinstance(kind, ir.VectorType) else 0.0


def _define(function: Any, build: str) -> None:
    """Give an operator to lane vectors."""

    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], LaneVector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    infer_global(function)(Template)

    @lower_builtin(function, LaneVector, LaneVector)  # type: ignore[untyped-decorator]  # numba has no types.
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, build)(*arguments)


for _function, _build in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _define(_function, _build)
