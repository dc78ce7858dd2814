"""Elements of every data type as float64: read exactly (s64 beyond 2**53 to nearest) and written rounded once, to even.

Integers are saturated and NaN becomes 0; a bool is whether a number is not 0. f16 and bf16 are converted by integer
arithmetic, because their instructions are not there on every ISA level and the compiler's library is not on every system.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...codes import DATA_TYPES as CODES
from .scalars import (
    bits_of,
    from_bits,
    piece,
    read_f32,
    read_f64,
    read_s8,
    read_s32,
    read_s64,
    read_u8,
    read_u16,
    write_8,
    write_16,
    write_32,
    write_64,
    write_f32,
    write_f64,
)

F64: Final = CODES["f64"]
F32: Final = CODES["f32"]
F16: Final = CODES["f16"]
BF16: Final = CODES["bf16"]
S64: Final = CODES["s64"]
S32: Final = CODES["s32"]
S8: Final = CODES["s8"]
U8: Final = CODES["u8"]
BOOL: Final = CODES["bool"]

#: Bits of the fraction, and exponent of the smallest normal number.
_F16: Final = (10, -14)
_BF16: Final = (7, -126)
_INFINITY: Final = 0x7FF << 52


@piece
def load(address: int, code: int) -> float:
    """Return the element at an address."""
    if code == F32:
        return read_f32(address)
    if code == F64:
        return read_f64(address)
    if code == F16:
        return widened(read_u16(address), _F16[0], _F16[1])
    if code == BF16:
        return widened(read_u16(address), _BF16[0], _BF16[1])
    if code == S64:
        return float(read_s64(address))
    if code == S32:
        return float(read_s32(address))
    if code == S8:
        return float(read_s8(address))
    if code == U8:
        return float(read_u8(address))
    return 1.0 if read_u8(address) != 0 else 0.0


@piece
def store(address: int, code: int, value: float) -> None:
    """Write an element."""
    if code == F32:
        write_f32(address, value)
    elif code == F64:
        write_f64(address, value)
    elif code == F16:
        write_16(address, narrowed(value, _F16[0], _F16[1]))
    elif code == BF16:
        write_16(address, narrowed(value, _BF16[0], _BF16[1]))
    elif code == S64:
        write_64(address, saturated(value, -9223372036854775808.0, 9223372036854775807.0))
    elif code == S32:
        write_32(address, saturated(value, -2147483648.0, 2147483647.0))
    elif code == S8:
        write_8(address, saturated(value, -128.0, 127.0))
    elif code == U8:
        write_8(address, saturated(value, 0.0, 255.0))
    else:
        write_8(address, 1 if value != 0.0 else 0)


@piece
def move(source: int, source_code: int, target: int, target_code: int) -> None:
    """Copy an element: bit for bit if both have one type."""
    if source_code != target_code:
        store(target, target_code, load(source, source_code))
    elif source_code in (F64, S64):
        write_64(target, read_s64(source))
    elif source_code in (F32, S32):
        write_32(target, read_s32(source))
    elif source_code in (F16, BF16):
        write_16(target, read_u16(source))
    else:
        write_8(target, read_u8(source))


@piece
def saturated(value: float, lowest: float, highest: float) -> int:
    """Return the nearest integer, ties to even, in a range; 0 for NaN."""
    rounded = np.rint(value)
    if rounded <= lowest:
        return int(lowest)
    if rounded >= highest:
        # The largest int64 is no float64: 2.0 ** 63 replaces it.
        return 9223372036854775807 if highest > 9e18 else int(highest)
    return int(rounded) if rounded == rounded else 0


@piece
def widened(bits: int, fraction: int, lowest: int) -> float:
    """Return the value of a 16-bit float with ``fraction`` bits and ``lowest`` as its smallest normal exponent."""
    mantissa = bits & ((1 << fraction) - 1)
    exponent = (bits & 0x7FFF) >> fraction
    sign = (bits >> 15) << 63
    if exponent == 0:
        size = float(mantissa) * from_bits((lowest - fraction + 1023) << 52)
        return from_bits(bits_of(size) | sign)
    wide = mantissa << (52 - fraction)
    if exponent == 0x7FFF >> fraction:
        return from_bits(_INFINITY | wide | sign)
    return from_bits((exponent + lowest - 1 + 1023) << 52 | wide | sign)


@piece
def narrowed(value: float, fraction: int, lowest: int) -> int:
    """Return the bits of the nearest 16-bit float, ties to even; see `widened`."""
    bits = bits_of(value)
    sign = (bits >> 63 & 1) << 15
    exponent = (bits >> 52 & 0x7FF) - 1023
    mantissa = bits & ((1 << 52) - 1)
    infinity = 0x7FFF >> fraction << fraction
    if exponent == 1024:
        quiet = (1 << (fraction - 1)) | mantissa >> (52 - fraction)
        return sign | infinity | (quiet if mantissa != 0 else 0)
    shift = 52 - fraction + max(0, lowest - exponent)
    if shift > 53:
        return sign
    significand = mantissa | 1 << 52
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = 1 << (shift - 1)
    if rest > half or (rest == half and kept & 1 == 1):
        kept += 1
    # The leading bit of ``kept``, and a carry into it, count as one step of the exponent.
    return sign | min(infinity, kept + (max(0, exponent - lowest) << fraction))
