"""Entries at rest: after any change, reading returns the genuine payload of the right key or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.cachestore import EntryCorrupt, EntryForged, Key
from poolrt.cachestore.entry import FAILURE, EntryCodec, EntryMeta
from poolrt.cachestore.signing import SigningKey

KEY = Key({"primitive": "matmul", "dims": (4, 4)})
META = EntryMeta(fence=7, created=1.5e9, seconds=0.25, creator="host", toolchain="numba 0.61")
OURS = SigningKey(b"ours" * 8)
CODEC = EntryCodec(OURS, "ns")
BLOB = CODEC.pack(KEY.canonical, b"payload" * 9, META)


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_an_entry_gives_back_what_was_put_in(payload: bytes, fields: dict[str, int]) -> None:
    key = Key(fields)
    entry = CODEC.unpack(CODEC.pack(key.canonical, payload, META), key.digest)
    assert (entry.payload, entry.key, entry.meta) == (payload, key.canonical, META)


def test_a_flipped_bit_anywhere_is_corrupt() -> None:
    for position in range(len(BLOB)):
        for bit in range(8):
            bad = bytearray(BLOB)
            bad[position] ^= 1 << bit
            with pytest.raises(EntryCorrupt):
                CODEC.unpack(bytes(bad), KEY.digest)


def test_every_truncation_and_extension_is_corrupt() -> None:
    for size in range(len(BLOB)):
        with pytest.raises(EntryCorrupt):
            CODEC.unpack(BLOB[:size])
    with pytest.raises(EntryCorrupt):
        CODEC.unpack(BLOB + b"\0")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(EntryCorrupt):
        CODEC.unpack(data)


def test_an_entry_signed_with_another_key_is_forged() -> None:
    theirs = SigningKey(b"theirs" * 8)
    blob = EntryCodec(theirs, "ns").pack(KEY.canonical, b"evil", META)
    with pytest.raises(EntryForged) as caught:
        CODEC.unpack(blob, KEY.digest)
    assert caught.value.key_id == theirs.id.hex()


def test_an_entry_of_another_namespace_is_refused() -> None:
    blob = EntryCodec(OURS, "other").pack(KEY.canonical, b"x", META)
    with pytest.raises(EntryCorrupt, match="signature"):
        CODEC.unpack(blob)


def test_namespace_and_content_cannot_run_into_each_other() -> None:
    # Given the same bytes split differently between the namespace and the rest
    blob = EntryCodec(OURS, "ns1").pack(KEY.canonical, b"x", META)
    # Then each split has its own signature
    with pytest.raises(EntryCorrupt):
        EntryCodec(OURS, "ns").unpack(blob)


def test_a_genuine_entry_under_another_digest_is_refused() -> None:
    with pytest.raises(EntryCorrupt, match="another digest"):
        CODEC.unpack(BLOB, Key({"other": 1}).digest)


class CollidingKey(Key):
    """A key that pretends to have the digest of another."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """The digest of KEY."""
        return KEY.digest


def test_a_key_with_the_same_digest_is_not_taken_for_the_entrys_key() -> None:
    assert CODEC.open(BLOB, KEY) is not None
    assert CODEC.open(BLOB, CollidingKey({"other": 1})) is None


def test_a_failure_is_not_taken_for_a_value() -> None:
    failure = CODEC.pack(KEY.canonical, b"x", META, FAILURE)
    with pytest.raises(EntryCorrupt, match="kind"):
        CODEC.unpack(failure)
    with pytest.raises(EntryCorrupt, match="kind"):
        CODEC.unpack(BLOB, kind=FAILURE)
