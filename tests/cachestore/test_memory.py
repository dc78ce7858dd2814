"""The memory tier keeps to its bounds, forgets the least recently used, and takes no lock for a hit."""

from __future__ import annotations

import threading

from poolrt.cachestore import Key
from poolrt.cachestore.memory import MemoryTier
from poolrt.cachestore.node_state import NodeState

KEYS = [Key({"n": number}) for number in range(6)]
STATE = NodeState()


def make(capacity: int, capacity_bytes: int) -> MemoryTier:
    """Return a tier without a counter of hits."""
    return MemoryTier(capacity, capacity_bytes, [], lambda: None)


def put(tier: MemoryTier, number: int, payload: bytes = b"x") -> None:
    """Keep a payload under the state that a new tier has."""
    tier.put(KEYS[number], payload, STATE)


def present(tier: MemoryTier) -> list[int]:
    """Return which keys are there, without knowing how they are kept."""
    return [number for number, key in enumerate(KEYS) if tier.hit(key, current=True) is not None]


def test_past_its_capacity_the_least_recently_used_goes() -> None:
    tier = make(3, 1000)
    for number in range(3):
        put(tier, number)
    assert tier.hit(KEYS[0], current=True) == b"x"
    put(tier, 3)
    assert present(tier) == [0, 2, 3]


def test_bytes_are_bounded_too() -> None:
    tier = make(10, 10)
    for number in range(3):
        put(tier, number, b"xxxx")
    assert present(tier) == [1, 2]
    assert tier.bytes == 8


def test_a_payload_larger_than_the_tier_drops_nothing() -> None:
    tier = make(10, 10)
    put(tier, 0, b"xxxx")
    put(tier, 1, b"x" * 11)
    assert present(tier) == [0]


def test_putting_a_key_again_counts_its_bytes_once() -> None:
    tier = make(10, 10)
    put(tier, 0, b"xxxx")
    put(tier, 0, b"xxxxxx")
    assert (tier.bytes, len(tier)) == (6, 1)


def test_a_removed_key_is_gone_and_takes_its_bytes_along() -> None:
    tier = make(10, 10)
    put(tier, 0, b"xxxx")
    tier.remove(KEYS[0])
    tier.remove(KEYS[1])
    assert (present(tier), tier.bytes) == ([], 0)


def test_a_reset_forgets_everything_and_sets_the_capacity() -> None:
    tier = make(10, 100)
    for number in range(6):
        put(tier, number)
    tier.reset(1, STATE)
    assert (tier.bytes, len(tier)) == (0, 0)
    put(tier, 0)
    put(tier, 1)
    assert present(tier) == [1]


def test_what_was_found_before_a_reset_is_not_kept_after_it() -> None:
    tier = make(10, 100)
    tier.reset(10, NodeState(generation=5))
    put(tier, 0)
    assert present(tier) == []


def test_a_capacity_of_zero_keeps_nothing() -> None:
    tier = make(0, 100)
    put(tier, 0)
    assert present(tier) == []


def test_another_key_with_the_same_digest_is_not_a_hit() -> None:
    class Colliding(Key):
        """A key with the digest of the first."""

        __slots__ = ()

        @property
        def digest(self) -> str:
            """The digest of the first key."""
            return KEYS[0].digest

    tier = make(10, 100)
    put(tier, 0)
    assert tier.hit(Colliding({"n": 99}), current=True) is None


def test_a_hit_of_an_equal_key_computes_no_digest() -> None:
    class Undigested(Key):
        """A key that cannot be hashed."""

        __slots__ = ()

        @property
        def digest(self) -> str:
            """Nothing."""
            raise AssertionError("a hit in memory computed a digest")

    tier = make(10, 100)
    put(tier, 0)
    assert tier.hit(Undigested({"n": 0}), current=True) == b"x"


def test_every_hit_is_noted_and_handed_on_from_time_to_time() -> None:
    uses: list[str] = []
    calls: list[int] = []
    tier = MemoryTier(10, 100, uses, lambda: calls.append(len(uses)))
    put(tier, 0)
    for _ in range(200):
        tier.hit(KEYS[0], current=True)
    assert uses == [KEYS[0].digest] * 200
    assert calls == [64, 128, 192]


def test_without_a_watch_the_nodes_state_has_to_be_looked_at() -> None:
    tier = make(10, 100)
    put(tier, 0)
    assert tier.hit(KEYS[0]) is None
    tier.watch((b"record", b"record"))
    assert tier.hit(KEYS[0]) == b"x"
    tier.watch((b"changed", b"record"))
    assert tier.hit(KEYS[0]) is None
    tier.watch(None)
    assert tier.hit(KEYS[0]) is None


def test_threads_that_hit_and_put_and_remove_leave_the_tier_sound() -> None:
    # Given a tier that is too small for its keys, so that threads drop each other's entries
    tier = make(4, 1000)
    wrong: list[object] = []
    begin = threading.Barrier(4)

    def work(mine: int) -> None:
        begin.wait()
        for turn in range(3000):
            key = KEYS[(mine + turn) % len(KEYS)]
            payload = tier.hit(key, current=True)
            if payload is None:
                tier.put(key, key.canonical, STATE)
            elif payload != key.canonical:
                wrong.append(payload)
            if turn % 50 == 0:
                tier.remove(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Then no thread got another key's payload, and the sizes add up
    assert not wrong
    assert len(tier) <= 4
    assert tier.bytes == sum(len(KEYS[number].canonical) for number in present(tier))
