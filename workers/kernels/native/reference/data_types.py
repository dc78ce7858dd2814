"""Elements of every data type as float64: read exactly (64 bits beyond 2**53 to nearest) and written rounded once, to even.

Integers are also read and written as int64, those of u64 by their bits. Floats become integers saturated, and NaN becomes the
least one; a bool is whether a number is not 0. f16 and bf16 are converted by integer arithmetic, because their instructions are
not there on every ISA level and the compiler's library is not on every system.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...codes import DATA_TYPES as CODES
from .scalars import (
    bits_of,
    from_bits,
    read_f32,
    read_f64,
    read_s8,
    read_s16,
    read_s32,
    read_s64,
    read_u8,
    read_u16,
    read_u32,
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
U64: Final = CODES["u64"]
U32: Final = CODES["u32"]
S16: Final = CODES["s16"]
U16: Final = CODES["u16"]
#: The bits of the least int64, which order the bits of u64 if they are turned.
_SIGN: Final = -(1 << 63)

#: Bits of the fraction, and exponent of the smallest normal number.
_F16: Final = (10, -14)
_BF16: Final = (7, -126)
_INFINITY: Final = 0x7FF << 52


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
    if code == U64:
        bits = read_s64(address)
        # Half of a number that is too large for int64, with its last bit kept for the rounding.
        return float(bits) if bits >= 0 else 2.0 * float((bits >> 1 & ~_SIGN) | bits & 1)
    if code >= U32:
        return float(read_whole(address, code))
    return 1.0 if read_u8(address) != 0 else 0.0


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
    elif code == U64:
        write_64(address, _saturated_u64(value))
    elif code == U32:
        write_32(address, saturated(value, 0.0, 4294967295.0))
    elif code == S16:
        write_16(address, saturated(value, -32768.0, 32767.0))
    elif code == U16:
        write_16(address, saturated(value, 0.0, 65535.0))
    else:
        write_8(address, 1 if value != 0.0 else 0)


def move(source: int, source_code: int, target: int, target_code: int, wraps: bool = False) -> None:
    """Copy an element: bit for bit if both have one type. Integers become others saturated, or lose high bits."""
    if source_code != target_code and is_whole(source_code) and is_whole(target_code):
        value = read_whole(source, source_code)
        write_whole(target, target_code, value if wraps else _inside(value, source_code, target_code))
    elif source_code != target_code:
        store(target, target_code, load(source, source_code))
    elif source_code in (F64, S64, U64):
        write_64(target, read_s64(source))
    elif source_code in (F32, S32, U32):
        write_32(target, read_s32(source))
    elif source_code in (F16, BF16, S16, U16):
        write_16(target, read_u16(source))
    else:
        write_8(target, read_u8(source))


def is_whole(code: int) -> bool:
    """Return whether a data type is an integer."""
    return code >= S64 and code != BOOL


def wraps(code: int) -> bool:
    """Return whether sums, differences and products of an integer type wrap."""
    return code == S64 or code >= U64


def bits_of_type(code: int) -> int:
    """Return the bits of an integer type."""
    return 64 if code in (S64, U64) else 32 if code in (S32, U32) else 16 if code in (S16, U16) else 8


def read_whole(address: int, code: int) -> int:
    """Return an integer as int64, one of u64 by its bits."""
    if code in (S64, U64):
        return read_s64(address)
    if code == S32:
        return read_s32(address)
    if code == U32:
        return read_u32(address)
    if code == S16:
        return read_s16(address)
    if code == U16:
        return read_u16(address)
    return read_s8(address) if code == S8 else read_u8(address)


def write_whole(address: int, code: int, value: int) -> None:
    """Write the low bits of an int64 as an integer of a type."""
    if code in (S64, U64):
        write_64(address, value)
    elif code in (S32, U32):
        write_32(address, value)
    elif code in (S16, U16):
        write_16(address, value)
    else:
        write_8(address, value)


def is_less(x: int, y: int, code: int) -> bool:
    """Return whether an integer is less than another of its type; those of u64 are given by their bits."""
    return x ^ _SIGN < y ^ _SIGN if code == U64 else x < y


def _inside(value: int, code: int, other: int) -> int:
    """Return an integer of one type as the nearest one of another type; those of u64 are bits."""
    if code == U64 and value < 0:
        return value if other == U64 else _highest(other)
    if other == U64:
        return max(value, 0)
    return min(max(value, _lowest(other)), _highest(other))


def _lowest(code: int) -> int:
    if code == S64:
        return _SIGN
    if code in (U8, U16, U32):
        return 0
    return -128 if code == S8 else -32768 if code == S16 else -2147483648


def _highest(code: int) -> int:
    if code == S64:
        return ~_SIGN
    if code in (S8, U8):
        return 127 if code == S8 else 255
    if code in (S16, U16):
        return 32767 if code == S16 else 65535
    return 2147483647 if code == S32 else 4294967295


def _saturated_u64(value: float) -> int:
    """Return the bits of the nearest u64, ties to even; 0 for NaN."""
    rounded = np.rint(value)
    if rounded >= 18446744073709551616.0:
        return -1
    if rounded >= 9223372036854775808.0:
        return int(rounded - 9223372036854775808.0) ^ _SIGN
    return int(rounded) if rounded > 0.0 else 0


def saturated(value: float, lowest: float, highest: float) -> int:
    """Return the nearest integer, ties to even, in a range; the lowest for NaN."""
    rounded = np.rint(value)
    if not rounded > lowest:
        return int(lowest)
    if rounded >= highest:
        # The largest int64 is no float64: 2.0 ** 63 replaces it.
        return 9223372036854775807 if highest > 9e18 else int(highest)
    return int(rounded)


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
