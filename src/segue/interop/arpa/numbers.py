"""Numbers of ARPA files: the log10 of a probability or of a back-off weight, to and from the bytes of a line.

A number is written with the fewest decimals that read back as the same 32 bits.
"""

from __future__ import annotations

import numpy as np

from segue.compiling import njit

POWERS = 10.0 ** np.arange(19)


@njit(cache=True, nogil=True)
def write_number(out, at, value):
    """Write a number with the fewest decimals, of 5 to 17, that read back as the same 32 bits; no trailing zeros."""
    x = np.float64(value)
    if x < 0:
        out[at] = 45
        at += 1
        x = -x
    places = 0 if x >= 1 << 24 else 5
    whole = np.int64(np.rint(min(x, 9e18) * POWERS[places]))
    while 0 < places < 17 and np.float32(whole / POWERS[places]) != np.float32(x):
        places += 1
        whole = np.int64(np.rint(x * POWERS[places]))
    while places and whole % 10 == 0:
        whole //= 10
        places -= 1
    digits = 1
    while digits <= places or (digits < 19 and whole >= POWERS[digits]):
        digits += 1
    end = at + digits + (places > 0)
    for i in range(digits):
        if places and i == places:
            out[end - 1 - i] = 46
        out[end - 1 - i - (places > 0 and i >= places)] = 48 + whole % 10
        whole //= 10
    return end


@njit(cache=True, nogil=True)
def read_number(data, at, end):
    """Read a decimal number; NaN if it is none."""
    if end - at == 4 and data[at] == 45 and data[at + 1] | 32 == 105 and data[at + 2] | 32 == 110:  # -inf
        return -np.inf if data[at + 3] | 32 == 102 else np.nan
    sign = 1.0
    if at < end and (data[at] == 45 or data[at] == 43):
        sign = -1.0 if data[at] == 45 else 1.0
        at += 1
    whole, power, digits, point = np.int64(0), np.int64(0), 0, False
    while at < end and (48 <= data[at] <= 57 or (data[at] == 46 and not point)):
        if data[at] == 46:
            point = True
        else:
            digits += 1
            if whole < 100_000_000_000_000_000:
                whole = whole * 10 + (np.int64(data[at]) - 48)
                power -= point
            else:
                power += not point
        at += 1
    if digits == 0:
        return np.nan
    if at < end and data[at] | 32 == 101:
        at += 1
        below = at < end and data[at] == 45
        at += at < end and (data[at] == 45 or data[at] == 43)
        exponent, digits = np.int64(0), 0
        while at < end and 48 <= data[at] <= 57 and digits < 6:
            exponent, digits = exponent * 10 + (np.int64(data[at]) - 48), digits + 1
            at += 1
        if digits == 0:
            return np.nan
        power += -exponent if below else exponent
    if at < end:
        return np.nan
    if -18 <= power <= 0:
        return sign * whole / POWERS[-power]
    return sign * whole * 10.0**power
