"""Fourier transforms of signals side by side, each in a lane, by passes of butterflies between two halves of scratch memory.

The table has the loops over signals, innermost first, as (extent, bytes from step to step in src and dst), then the passes as
(radix, transforms before it, numbers behind it, place of cosines and sines in the table). An item has scratch memory for the
places of its signals, and for two times all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .bits import make_load, make_store, zero_bytes
from .butterflies import WIDTH, lanes_of, make_butterfly, make_moves
from .compiler import types
from .vec import iload

#: Bytes for the places of signals, before an item's numbers.
PLACES: Final = 128
#: Bytes of one number of all signals.
PAIR: Final = 2 * WIDTH

_store_place: Final = make_store(8)


def make(isa: str, kind: str, primes: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel of floats of a kind (``f32``, ``f64``), and its signature.

    Passes have 2, 3, 4 and 5 numbers, 7, 11 and 13 too unless ``primes`` is ``small``. An inverse transform is one whose
    real and imaginary parts are exchanged (``swaps``) before and after.
    """
    size, lanes = int(kind[1:]) // 8, lanes_of(kind)
    load, store = make_load(size), make_store(size)
    spread, gather, scale, conjugate = make_moves(kind)
    two, three, four, five = (_make_pass(kind, radix) for radix in (2, 3, 4, 5))
    seven, eleven, thirteen = (_make_pass(kind, radix) for radix in ((7, 11, 13) if primes != "small" else (3, 3, 3)))
    # Bits of a float whose sign changes.
    negative = -(1 << 63) if size == 8 else 1 << 31
    at_once = lanes // 2

    def dft(
        begin: int, end: int, src: int, dst: int, table: int, scratch: int, loops: int, passes: int, signals: int,
        items: int, length: int, read: int, made: int, mirrors: int, swaps: int, src_parts: int, dst_parts: int,
        src_next: int, dst_next: int, src_part: int, dst_part: int, factor: float,
    ) -> None:  # fmt: skip
        first = WIDTH if swaps != 0 else 0
        second = WIDTH - first
        pairs_in = src_parts == 2 and src_part == size and src_next == 2 * size
        pairs_out = dst_parts == 2 and dst_part == size and dst_next == 2 * size
        groups = (signals + lanes - 1) // lanes
        for item in range(begin, end):
            places = scratch + item * (PLACES + 2 * PAIR * length)
            for group in range(item, groups, items):
                for lane in range(lanes):
                    # Lanes behind the last signal repeat it.
                    outer = min(group * lanes + lane, signals - 1)
                    source, target = src, dst
                    for loop in range(loops):
                        extent = iload(table + 24 * loop)
                        left = outer // extent
                        position = outer - left * extent
                        outer = left
                        source += position * iload(table + 24 * loop + 8)
                        target += position * iload(table + 24 * loop + 16)
                    _store_place(places + 16 * lane, source)
                    _store_place(places + 16 * lane + 8, target)
                numbers = places + PLACES
                others = numbers + PAIR * length
                index = 0
                if pairs_in:
                    while index + at_once <= read:
                        spread(places, index * src_next, numbers + index * PAIR, first, second)
                        index += at_once
                while index < length:
                    place, flip = index, 0
                    if mirrors != 0 and 2 * index > length:
                        place, flip = length - index, negative
                    for lane in range(lanes):
                        real, imaginary = 0, 0
                        if place < read:
                            at = iload(places + 16 * lane) + place * src_next
                            real = load(at)
                            if src_parts == 2:
                                imaginary = load(at + src_part) ^ flip
                        store(numbers + index * PAIR + first + size * lane, real)
                        store(numbers + index * PAIR + second + size * lane, imaginary)
                    index += 1
                for number in range(passes):
                    row = table + 24 * loops + 32 * number
                    radix, before, behind, waves = iload(row), iload(row + 8), iload(row + 16), table + iload(row + 24)
                    if radix == 4:
                        four(numbers, others, before, behind, waves)
                    elif radix == 2:
                        two(numbers, others, before, behind, waves)
                    elif radix == 5:
                        five(numbers, others, before, behind, waves)
                    elif radix == 3:
                        three(numbers, others, before, behind, waves)
                    elif radix == 7:
                        seven(numbers, others, before, behind, waves)
                    elif radix == 11:
                        eleven(numbers, others, before, behind, waves)
                    else:
                        thirteen(numbers, others, before, behind, waves)
                    numbers, others = others, numbers
                if src_parts == 1:
                    # The halves of a real signal's spectrum are conjugate to the last bit.
                    zero_bytes(numbers + second, WIDTH)
                    if length % 2 == 0:
                        zero_bytes(numbers + length // 2 * PAIR + second, WIDTH)
                    for number in range(length // 2 + 1, made):
                        conjugate(numbers + (length - number) * PAIR, numbers + number * PAIR, second)
                index = 0
                if pairs_out:
                    while index + at_once <= made:
                        gather(places + 8, numbers + index * PAIR, index * dst_next, first, second, factor)
                        index += at_once
                while index < made:
                    scale(numbers + index * PAIR, factor)
                    for lane in range(lanes):
                        at = iload(places + 16 * lane + 8) + index * dst_next
                        store(at, load(numbers + index * PAIR + first + size * lane))
                        if dst_parts == 2:
                            store(at + dst_part, load(numbers + index * PAIR + second + size * lane))
                    index += 1

    return dft, types.void(*[types.int64] * 21, types.float64)


def _make_pass(kind: str, radix: int) -> Callable[..., None]:
    """Return the function that transforms ``radix`` numbers at a time, turns all results, and leaves them in another order."""
    plain, turned = make_butterfly(kind, radix, False), make_butterfly(kind, radix, True)
    wave = 2 * (int(kind[1:]) // 8) * (radix - 1)

    def run(source: int, target: int, before: int, behind: int, waves: int) -> None:
        step = PAIR * behind
        far = step * before
        for outer in range(before):
            start, end, angles = source + outer * radix * step, target + outer * step, waves
            plain(start, step, end, far, angles)
            for index in range(1, behind):
                turned(start + index * PAIR, step, end + index * PAIR, far, angles)
                angles += wave

    return run
