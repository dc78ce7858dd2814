"""Channels: any message arrives whole and in order, nothing blocks, and what is malformed raises an error and no more."""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.ipc import channel as channels
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import (
    FRAME,
    RECEIVED_AT_ONCE,
    RESERVED_AT_ONCE,
    Channel,
    ChannelClosed,
    ChannelFull,
    MalformedMessage,
    pair,
)

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    a, b = pair()
    left, right = Channel(a, accepts_fds=True), Channel(b, accepts_fds=True)
    yield left, right
    left.close()
    right.close()


def _receive(sender: Channel, receiver: Channel) -> list[Any]:
    while (message := receiver.receive()) is None:
        sender.flush()
    return message


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_messages_arrive_as_they_were_sent_in_order(ends: tuple[Channel, Channel], count: int) -> None:
    left, right = ends

    @settings(max_examples=count)
    @given(st.lists(st.lists(_VALUES, min_size=1, max_size=4), max_size=3))
    def check(messages: list[list[Any]]) -> None:
        for message in messages:
            left.send(message)
        assert [_receive(left, right) for _ in messages] == messages
        assert right.receive() is None

    check()


@pytest.mark.parametrize("size", [0, FRAME - 100, FRAME, FRAME + 1, 3 * FRAME, 5_000_000])
def test_a_long_message_is_split_and_put_together_again(ends: tuple[Channel, Channel], size: int) -> None:
    left, right = ends
    blob = os.urandom(size)
    left.send([1, blob])
    left.send([2])
    assert _receive(left, right) == [1, blob]
    assert _receive(left, right) == [2]
    assert left.queued == 0


@pytest.mark.parametrize("size", [RESERVED_AT_ONCE, RESERVED_AT_ONCE + 1])
def test_a_long_payload_is_joined_as_it_comes_and_never_copied_whole(ends: tuple[Channel, Channel], size: int) -> None:
    left, right = ends
    blob = os.urandom(size)
    tracemalloc.start()
    try:
        left.send([1, blob])
        assert _receive(left, right) == [1, blob]
        assert (
            tracemalloc.get_traced_memory()[1] < 1.25 * size
        )  # with parts that are joined in the end it is thrice the size
    finally:
        tracemalloc.stop()


