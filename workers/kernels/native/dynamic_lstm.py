"""Steps of an LSTM whose states are quantised before they are multiplied: by their least and greatest number, to bytes.

Three parts: bytes of a state of all sequences, products by the weights of 16 channels at a time, and the cell that
`recurrent_cell` computes of these. One kernel has all steps, others a part of one step each, for several threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from .compiler import types
from .dynamic_lstm_tiles import GATES, make_bytes, make_pairs, scaled, sum_of_bytes, widen
from .first_lanes import vstore_part
from .integer_dot import register_bits
from .integers import load_s32, load_u8, store_s32
from .quantise import CHUNK
from .quantise import make as make_quantise
from .range_scale import make as make_scale
from .recurrent_cell import LSTM
from .recurrent_cell import make as make_cell
from .stack_room import stack_room
from .tensor_range import make as make_range
from .vec import WIDTH, fload, vstore

#: The parts that a kernel may have.
PARTS: Final = ("steps", "state", "cells")


def make(isa: str, part: str, how: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; bytes are multiplied as they are (``bytes``, ``vnni``) or in 16 bits (``pairs``).

    Arguments, the same of all parts: addresses of what inputs add to the gates (T, N, 4, H), of the first h and c (N, H; 0:
    zeros), of the packed weights, of what `dynamic_lstm_weights` wrote of them (sums and fits), of their scales (4, H) and zero
    points (4, H; 0: none), of h of all steps (T, N, H), of the last c (N, H), which has c between steps too; of scratch memory:
    `STATE_NUMBERS`, bytes (N, H) and 64 more, words (N, H filled up to a multiple of 16) and 64 more, sums of rows (N), products
    (N, 4, H); the first step and the end; steps T, sequences N, channels H, sequences of an item of work; whether steps go
    backwards; whether there is a first h. ``state`` is one item of work, ``steps`` too; an item of ``cells`` is 16 channels of a
    strip of sequences.
    """
    find_range, _ = make_range(isa)
    find_scale, _ = make_scale(isa, "s32")
    quantise, _ = make_quantise(isa, "f32", "", "u8", True)
    cell, _ = make_cell(isa, LSTM, "eltwise_tanh", 0.0, asks=False)
    uses_bytes, limits = how != "pairs", how == "bytes"
    multiply = make_bytes(how, 256 if limits else register_bits(isa))
    multiply_pairs = make_pairs(register_bits(isa))
    widens = not uses_bytes or limits
    room = stack_room(GATES * WIDTH)
    unbounded = -math.inf

    def write_state(
        h: int, numbers: int, bytes_: int, words: int, row_sums: int, points: int, batch: int, hidden: int
    ) -> None:  # fmt: skip
        count = batch * hidden
        scale, point = numbers + 8, numbers + 12
        find_range(0, 1, h, numbers, count, count)
        find_scale(0, 1, numbers, 1, scale, point, point)
        rows = (count + CHUNK - 1) // CHUNK
        quantise(0, rows, h, 0, bytes_, 0, 0, 0, 0, scale, point, CHUNK, count, 1, rows, 1, 1, unbounded, 0.0, 0.0)
        zero_point = load_s32(point)
        if widens:
            padded = (hidden + 15) // 16 * 16
            for n in range(batch):
                for k in range(0, padded, 16):
                    widen(bytes_ + n * hidden + k, words + (n * padded + k) * 2, zero_point)
        if points != 0:
            for n in range(batch):
                total, at, stop = 0, bytes_ + n * hidden, bytes_ + (n + 1) * hidden
                while at + 16 <= stop:
                    total += sum_of_bytes(at)
                    at += 16
                while at < stop:
                    total += load_u8(at)
                    at += 1
                store_s32(row_sums + n * 4, total - hidden * zero_point)

    def advance(
        block: int, first: int, end: int, x: int, h: int, c: int, weights: int, sums: int, fits: int, scales: int, points: int,
        after: int, keeps: int, numbers: int, bytes_: int, words: int, row_sums: int, products: int, hidden: int, begun: int,
        remembers: int,
    ) -> None:  # fmt: skip
        """Compute 16 channels of some sequences in one step."""
        blocks, groups = (hidden + 15) // 16, (hidden + 3) // 4
        gate_step, row = blocks * groups * WIDTH, 2 * ((hidden + 15) // 16 * 16)
        lanes = min(16, hidden - block * 16)
        factor, place = weights + block * groups * WIDTH, room()
        scale, zero_point = fload(numbers + 8), load_s32(numbers + 12)
        holds = uses_bytes
        if limits:
            held = 1
            for gate in range(GATES):
                held &= load_s32(fits + 4 * (gate * blocks + block))
            holds = held != 0
        for n in range(first, end):
            if begun:
                columns = 0
                if holds:
                    columns = sums + block * WIDTH
                    if uses_bytes:
                        multiply(bytes_ + n * hidden, factor, gate_step, groups, place)
                elif widens:
                    multiply_pairs(words + n * row, factor, gate_step, groups, place)
                    multiply_pairs(words + n * row, factor + 2 * gate_step, gate_step, groups, place + 2 * WIDTH)
                row_sum = 0
                if points != 0:
                    row_sum = load_s32(row_sums + n * 4)
                for gate in range(GATES):
                    at = 4 * (gate * hidden + block * 16)
                    own_columns, own_points = 0, 0
                    if columns != 0:
                        own_columns = columns + gate * blocks * WIDTH
                    if points != 0:
                        own_points = points + at
                    value = scaled(
                        place + gate * WIDTH, own_columns, zero_point, own_points, row_sum, scales + at, scale, lanes
                    )
                    to = products + n * GATES * hidden * 4 + at
                    if lanes == 16:
                        vstore(to, value)
                    else:
                        vstore_part(to, value, lanes)
            item = n * blocks + block
            cell(
                item,
                item + 1,
                x,
                products,
                h,
                after,
                c,
                keeps,
                0,
                0,
                hidden,
                GATES,
                hidden,
                GATES * hidden,
                begun,
                remembers,
                0,
            )

    def dynamic_lstm(
        begin: int, end: int, src: int, first_h: int, first_c: int, weights: int, sums: int, fits: int, scales: int, points: int,
        dst: int, keeps: int, numbers: int, bytes_: int, words: int, row_sums: int, products: int, first_step: int,
        end_step: int, steps: int, batch: int, hidden: int, strip: int, backwards: int, begun: int,
    ) -> None:  # fmt: skip
        blocks, state = (hidden + 15) // 16, batch * hidden * 4
        for number in range(first_step, end_step):
            step = steps - 1 - number if backwards else number
            before = step + 1 if backwards else step - 1
            h, c, started, remembered = dst + before * state, keeps, 1, 1
            if number == 0:
                h, c, started, remembered = first_h, first_c, begun, int(first_c != 0)
            if part != "cells" and started:
                write_state(h, numbers, bytes_, words, row_sums, points, batch, hidden)
            if part == "steps":
                for block in range(blocks):
                    advance(block, 0, batch, src + step * GATES * state, h, c, weights, sums, fits, scales, points,
                            dst + step * state, keeps, numbers, bytes_, words, row_sums, products, hidden, started,
                            remembered)  # fmt: skip
            elif part == "cells":
                strips = (batch + strip - 1) // strip
                for item in range(begin, end):
                    first = item % strips * strip
                    advance(item // strips, first, min(batch, first + strip), src + step * GATES * state, h, c, weights, sums,
                            fits, scales, points, dst + step * state, keeps, numbers, bytes_, words, row_sums, products,
                            hidden, started, remembered)  # fmt: skip

    return dynamic_lstm, types.void(*[types.int64] * 25)
