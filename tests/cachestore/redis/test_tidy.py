"""Tidying: what Redis loses by itself is noticed, and its books fit its values again, some entries at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from poolrt.cachestore.redis import tier as room
from poolrt.cachestore.redis.breaker import CircuitBreaker
from poolrt.cachestore.redis.connection import RedisConnection
from poolrt.cachestore.redis.lease import Terms
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.redis.tier import RedisTier

from ..server import RedisServer

DIGESTS = [f"{number:064x}" for number in range(300)]


@pytest.fixture
def tier(redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisTier]:
    """Return a tier that may tidy at any time."""
    monkeypatch.setattr(room, "_LOOK_INTERVAL_MS", 0)
    connection = RedisConnection(redis_server.url, redis_server.url, 0.5, CircuitBreaker())
    tier = RedisTier(connection, Schema(namespace, "of a test"), Terms(10.0, 60.0), (1000, 0))
    yield tier
    tier.close()


@pytest.fixture
def command(redis_server: RedisServer) -> Iterator[Callable[..., Any]]:
    """Return a function that runs a command, to change Redis as it might change itself."""
    with redis_server.client() as client:
        yield client.execute_command


def put(tier: RedisTier, digests: list[str]) -> None:
    """Publish a value of its own size under each digest."""
    for digest in digests:
        tier.leases.publish(digest, f"n{digest}", 0, 0, b"x" * (1 + int(digest, 16)))


def books(tier: RedisTier, command: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the bookkeeping: digests with sizes, and the sums."""
    listed = {item.digest: item.bytes for item in tier.listing()}
    counted = command("HGET", tier._schema.meta, "entries")
    return listed, tier.size(), len(sized(tier, command)), int(counted or 0)


def sized(tier: RedisTier, command: Callable[..., Any]) -> set[bytes]:
    """Return the digests whose sizes are there."""
    return set(command("HKEYS", tier._schema.sizes)) - {b"bytes"}


def fitting(digests: list[str]) -> tuple[Any, ...]:
    """Return what `books` has to be when these are all there is."""
    sizes = {digest: 1 + int(digest, 16) for digest in digests}
    return sizes, (len(sizes), sum(sizes.values())), len(sizes), len(sizes)


def tidy_up(tier: RedisTier) -> int:
    """Tidy until there is nothing more to do soon; return the number of calls."""
    calls = 1
    while tier.tidy().soon:
        calls += 1
        assert calls < 50
    return calls


def test_books_that_fit_are_left_as_they_are(tier: RedisTier, command: Callable[..., Any]) -> None:
    put(tier, DIGESTS[:10])
    run_id = tier.tidy().run_id
    tidy_up(tier)
    assert books(tier, command) == fitting(DIGESTS[:10])
    assert tier.tidy().run_id == run_id
    assert tier.counts()["evictions"] == 0


def test_values_that_vanished_are_listed_no_more(tier: RedisTier, command: Callable[..., Any]) -> None:
    put(tier, DIGESTS[:20])
    tidy_up(tier)
    for digest in DIGESTS[5:15]:
        command("DEL", tier._schema.value(digest))
    for _ in range(3):
        tidy_up(tier)
    assert books(tier, command) == fitting(DIGESTS[:5] + DIGESTS[15:20])
    assert tier.counts()["evictions"] == 10


@pytest.mark.parametrize("lost", ["sizes", "entries"])
def test_sizes_and_sums_that_vanished_come_back(tier: RedisTier, command: Callable[..., Any], lost: str) -> None:
    put(tier, DIGESTS[:20])
    tidy_up(tier)
    if lost == "sizes":
        command("DEL", tier._schema.sizes)
    else:
        command("HDEL", tier._schema.meta, lost)
    # Something new in the place of what was lost does not hide the loss
    put(tier, DIGESTS[20:22])
    tidy_up(tier)
    assert books(tier, command) == fitting(DIGESTS[:22])


@pytest.mark.parametrize("lost", [["meta"], ["order"], ["order", "sizes"], ["order", "sizes", "meta"]])
def test_a_loss_that_leaves_entries_without_a_trace_is_a_new_life(
    tier: RedisTier, command: Callable[..., Any], lost: list[str]
) -> None:
    put(tier, DIGESTS[:20])
    tidy_up(tier)
    run_id = tier.tidy().run_id
    for name in lost:
        command("DEL", getattr(tier._schema, name))
    put(tier, DIGESTS[20:22])
    assert tier.tidy().run_id != run_id
    # When their node publishes the values that are there and not listed, then they are listed again
    put(tier, tier.unlisted(DIGESTS[:22]))
    for _ in range(2):
        tidy_up(tier)
    assert books(tier, command) == fitting(DIGESTS[:22])


def test_one_call_looks_at_a_bounded_number_of_entries(
    tier: RedisTier, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_LOOKS_PER_CALL", 30)
    put(tier, DIGESTS)
    tidy_up(tier)
    command("DEL", tier._schema.sizes)
    tier.tidy()
    assert len(sized(tier, command)) == 30
    # And goes on where it stopped, also when entries are used meanwhile
    tier.touch(DIGESTS[40:60])
    assert tidy_up(tier) < 25
    assert books(tier, command) == fitting(DIGESTS)


def test_sizes_that_vanish_while_they_are_filled_in_are_not_summed_twice(
    tier: RedisTier, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given sizes that were lost and have been filled in except the last one
    monkeypatch.setattr(room, "_LOOKS_PER_CALL", 10)
    put(tier, DIGESTS[:20])
    tidy_up(tier)
    command("DEL", tier._schema.sizes)
    tier.tidy()
    # When they are lost once more
    command("DEL", tier._schema.sizes)
    put(tier, DIGESTS[20:22])
    # Then the sum is that of the entries
    tidy_up(tier)
    assert books(tier, command) == fitting(DIGESTS[:22])


def test_calls_of_many_processes_do_not_add_up(
    tier: RedisTier, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_LOOK_INTERVAL_MS", 60_000)
    put(tier, DIGESTS[:3])
    tidy_up(tier)
    looked = command("HGET", tier._schema.meta, "looked")
    for _ in range(5):
        tier.tidy()
    assert command("HGET", tier._schema.meta, "looked") == looked


def test_a_value_without_a_listing_is_listed_when_it_is_published_again(
    tier: RedisTier, command: Callable[..., Any]
) -> None:
    put(tier, DIGESTS[:3])
    command("ZREM", tier._schema.order, DIGESTS[1])
    command("HDEL", tier._schema.sizes, DIGESTS[1])
    assert tier.unlisted(DIGESTS[:4]) == [DIGESTS[1], DIGESTS[3]]
    assert tier.leases.publish(DIGESTS[1], "n", 0, 0, b"another").word == "DUP"
    assert tier.unlisted(DIGESTS[:3]) == []
    assert tier.get(DIGESTS[1]) == b"xx"
    assert tier.counts()["duplicates"] == 0


def test_repeats_of_entries_that_went_with_the_order_do_not_stay(tier: RedisTier, command: Callable[..., Any]) -> None:
    put(tier, DIGESTS[:3])
    tidy_up(tier)
    tier.leases.publish(DIGESTS[0], "n", 0, 0, b"another creation")
    assert command("HLEN", tier._schema.repeats) == 1
    # When Redis loses order and values, and entries come in again
    command("DEL", tier._schema.order, *(tier._schema.value(digest) for digest in DIGESTS[:3]))
    put(tier, DIGESTS[1:2])
    tidy_up(tier)
    assert command("HLEN", tier._schema.repeats) == 0