def test_sending_to_a_peer_that_does_not_read_never_blocks_and_is_bounded(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ends
    monkeypatch.setattr(channels, "MAX_QUEUED", 1_000_000)
    sent = 0
    with pytest.raises(ChannelFull):
        while True:
            left.send([sent, b"x" * 10_000])
            sent += 1
    assert 0 < left.queued <= 1_000_000
    # What was accepted still arrives, in order.
    assert [_receive(left, right)[0] for _ in range(sent)] == list(range(sent))


def test_file_descriptors_travel_with_their_message(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    read, write = os.pipe()
    left.send([1], (read,))
    os.close(read)
    assert right.receive() == [1]
    arrived = right.take_fd()
    assert not os.get_inheritable(arrived)
    os.write(write, b"through")
    assert os.read(arrived, 10) == b"through"
    os.close(arrived)
    os.close(write)
    with pytest.raises(MalformedMessage):
        right.take_fd()


def test_sending_file_descriptors_to_a_peer_that_does_not_read_never_blocks(ends: tuple[Channel, Channel]) -> None:
    left, _ = ends
    read, write = os.pipe()
    for number in range(2000):
        left.send([number], (read,))
        if left.queued:
            break
    os.close(read)
    os.close(write)
    assert left.queued


def test_unexpected_file_descriptors_are_closed() -> None:
    a, b = pair()
    left, right = Channel(a), Channel(b)
    read, write = os.pipe()
    left.send([1], (write,))
    os.close(write)
    assert right.receive() == [1]
    assert os.read(read, 1) == b""  # no write end is left
    os.close(read)
    left.close()
    right.close()


def test_the_end_of_the_peer_is_noticed_by_both_directions(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send([1])
    left.close()
    assert right.receive() == [1]
    with pytest.raises(ChannelClosed):
        right.receive()
    with pytest.raises(ChannelClosed):
        right.send([1])


@pytest.mark.parametrize(
    "frame",
    [
        b"\0",
        b"\0\xc1",
        b"\0" + msgpack.packb(5),
        b"\0" + msgpack.packb([]),
        b"\0" + msgpack.packb([1]) + b"tail",
        b"\0" + msgpack.packb({"a": 1}),
        b"\0\x91\x81\x90\x00",
        b"\0" + b"\x91" * 5000,
        b"\2" + msgpack.packb([1]),
        b"\0" + b"x" * (FRAME + 5),
    ],
)
def test_a_malformed_frame_is_an_error_and_nothing_else(frame: bytes) -> None:
    a, b = pair()
    channel = Channel(b)
    a.send(frame)
    with pytest.raises(MalformedMessage):
        channel.receive()
    a.close()
    channel.close()


@given(st.binary(min_size=1, max_size=200))
@settings(deadline=None)
def test_arbitrary_bytes_give_a_message_or_an_error(data: bytes) -> None:
    a, b = pair()
    channel = Channel(b)
    a.send(data)
    try:
        message = channel.receive()
        assert message is None or message
    except MalformedMessage:
        pass
    finally:
        a.close()
        channel.close()


def test_a_message_beyond_the_receivers_limit_is_refused_before_it_is_complete() -> None:
    a, b = pair()
    channel = Channel(b, limit=100_000)
    with pytest.raises(MalformedMessage, match="longer than 100000"):
        for _ in range(3):
            a.send(b"\1" + b"x" * FRAME)
            assert channel.receive() is None
    a.close()
    channel.close()


def test_a_waiting_receive_returns_when_its_own_side_is_shut_down() -> None:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(b)
    channel.shut_down()
    with pytest.raises(ChannelClosed):
        channel.receive(block=True)
    a.close()
    channel.close()


def test_a_payload_is_forwarded_in_the_pieces_that_arrived() -> None:
    (a, b), (c, d) = pair(), pair()
    sender, relay = Channel(a), Channel(b, relays=True)
    onward, receiver = Channel(c), Channel(d)
    blob = os.urandom(20 * FRAME)
    sender.send([6, 1, blob])
    calls = 0
    while (message := relay.receive()) is None:
        assert relay.unfinished <= RECEIVED_AT_ONCE * FRAME * (calls := calls + 1), "a call does bounded work"
        sender.flush()
    assert type(message[-1]) is Payload
    onward.send([44, 2**40, message[-1]])
    assert _receive(onward, receiver) == [44, 2**40, blob]
    # A message whose long field is not the last one arrives whole.
    sender.send([81, 1, blob, "text"])
    assert _receive(sender, relay) == [81, 1, blob, "text"]
    for channel in (sender, relay, onward, receiver):
        channel.close()


def _announce(kind: int, nbytes: int) -> bytes:
    """Return the first frame of a message with a payload of so many bytes."""
    return (b"\1\x93" + bytes([kind, 1]) + b"\xc6" + nbytes.to_bytes(4, "big")).ljust(FRAME + 1, b"x")


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ([_announce(6, 1_000_000)], "of kind 6 of 1000008 bytes, more than 300000"),
        ([_announce(5, 200_000)], "of kind 5 longer than 65536 bytes"),
        ([_announce(6, 200_000), b"\1" + b"x" * 100], "100 bytes that others follow"),
        ([_announce(6, 200_000), b"\0" + b"x" * 100], "does not have the 200008 bytes"),
        ([_announce(6, 100_000), b"\1" + b"x" * FRAME], "does not have the 100008 bytes"),
        ([b"\1" + (b"\x93\x06" + b"\x91" * 60_000).ljust(FRAME, b"\x90")], "levels"),
        ([b"\1" + (b"\x92\x06" + b"\xdb\x00\x0f\x00\x00").ljust(FRAME, b"x")], "without a payload"),
        ([b"\0\x92\x08\xdc\xff\xff" + b"\x90" * 60_000], "more than 2560 items"),
    ],
)
def test_a_message_that_would_cost_more_than_its_kind_may_is_refused_at_its_first_frame(
    frames: list[bytes], complaint: str
) -> None:
    a, b = pair()
    channel = Channel(b, relays=True, limit_of=lambda kind: 300_000 if kind == 6 else FRAME)
    with pytest.raises(MalformedMessage, match=complaint):
        for frame in frames:
            a.send(frame)
            assert channel.receive() is None
    assert channel.unfinished <= FRAME
    a.close()
    channel.close()
