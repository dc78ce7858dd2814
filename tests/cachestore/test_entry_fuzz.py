"""Ten thousand damaged entries, and as many signed ones of programs with other ideas: nothing but clean refusals."""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable

import msgpack
import pytest

from poolrt.cachestore import CreationFailed, EntryCorrupt, EntryForged, Key
from poolrt.cachestore.entry import _BODY, _CRC, _HEADER, _PREFIX, FAILURE, Entry, EntryCodec, EntryMeta
from poolrt.cachestore.signing import TAG_SIZE, SigningKey
from poolrt.cachestore.stats import Tally
from poolrt.cachestore.verification import Verification

from ..mutations import fresh_seed, mutated, replace_a_part

COUNT = 10_000
KEY = Key({"primitive": "matmul", "operation": {"dims": (64, 64), "alpha": 0.5, "big": 1 << 70}, "source": "0" * 64})
META = EntryMeta(fence=7, created=1.5e9, seconds=0.25, creator="host", toolchain="numba 0.61")
CODEC = EntryCodec(SigningKey(b"ours" * 8), "ns")
PAYLOAD = bytes(range(256))
BLOB = CODEC.pack(KEY.canonical, PAYLOAD, META)


@pytest.fixture
def chance() -> random.Random:
    """Return random numbers that no other run has."""
    return random.Random(fresh_seed())


def opened(blob: bytes) -> Entry | None:
    """Open as a look-up does."""
    return CODEC.open(blob, KEY)


def inspected(blob: bytes) -> Entry:
    """Open as a listing does, which wants to know the key."""
    entry = CODEC.unpack(blob)
    Key.from_canonical(entry.key)
    return entry


def outcome(look: Callable[[bytes], Entry | None], blob: bytes) -> str:
    """Return the entry of some bytes, or None; any other error than the verifier's own two fails the test."""
    try:
        return type(look(blob)).__name__
    except (EntryCorrupt, EntryForged) as error:
        return type(error).__name__


@pytest.mark.parametrize("look", [opened, inspected])
def test_no_damaged_entry_is_taken_for_a_genuine_one(
    look: Callable[[bytes], Entry | None], chance: random.Random
) -> None:
    damaged = [blob for blob in (mutated(BLOB, chance) for _ in range(COUNT)) if blob != BLOB]
    seen = Counter(outcome(look, blob) for blob in damaged)
    # Damage to the prefix is seen by its check sum, so that hardly any of it looks like another's key
    assert set(seen) <= {"EntryCorrupt", "EntryForged"}
    assert seen["EntryCorrupt"] > COUNT // 2


def test_a_prefix_with_a_right_check_sum_does_not_help(chance: random.Random) -> None:
    # Given entries with a changed prefix and its right check sum, made without the key
    seen: Counter[str] = Counter()
    for _ in range(COUNT):
        prefix = mutated(BLOB[: _PREFIX.size], chance)[: _PREFIX.size].ljust(_PREFIX.size, b"\0")
        if prefix != BLOB[: _PREFIX.size]:
            seen[outcome(opened, prefix + _CRC.pack(zlib.crc32(prefix)) + BLOB[_BODY:])] += 1
    # Then all are refused, and those that name another key are forged
    assert set(seen) == {"EntryCorrupt", "EntryForged"}


@pytest.mark.parametrize("look", [opened, inspected])
def test_a_signed_message_of_any_shape_is_an_entry_or_corrupt(
    look: Callable[[bytes], Entry | None], chance: random.Random
) -> None:
    # Given messages with a valid signature and anything before it
    body = BLOB[:-TAG_SIZE]
    seen = Counter(outcome(look, signed(mutated(body, chance))) for _ in range(COUNT))
    # Then those with an unharmed frame, key and header are entries, and the others corrupt
    assert set(seen) == {"EntryCorrupt", "Entry"}


def test_a_signed_entry_of_a_damaged_key_is_an_entry_of_another_key_or_corrupt(chance: random.Random) -> None:
    # Given genuine entries whose key is malformed
    seen = Counter(outcome(inspected, CODEC.pack(mutated(KEY.canonical, chance), PAYLOAD, META)) for _ in range(COUNT))
    # Then a listing can read the key of each one that is not refused
    assert set(seen) == {"EntryCorrupt", "Entry"}


def test_a_signed_failure_of_any_shape_is_a_failure_or_corrupt(chance: random.Random) -> None:
    tally = Tally()
    verification = Verification(lambda: CODEC, tally)
    failure = CreationFailed("TypeError", "no matching signature", "log")
    wire = failure.to_wire()
    sound = 0
    for number in range(COUNT):
        changed = dict(wire)
        if number % 2:
            replace_a_part(changed, chance)
        payload = msgpack.packb(changed) if number % 2 else mutated(msgpack.packb(changed), chance)
        found = verification.verify_failure(KEY, CODEC.pack(KEY.canonical, payload, META, FAILURE))
        sound += isinstance(found, CreationFailed)
    assert 0 < sound < COUNT
    assert tally.take().counts["corrupt"] == COUNT - sound


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\0" * (_HEADER.size - 1),
        _HEADER.pack(1, float("nan"), 0.0, 0),
        _HEADER.pack(1, 0.0, float("inf"), 0),
        _HEADER.pack(1, 0.0, 0.0, 9) + b"short",
        _HEADER.pack(1, 0.0, 0.0, 1) + b"\xff",
        _HEADER.pack(1, 0.0, 0.0, 0) + b"\xc3",
    ],
)
def test_a_signed_header_that_makes_no_sense_is_corrupt(header: bytes) -> None:
    prefix = struct.Struct(">4sBB8sIIQ").pack(b"PLRE", 2, 1, CODEC._key_id, len(header), len(KEY.canonical), 1)
    with pytest.raises(EntryCorrupt, match="header"):
        opened(signed(prefix + _CRC.pack(zlib.crc32(prefix)) + header + KEY.canonical + b"x"))


def signed(message: bytes) -> bytes:
    """Return a message with our signature."""
    return message + CODEC._signing.sign(message)
