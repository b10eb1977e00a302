"""Asking the processor to fetch a row of a table before it is needed, so that it need not be waited for.

The rows of noise words lie anywhere in a table that is larger than the near caches; drawn one place ahead, they are
there when their place comes. It is a hint: it changes no value.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

_FLOATS = 16
"""In a cache line."""


@intrinsic
def _line(typingctx, table, row, column):
    """One cache line, to be written to, as near as can be."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = cgutils.get_item_pointer(context, builder, signature.args[0], array, args[1:], wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], hint)
        builder.call(fetch, [builder.bitcast(place, byte), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def fetch_row(table, row):
    """Begin to fetch a row of 32-bit floats."""
    for column in range(0, table.shape[1], _FLOATS):
        _line(table, row, column)
