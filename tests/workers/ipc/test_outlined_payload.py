"""Outlined payloads: what is packed is parsed, and anything else is refused or stays inside of the arena."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.ipc.outlined_payload import (
    ARGUMENT,
    IN_PLACE,
    MalformedPayload,
    Place,
    Slot,
    is_outlined,
    lay_out,
    pack_outlined,
    parse_outlined,
)

_ARENA = 1 << 24


@given(st.lists(st.integers(0, 3 << 20), max_size=400), st.binary() | st.none())
def test_what_is_packed_is_parsed_and_no_buffers_overlap(sizes: list[int], data: bytes | None) -> None:
    slot_sizes, places = lay_out(sizes)
    slots = [Slot(0, min(nbytes, _ARENA)) for nbytes in slot_sizes]
    packed = [Place(slot, start, nbytes) for (slot, start), nbytes in zip(places, sizes, strict=True)]
    seen: list[int] = [0] * len(slots)
    for slot, start, nbytes in packed:
        assert seen[slot] <= start
        seen[slot] = start + nbytes
        assert seen[slot] <= slot_sizes[slot]
    payload = pack_outlined(slots, packed, data)
    assert is_outlined(payload)
    if all(size <= _ARENA for size in slot_sizes) and (packed or data is not None):
        parsed = parse_outlined(payload, _ARENA)
        assert (parsed.slots, parsed.places) == (slots, packed)
        assert data is None if parsed.data is None else bytes(parsed.data) == data


def _check(payload: bytes, arguments: list[int]) -> None:
    """Parse a payload, and check that all of it is inside."""
    try:
        parsed = parse_outlined(payload, _ARENA, arguments)
    except MalformedPayload:
        return
    for slot in parsed.slots:
        assert 0 <= slot.offset <= slot.offset + slot.nbytes <= _ARENA
    for source, start, nbytes in parsed.places:
        if source >= 0:
            room = parsed.slots[source].nbytes
        else:
            room = _ARENA if source == IN_PLACE else arguments[ARGUMENT - source]
        assert 0 <= start <= start + nbytes <= room
    assert parsed.data is not None or parsed.places


_WORDS = st.integers(0, 2**64 - 1) | st.integers(0, _ARENA * 2) | st.sampled_from([0, 1, 2**63, 2**64 - 1])


@given(
    st.lists(st.builds(Slot, _WORDS, _WORDS), max_size=4),
    st.lists(st.builds(Place, st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5), _WORDS, _WORDS), max_size=4),
    st.binary() | st.none(),
    st.lists(st.integers(0, 1 << 20), max_size=3),
    st.data(),
)
def test_no_payload_names_anything_outside(
    slots: list[Slot], places: list[Place], data: bytes | None, arguments: list[int], draw: st.DataObject
) -> None:
    payload = pack_outlined(slots, places, data)
    _check(payload, arguments)
    _check(payload[: draw.draw(st.integers(0, len(payload)))], arguments)
    spoilt = bytearray(payload)
    for _ in range(3):
        spoilt[draw.draw(st.integers(0, len(spoilt) - 1))] = draw.draw(st.integers(0, 255))
    _check(bytes(spoilt), arguments)


@given(st.binary(max_size=200))
def test_noise_is_refused_or_stays_inside(noise: bytes) -> None:
    _check(b"\0" + noise, [])
