"""A client that asks for much is not read for a while if another one is active; a client that is alone always is."""

from __future__ import annotations

import _socket
from collections.abc import Callable, Iterator
from select import EPOLLIN, EPOLLOUT

import pytest

from poolrt.coordinator import pacing
from poolrt.coordinator.pacing import ACTIVE_S, COSTLY_S, OCCASIONAL_AT_ONCE, Pacing
from poolrt.coordinator.peers import Peer
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import Kind


class Clock:
    """The time that `pacing` sees."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pacing, "time", found)
    return found


@pytest.fixture
def peers() -> Iterator[dict[int, Peer]]:
    """Two connections of process 7, and one of process 8."""
    found: dict[int, Peer] = {}
    others: list[_socket.socket] = []
    for number, pid in ((1, 7), (2, 7), (3, 8)):
        ours, theirs = pair()
        others.append(theirs)
        found[number] = Peer(number, Channel(ours), number, True, True, pid=pid)
    yield found
    for peer in found.values():
        peer.channel.close()
    for other in others:
        other.close()


def test_nothing_pauses_a_client_that_is_alone(clock: Clock, peers: dict[int, Peer]) -> None:
    paces = Pacing(peers, lambda peer: None)
    for peer in (peers[1], peers[2]):
        paces.on_refused(peer)
        paces.on_connected(peer)
        paces.on_part(peer)
        for _ in range(100):
            paces.on_message(peer, Kind.LOAD, 1.0)
    assert not any(peer.paused for peer in peers.values())
    assert paces.next_time(5.0) == 5.0
    # Another one that was active more than a while ago counts as none
    paces.on_message(peers[3], Kind.RUN, 0.0)
    clock.now += ACTIVE_S
    paces.on_message(peers[1], Kind.CALL, 1.0)
    assert not peers[1].paused


def test_each_cause_pauses_a_client_beside_another_and_the_pause_ends(clock: Clock, peers: dict[int, Peer]) -> None:
    updated: list[int] = []
    paces = Pacing(peers, lambda peer: updated.append(peer.number))
    paces.on_message(peers[3], Kind.RUN, 0.0)
    paces.on_refused(peers[2])
    causes: list[Callable[[], None]] = [
        lambda: paces.on_part(peers[1]),
        lambda: paces.on_message(peers[1], Kind.ALLOCATE, 2 * COSTLY_S),
        lambda: paces.on_connected(peers[1]),
    ]
    for cause in causes:
        cause()
        assert [peer.paused for peer in peers.values()] == [True, False, False]
        until = paces.next_time(clock.now + 9)
        assert clock.now < until < clock.now + 9
        paces.end_pauses(clock.now)
        assert peers[1].paused
        paces.end_pauses(until)
        assert not peers[1].paused
    assert updated == [1] * 6
    # A connection that has ended meanwhile is passed over
    paces.on_part(peers[1])
    peers.pop(1).channel.close()
    paces.end_pauses(clock.now + 9)
    assert updated == [1] * 7


def test_what_is_sent_pauses_beside_another_client_and_goes_on(clock: Clock, peers: dict[int, Peer]) -> None:
    updated: list[int] = []
    paces = Pacing(peers, lambda peer: updated.append(peer.number))
    peers[2].client = False  # a process of the pool
    paces.on_message(peers[1], Kind.CALL, 0.0)
    for peer in (peers[1], peers[2]):
        paces.on_part(peer)
        paces.on_part_sent(peer)
        assert not peer.paused, "one client is active"
        assert not peer.unsent
    paces.on_message(peers[3], Kind.RUN, 0.0)
    for peer in (peers[1], peers[2]):
        peer.channel.send([Kind.TEXT, b"x" * 1_000_000])
        assert peer.wanted_events() == EPOLLIN | EPOLLOUT
        for _ in range(2):
            paces.on_part_sent(peer)
        assert peer.wanted_events() == EPOLLIN
        paces.on_part(peer)
        assert peer.wanted_events() == 0
    paces.end_pauses(clock.now + 9)
    assert updated == [1, 2, 1, 1, 2, 2], "when they are paused, and when both pauses end"
    assert all(peer.wanted_events() & EPOLLOUT for peer in (peers[1], peers[2]))


def test_occasional_messages_pause_beyond_a_number_that_time_restores(clock: Clock, peers: dict[int, Peer]) -> None:
    paces = Pacing(peers, lambda peer: None)

    def sent_before_a_pause(kind: Kind) -> int:
        paces.on_message(peers[3], Kind.RUN, 0.0)
        for count in range(100):
            paces.on_message(peers[1], kind, 0.0)
            if peers[1].paused:
                paces.end_pauses(clock.now + 9)
                return count
        return 100

    assert sent_before_a_pause(Kind.RUN) == 100
    assert sent_before_a_pause(Kind.PING) == OCCASIONAL_AT_ONCE
    assert sent_before_a_pause(Kind.LOAD) == 0
    assert sent_before_a_pause(Kind.CALL) == 100
    paces.on_message_in_vain(1)
    assert peers[1].paused
    paces.end_pauses(clock.now + 9)
    paces.on_message_in_vain(4)  # has disconnected
    clock.now += 60
    # Also if messages of other kinds came meanwhile
    paces.on_message(peers[1], Kind.RUN, 0.0)
    assert sent_before_a_pause(Kind.LOAD) == OCCASIONAL_AT_ONCE
