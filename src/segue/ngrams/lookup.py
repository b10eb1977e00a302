"""Look n-grams up in the packed tables and compute p of the next word: the loops that must be fast.

Orders are walked from the lowest, and p(w|h) is made better by each longer context that was seen:

    discounted   p = (c(h,w) - D(c)) · scale(h) + weight(h) · p          every smoothing that interpolates
    uniform      p = c(h,w) · scale(h) + weight(h) / V                   add-alpha: only the longest context counts
    backoff      p = c(h,w) · scale(h) if that is not 0, else 0.4 · p    stupid backoff: a score

`scale` and `weight` depend on the row of `profiles` that describes h. An unseen context leaves p as it is (discounted),
makes it 1/V (uniform) or 0.4 · p (backoff).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from segue.compiling import njit

DISCOUNTED, UNIFORM, BACKOFF = 0, 1, 2
STUPID = 0.4
"""Brants et al. 2007."""
FAR, NEAR = 24, 12
"""How many positions ahead to prefetch: first a context's profile, then its followers."""
UNSEEN, UNKNOWN = -1, -2
"""In place of a context's id: it was never seen; there is none, because the text begins after it."""


@intrinsic
def prefetch(context: Any, array: Any, place: Any) -> Any:
    """Prefetch array[place] into the CPU cache: waiting for memory is most of the work."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        called = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number]),
            "llvm.prefetch.p0" if cgutils.voidptr_t.is_opaque else "llvm.prefetch.p0i8",
        )
        builder.call(called, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(cache=True, nogil=True, inline="always")
def find(words, low, high, word):
    """Find the place of a word among words[low:high], which are sorted; -1 if it is not there."""
    size = min(high - low, np.int64(word) + 1)  # different words: before the word w there are w at most
    while size > 1:
        half = size >> 1
        low = low + half if words[low + half] <= word else low
        size -= half
    if size == 1 and words[low] == word:
        return low
    return -1


@njit(cache=True, nogil=True)
def exact(counts, more_ids, more_counts, place):
    """Return the count of an n-gram."""
    count = np.int64(counts[place])
    if count == 255:
        count = np.int64(more_counts[np.searchsorted(more_ids, place)])
    return count


@njit(cache=True, nogil=True)
def score_order(
    words,
    counts,
    more_ids,
    more_counts,
    first,
    profile,
    scale,
    weight,
    discounts,
    mode,
    uniform,
    text,
    targets,
    restart,
    contexts,
    p,
):
    """Apply one order to a row of text: update p of the targets, and advance `contexts` to the next order.

    `contexts[i]` is the id of the context that ends in text[i]. `restart` is the token that no context goes on over,
    UNKNOWN if there is none.
    """
    size = len(text)
    carried = np.int64(UNKNOWN)  # the id of the n-gram of this order that ends in text[i]
    for i in range(size):
        if i + FAR < size and contexts[i + FAR] >= 0:
            prefetch(profile, contexts[i + FAR])
            prefetch(first, contexts[i + FAR])
        if i + NEAR < size and contexts[i + NEAR] >= 0:
            low = np.int64(first[contexts[i + NEAR]])
            middle = low + (min(np.int64(first[contexts[i + NEAR] + 1]) - low, targets[i + NEAR] + 1) >> 1)
            prefetch(words, middle)
            prefetch(counts, middle)
        context = contexts[i]
        contexts[i] = carried
        following = text[i + 1] if i + 1 < size else np.int64(UNKNOWN)
        place = np.int64(UNSEEN)
        if context >= 0:
            row = profile[context]
            if scale[row] >= 0.0:
                low, high = np.int64(first[context]), np.int64(first[context + 1])
                target = targets[i]
                if target >= 0:
                    place = find(words, low, high, target)
                    count = 0.0
                    if place >= 0:
                        whole = exact(counts, more_ids, more_counts, place)
                        count = whole - discounts[min(whole, 3)]
                    if mode == DISCOUNTED:
                        p[i] = count * scale[row] + weight[row] * p[i]
                    elif mode == UNIFORM:
                        p[i] = count * scale[row] + weight[row] * uniform
                    else:
                        p[i] = count * scale[row] if count > 0.0 else STUPID * p[i]
                if following >= 0 and following != target:
                    place = find(words, low, high, following)
            elif mode != DISCOUNTED:
                p[i] = uniform if mode == UNIFORM else STUPID * p[i]
        elif context == UNSEEN and mode != DISCOUNTED:
            p[i] = uniform if mode == UNIFORM else STUPID * p[i]
        # After STOP comes START, and nothing stands before that.
        carried = np.int64(UNKNOWN) if following < 0 or following == restart or context == UNKNOWN else place


@njit(cache=True, nogil=True)
def add_order(
    words, counts, more_ids, more_counts, first, profile, scale, weight, discounts, mode, uniform, context, p
):
    """Apply one order to every word of the vocabulary: update p after one context."""
    if context < 0 or scale[profile[context]] < 0.0:
        if mode == UNIFORM and context != UNKNOWN:
            p[:] = uniform
        elif mode == BACKOFF and context != UNKNOWN:
            p *= STUPID
        return
    row = profile[context]
    if mode == DISCOUNTED:
        p *= weight[row]
    elif mode == UNIFORM:
        p[:] = weight[row] * uniform
    else:
        p *= STUPID
    for place in range(np.int64(first[context]), np.int64(first[context + 1])):
        count = exact(counts, more_ids, more_counts, place)
        own = (count - discounts[min(count, 3)]) * scale[row]
        if mode == BACKOFF:
            p[words[place]] = own if own > 0.0 else p[words[place]]
        else:
            p[words[place]] += own
