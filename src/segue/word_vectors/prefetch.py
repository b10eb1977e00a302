"""Prefetch a row of a table into the CPU cache before it is needed.

The rows of noise words are anywhere in a table that is larger than the CPU caches; drawn one place ahead, they are
in the cache when their place comes. It is a hint: it changes no value.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from segue.compiling import njit

_FLOATS = 16
"""In a cache line."""


@intrinsic
def _line(typingctx, table, row, column):
    """Prefetch one cache line for writing, into the first-level cache."""

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
