"""The lease protocol, step by step: which creator may publish, the answers to waiters, and late results."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from poolrt.cachestore import StoreUnavailable
from poolrt.cachestore.errors import StoreFull
from poolrt.cachestore.node_state import NodeState
from poolrt.cachestore.redis import breaker as breaker_module
from poolrt.cachestore.redis.breaker import CircuitBreaker
from poolrt.cachestore.redis.connection import RedisConnection
from poolrt.cachestore.redis.lease import Ended, Held, Off, Owned, Present, Publication, Published, Terms
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.redis.tier import RedisTier
from poolrt.cachestore.stats import Sent

from ..server import RedisServer

D1, D2, D3 = ("1" * 64, "2" * 64, "3" * 64)
#: Seconds that Redis may take for an answer: how soon a busy machine lets it run says nothing about leases.
ANSWER_S = 30.0
MakeTier = Callable[..., RedisTier]


@pytest.fixture(params=["redis_server", "valkey_server", pytest.param("other_server", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> RedisServer:
    """Return a server of each version that is here."""
    found: RedisServer = request.getfixturevalue(request.param)
    return found


def plain(reply: Any) -> Any:
    """Accept any reply."""
    return reply


@pytest.fixture
def make_tier(server: RedisServer, namespace: str) -> Iterator[MakeTier]:
    """Return a maker of tiers on one namespace."""
    made: list[RedisTier] = []

    def make(term_s: float = 10.0, limit_s: float = 60.0, capacity: int = 100, capacity_bytes: int = 0) -> RedisTier:
        connection = RedisConnection(server.url, server.url, ANSWER_S, CircuitBreaker())
        schema = Schema(namespace, "of a test")
        made.append(RedisTier(connection, schema, Terms(term_s, limit_s), (capacity, capacity_bytes)))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


@pytest.fixture
def tier(make_tier: MakeTier) -> RedisTier:
    """Return a tier."""
    return make_tier()


def own(tier: RedisTier, digest: str, nonce: str) -> Owned:
    """Return the lease, which must be free."""
    answer = tier.leases.acquire(digest, nonce, "owner", None)
    assert isinstance(answer, Owned)
    return answer


def held(tier: RedisTier, digest: str, nonce: str, waited_for: int | None = None) -> Held:
    """Return the holder of the lease; there must be one."""
    answer = tier.leases.acquire(digest, nonce, "owner", waited_for)
    assert isinstance(answer, Held)
    return answer


def expire(tier: RedisTier, digest: str) -> None:
    """Let a lease run out."""
    deadline = time.monotonic() + 5.0
    while ends_ms(tier, digest) >= redis_ms(tier):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ends_ms(tier: RedisTier, digest: str) -> int:
    """Return when a lease runs out, on the server's clock."""
    return int(tier._connection.command(plain, "HGET", tier._schema.lease(digest), "expires"))


def creations_of(tier: RedisTier) -> dict[str, int | None]:
    """Return how often each listed entry was created."""
    return {item.digest: item.creations for item in tier.listing()}


