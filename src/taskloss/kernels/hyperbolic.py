r"""The hyperbolic tangent of many numbers, without a call of a library, so that the compiler computes several at once.

.. math:: \tanh x = \operatorname{sign}(x)\,\frac{-t}{2 + t}, \qquad t = e^{-2|x|} - 1 = 2^k (e^r - 1) + (2^k - 1),

with ``-2|x| = k ln 2 + r`` and ``|r| <= ln 2 / 2``, where a Taylor polynomial gives ``e^r - 1`` to rounding. No rounding error is
enlarged by a difference of near numbers: the result is right to a few units in the last place, for tiny arguments too.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import types

from taskloss.kernels._numba import inlined_kernel, intrinsic, kernel

_LARGEST = 22.0
"""From here on the result is 1."""
_PER_LN2 = 1.0 / math.log(2.0)
_LN2_HIGH = math.floor(math.log(2.0) * 2.0**32) / 2.0**32
_LN2_LOW = 1.9082149292705877e-10
"""``ln 2`` is the sum of the two, to more digits than one number has; a small whole number times the first is exact."""
_COEFFICIENTS = tuple(1.0 / math.factorial(power) for power in range(13, 1, -1))
_EXPONENT_OF_ONE = 1023
_FRACTION_BITS = 52


@intrinsic
def _float_of_bits(_, bits):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@inlined_kernel
def _tanh(x):
    exponent = -2.0 * min(abs(x), _LARGEST)
    k = math.floor(exponent * _PER_LN2 + 0.5)
    r = (exponent - k * _LN2_HIGH) - k * _LN2_LOW
    polynomial = 0.0
    for coefficient in _COEFFICIENTS:
        polynomial = polynomial * r + coefficient
    power = _float_of_bits((k + _EXPONENT_OF_ONE) << _FRACTION_BITS)
    t = power * (r + r * r * polynomial) + (power - 1.0)
    return math.copysign(t / (2.0 + t), x)


@kernel
def tanh_in_place(numbers):
    """Replace float64 numbers by their hyperbolic tangents; those that are not finite by anything."""
    for i in range(len(numbers)):
        numbers[i] = _tanh(numbers[i])
