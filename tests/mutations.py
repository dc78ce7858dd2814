"""Damage bytes as disks, networks and attackers do. Every run takes another seed, which a failure shows."""

from __future__ import annotations

import copy
import os
import random
from typing import Any, Final

#: Values that break sizes and offsets: zero, one, limits of signed and unsigned words, and all bits.
_WORDS: Final = (
    0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
#: What stands in for a part of packed data.
_PARTS: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1, 7, 1 << 40, (1 << 63) - 1, 1 << 63, 1.5, float("nan"), "", "text", b"", b"bytes", [], [[]],
    [0] * 5, {}, {"a": 1}, [b"x"], ["x"], [None],
)  # fmt: skip


def fresh_seed() -> int:
    """Return the variable FUZZ_SEED, or a new seed, and print it: a failed test shows what it printed."""
    seed = int(os.environ.get("FUZZ_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"to repeat: FUZZ_SEED={seed}")
    return seed


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return `data` after one to four changes: bits, bytes, words, and pieces cut out, doubled, moved or cut off."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        _change(found, chance)
    return bytes(found)


def replace_a_part(whole: Any, chance: random.Random) -> None:
    """Put something else in a random place of nested lists and dictionaries."""
    while True:
        place = chance.choice(list(whole) if isinstance(whole, dict) else range(len(whole)))
        if not whole[place] or not isinstance(whole[place], dict | list) or chance.random() < 0.3:
            whole[place] = copy.deepcopy(chance.choice(_PARTS))
            return
        whole = whole[place]


def _change(data: bytearray, chance: random.Random) -> None:
    if not data:
        data += chance.randbytes(chance.randint(1, 8))
        return
    at = chance.randrange(len(data))
    to = min(len(data), at + chance.randint(1, 32))
    kind = chance.randrange(8)
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at] = chance.randrange(256)
    elif kind == 2:
        width = chance.choice((1, 2, 4, 8))
        word = (chance.choice(_WORDS) % (1 << 8 * width)).to_bytes(width, chance.choice(("little", "big")))
        data[at : at + width] = word[: len(data) - at]
    elif kind == 3:
        del data[at:to]
    elif kind == 4:
        data[at:at] = data[at:to]
    elif kind == 5:
        data[at:to] = chance.randbytes(to - at)
    elif kind == 6:
        other = chance.randrange(len(data))
        piece = bytes(data[at:to])
        data[other : other + len(piece)] = piece[: len(data) - other]
    else:
        del data[at:]