def redis_ms(tier: RedisTier) -> int:
    """Return the server's time in milliseconds."""
    seconds, micros = tier._connection.command(plain, "TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def test_one_creator_holds_the_lease_and_the_others_get_its_name(tier: RedisTier) -> None:
    begin = redis_ms(tier)
    lease = own(tier, D1, "a")
    other = held(tier, D1, "b")
    assert (other.fence, other.owner, other.nonce) == (lease.fence, "owner", b"a")
    assert 10.0 - (redis_ms(tier) - begin) / 1000 <= other.left_s <= 10.0


def test_asking_twice_with_one_nonce_gives_the_same_lease(tier: RedisTier) -> None:
    assert own(tier, D1, "a") == own(tier, D1, "a")


def test_fences_grow_over_all_keys(tier: RedisTier) -> None:
    fences = [own(tier, digest, "a").fence for digest in (D1, D2, D3)]
    assert fences == sorted(set(fences))


def test_a_published_value_is_there_and_the_lease_is_over(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    assert tier.leases.publish(D1, "a", lease.fence, 0, b"value").word == "OK"
    assert tier.get(D1) == b"value"
    assert isinstance(tier.leases.acquire(D1, "b", "owner", None), Present)
    assert not tier.leases.renew(D1, "a")
    assert tier.size() == (1, 5)


def test_a_waiter_is_woken_by_the_value(tier: RedisTier, make_tier: MakeTier) -> None:
    lease = own(tier, D1, "a")
    other = make_tier()
    waited_for = held(other, D1, "b")
    news: list[Ended | None] = []

    def wait() -> None:
        while not news or news[-1] is None:
            news.append(other.leases.wait(D1, waited_for, 10.0))

    thread = threading.Thread(target=wait)
    thread.start()
    tier.leases.publish(D1, "a", lease.fence, 0, b"value")
    thread.join(10)
    assert news[-1] == Ended(None, retry=False)


def test_a_waiter_gets_the_failure_and_the_next_may_try(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    waited_for = held(tier, D1, "b")
    assert tier.leases.fail(D1, "a", lease.fence, b"signed failure")
    assert tier.leases.wait(D1, waited_for, 1.0) == Ended(b"signed failure", retry=False)
    own(tier, D1, "c")


def test_a_waiter_whose_wait_ran_out_as_the_creator_failed_does_not_create(tier: RedisTier) -> None:
    # Given a waiter that has not read the stream when the lease ends
    lease = own(tier, D1, "a")
    waited_for = held(tier, D1, "b").fence
    tier.leases.fail(D1, "a", lease.fence, b"signed failure")
    # When it asks for the lease again, Then the answer is how the former lease has ended
    assert tier.leases.acquire(D1, "b", "owner", waited_for) == Ended(b"signed failure", retry=False)


def test_a_creator_that_gives_up_lets_a_waiter_try(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    waited_for = held(tier, D1, "b")
    assert tier.leases.fail(D1, "a", lease.fence, None)
    assert tier.leases.wait(D1, waited_for, 1.0) == Ended(None, retry=True)
    assert isinstance(tier.leases.acquire(D1, "b", "owner", waited_for.fence), Owned)


def test_a_lease_runs_out_unless_it_is_renewed(make_tier: MakeTier) -> None:
    # Given a lease that its holder renews
    tier = make_tier(limit_s=3600.0)
    own(tier, D1, "a")
    begin = redis_ms(tier)
    assert make_tier(term_s=600.0).leases.renew(D1, "a")
    # Then it runs on from now, and another has to wait
    assert begin + 600_000 <= ends_ms(tier, D1) <= redis_ms(tier) + 600_000
    assert held(tier, D1, "b").nonce == b"a"
    # When it is renewed once more, and then no more, then it runs out
    assert make_tier(term_s=0.05).leases.renew(D1, "a")
    expire(tier, D1)
    own(tier, D1, "b")
    assert not tier.leases.renew(D1, "a")
    assert tier.counts()["takeovers"] == 1


def test_no_renewal_goes_past_the_hard_limit(make_tier: MakeTier) -> None:
    tier = make_tier(term_s=5.0, limit_s=0.2)
    own(tier, D1, "a")
    deadline = time.monotonic() + 5.0
    while tier.leases.renew(D1, "a"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    expire(tier, D1)
    own(tier, D1, "b")


def test_a_late_creator_changes_nothing_while_another_is_at_work(make_tier: MakeTier) -> None:
    tier = make_tier(term_s=0.05)
    late = own(tier, D1, "late")
    expire(tier, D1)
    newer = own(make_tier(), D1, "newer")
    assert tier.leases.publish(D1, "late", late.fence, 0, b"late").word == "LOST"
    assert not tier.leases.fail(D1, "late", late.fence, b"failure")
    assert not tier.leases.renew(D1, "late")
    assert tier.leases.publish(D1, "newer", newer.fence, 0, b"newer").word == "OK"
    assert tier.leases.publish(D1, "late", late.fence, 0, b"late").word == "DUP"
    assert tier.get(D1) == b"newer"


def test_a_late_creator_publishes_when_no_other_has_taken_over(make_tier: MakeTier) -> None:
    tier = make_tier(term_s=0.05)
    late = own(tier, D1, "late")
    expire(tier, D1)
    assert tier.leases.publish(D1, "late", late.fence, 0, b"late").word == "OK"
    assert tier.get(D1) == b"late"


def test_a_value_made_without_a_lease_is_welcome_when_there_is_none(tier: RedisTier) -> None:
    assert tier.leases.publish(D1, "a", 0, 0, b"made alone").word == "LATE"
    own(tier, D2, "b")
    assert tier.leases.publish(D2, "c", 0, 0, b"made alone").word == "LOST"


def test_each_creation_of_a_key_is_counted_once(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    for value, creations in (
        (b"the first", 1),
        (b"the first", 1),
        (b"a second", 2),
        (b"a third one", 3),
        (b"a second", 3),
    ):
        tier.leases.publish(D1, "a", lease.fence, 0, value)
        assert creations_of(tier) == {D1: creations}
    # From the beginning when it was dropped
    tier.remove(D1)
    assert tier._connection.command(plain, "HLEN", tier._schema.repeats) == 0
    tier.leases.publish(D1, "b", 0, 0, b"the first")
    assert creations_of(tier) == {D1: 1}


def test_a_creation_that_comes_too_late_is_counted_with_the_one_that_is_kept(make_tier: MakeTier) -> None:
    tier = make_tier(term_s=0.05)
    late = own(tier, D1, "late")
    expire(tier, D1)
    newer = own(make_tier(), D1, "newer")
    for _ in range(2):
        assert tier.leases.publish(D1, "late", late.fence, 0, b"made too late").word == "LOST"
    tier.leases.publish(D1, "newer", newer.fence, 0, b"the newer one")
    assert tier.leases.publish(D1, "late", late.fence, 0, b"made too late").word == "DUP"
    assert creations_of(tier) == {D1: 2}


def test_a_creation_that_had_to_wait_for_the_end_of_anothers_lease_is_counted_once(make_tier: MakeTier) -> None:
    tier = make_tier(term_s=0.05)
    own(make_tier(), D1, "somebody who dies")
    assert tier.leases.publish(D1, "alone", 0, 0, b"made alone").word == "LOST"
    tier._connection.command(plain, "HSET", tier._schema.lease(D1), "expires", 0)
    assert tier.leases.publish(D1, "alone", 0, 0, b"made alone").word == "LATE"
    assert creations_of(tier) == {D1: 1}


def test_a_value_made_before_a_clear_is_not_published(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    waited_for = held(tier, D1, "b")
    tier.settle(NodeState(generation=5))
    assert tier.leases.publish(D1, "a", lease.fence, 0, b"old").word == "CLEARED"
    assert tier.get(D1) is None
    assert tier.leases.wait(D1, waited_for, 1.0) == Ended(None, retry=True)


def test_a_value_larger_than_the_capacity_in_bytes_only_serves_those_who_wait(make_tier: MakeTier) -> None:
    tier = make_tier(capacity_bytes=10)
    lease = own(tier, D1, "a")
    assert tier.leases.publish(D1, "a", lease.fence, 0, b"x" * 11).word == "TRANSIENT"
    assert tier.get(D1) == b"x" * 11
    assert 0 < tier._connection.command(plain, "PTTL", tier._schema.value(D1)) <= 30_000
    assert tier.size() == (0, 0)


def test_a_capacity_of_zero_is_an_answer_of_its_own(make_tier: MakeTier) -> None:
    assert isinstance(make_tier(capacity=0).leases.acquire(D1, "a", "owner", None), Off)


def put(tier: RedisTier, digest: str, size: int = 5) -> tuple[str, ...]:
    """Publish a value; return the digests dropped for it."""
    return tier.leases.publish(
        digest, f"nonce {digest}", own(tier, digest, f"nonce {digest}").fence, 0, b"x" * size
    ).dropped


def test_the_least_recently_used_goes_first_and_is_named(make_tier: MakeTier) -> None:
    tier = make_tier(capacity=2)
    put(tier, D1)
    put(tier, D2)
    assert tier.touch([D1]) == []
    assert put(tier, D3) == (D2,)
    assert [item.digest for item in tier.listing()] == [D1, D3]
    assert tier.counts()["evictions"] == 1


def test_the_capacity_in_bytes_holds_and_the_books_balance(make_tier: MakeTier) -> None:
    tier = make_tier(capacity_bytes=100)
    for number in range(20):
        put(tier, f"{number:064x}", 7 * number % 50 + 1)
        listed = tier.listing()
        assert tier.size() == (len(listed), sum(item.bytes for item in listed))
        assert tier.size()[1] <= 100
        assert listed[-1].digest == f"{number:064x}"


def test_a_value_on_its_way_is_never_dropped_for_itself(make_tier: MakeTier) -> None:
    tier = make_tier(capacity=1)
    put(tier, D1)
    assert put(tier, D2) == (D1,)
    assert tier.get(D2) is not None


def limit_memory(tier: RedisTier, more: int) -> None:
    """Leave Redis so many bytes more than it uses."""
    used = int(re.findall(rb"used_memory:(\d+)", tier._connection.command(plain, "INFO", "memory"))[0])
    tier._connection.command(plain, "CONFIG", "SET", "maxmemory", used + more)


@pytest.fixture
def full_server(make_tier: MakeTier, server: RedisServer) -> Iterator[RedisServer]:
    """Return a server whose memory may be limited; it is not any more afterwards."""
    yield server
    with server.client() as client:
        client.config_set("maxmemory", 0)


def test_a_full_redis_drops_old_entries_for_a_lease(full_server: RedisServer, make_tier: MakeTier) -> None:
    # Given a full Redis
    tier = make_tier()
    for number in range(20):
        put(tier, f"{number:064x}", 50_000)
    limit_memory(tier, -50_000)
    # When two hosts ask for the lease of one more entry
    own(tier, D1, "a")
    # Then one of them has it, and the oldest entries have made room
    assert held(make_tier(), D1, "b").nonce == b"a"
    listed = [item.digest for item in tier.listing()]
    assert 10 <= len(listed) < 20
    assert listed[-1] == f"{19:064x}"


def test_values_find_their_places_as_soon_as_there_is_memory(full_server: RedisServer, make_tier: MakeTier) -> None:
    tier = make_tier()
    publications = [Publication(digest, f"nonce{digest}", 0, 0, b"x" * 50_000) for digest in (D1, D2)]
    limit_memory(tier, -50_000)
    outcomes = tier.leases.publish_together(publications)
    assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull]
    limit_memory(tier, 1_000_000)
    outcomes = tier.leases.publish_together(publications)
    assert [outcome.word for outcome in outcomes if isinstance(outcome, Published)] == ["LATE", "LATE"]
    assert tier.size() == (2, 100_000)


def test_touching_tells_what_is_not_there(tier: RedisTier) -> None:
    put(tier, D1)
    assert tier.touch([D2, D1, D3]) == [D2, D3]


def test_removing_a_bad_value_spares_the_good_one_in_its_place(tier: RedisTier) -> None:
    put(tier, D1)
    assert not tier.remove(D1, b"bad value with another end")
    assert tier.get(D1) is not None
    assert tier.remove(D1)
    assert not tier.remove(D1)
    assert tier.size() == (0, 0)


def test_node_and_redis_agree_on_the_later_word(tier: RedisTier) -> None:
    node = NodeState(generation=5, revision=9, capacity=7, capacity_bytes=70)
    shared, _ = tier.settle(node)
    assert (shared.generation, shared.revision, shared.capacity, shared.capacity_bytes) == (5, 9, 7, 70)
    shared, _ = tier.settle(node._replace(generation=4, revision=8, capacity=1))
    assert (shared.generation, shared.revision, shared.capacity) == (5, 9, 7)


def test_clearing_more_than_one_call_may_drop(make_tier: MakeTier) -> None:
    tier = make_tier(capacity=2000)
    for number in range(1100):
        tier.leases.publish(f"{number:064x}", f"n{number}", 0, 0, b"x")
    shared, dropped = tier.settle(NodeState(generation=5))
    assert (len(dropped), tier.size(), shared.generation) == (1100, (0, 0), 5)
    assert tier.counts()["evictions"] == 0


def test_counts_add_up(tier: RedisTier) -> None:
    tier.count(Sent("one", 1, {"misses": 2, "saved_us": 10**12}))
    tier.count(Sent("other", 1, {"misses": 3}))
    counts = tier.counts()
    assert (counts["misses"], counts["saved_us"], counts["waits"]) == (5, 10**12, 0)


def test_counts_that_are_sent_twice_are_added_once(tier: RedisTier) -> None:
    for number in (1, 1, 2, 2, 1):
        tier.count(Sent("one", number, {"misses": 1}))
    assert tier.counts()["misses"] == 2


def test_scripts_are_loaded_again_after_redis_forgot_them(tier: RedisTier) -> None:
    lease = own(tier, D1, "a")
    tier._connection.command(plain, "SCRIPT FLUSH")
    assert tier.leases.renew(D1, "a")
    tier._connection.command(plain, "SCRIPT FLUSH")
    assert tier.leases.publish(D1, "a", lease.fence, 0, b"x").word == "OK"


def test_a_server_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # it is not asked again yet
    breaker = CircuitBreaker()
    connection = RedisConnection("unix:///no-server", "unix:///no-server", 0.5, breaker)
    with pytest.raises(StoreUnavailable):
        connection.command(plain, "PING")
    assert not breaker.allows()
    connection.close()
