"""The memory tier keeps to its bounds and forgets the least recently used."""

from __future__ import annotations

from poolrt.cachestore import Key
from poolrt.cachestore.memory import MemoryTier

KEYS = [Key({"n": number}) for number in range(6)]


def present(tier: MemoryTier) -> list[int]:
    """Return which keys are there, without knowing how they are kept."""
    return [number for number, key in enumerate(KEYS) if tier.get(key) is not None]


def test_past_its_capacity_the_least_recently_used_goes() -> None:
    tier = MemoryTier(3, 1000)
    for key in KEYS[:3]:
        tier.put(key, b"x")
    assert tier.get(KEYS[0]) == b"x"
    tier.put(KEYS[3], b"x")
    assert present(tier) == [0, 2, 3]


def test_bytes_are_bounded_too() -> None:
    tier = MemoryTier(10, 10)
    tier.put(KEYS[0], b"xxxx")
    tier.put(KEYS[1], b"xxxx")
    tier.put(KEYS[2], b"xxxx")
    assert present(tier) == [1, 2]
    assert tier.bytes == 8


def test_a_payload_larger_than_the_tier_drops_nothing() -> None:
    tier = MemoryTier(10, 10)
    tier.put(KEYS[0], b"xxxx")
    tier.put(KEYS[1], b"x" * 11)
    assert present(tier) == [0]


def test_putting_a_key_again_counts_its_bytes_once() -> None:
    tier = MemoryTier(10, 10)
    tier.put(KEYS[0], b"xxxx")
    tier.put(KEYS[0], b"xxxxxx")
    assert (tier.bytes, len(tier)) == (6, 1)


def test_a_reset_forgets_everything_and_sets_the_capacity() -> None:
    tier = MemoryTier(10, 100)
    for key in KEYS:
        tier.put(key, b"x")
    tier.reset(1)
    assert (tier.bytes, len(tier)) == (0, 0)
    tier.put(KEYS[0], b"x")
    tier.put(KEYS[1], b"x")
    assert present(tier) == [1]


def test_a_capacity_of_zero_keeps_nothing() -> None:
    tier = MemoryTier(0, 100)
    tier.put(KEYS[0], b"x")
    assert present(tier) == []


def test_another_key_with_the_same_digest_is_not_a_hit() -> None:
    class Colliding(Key):
        """A key with the digest of the first."""

        __slots__ = ()

        @property
        def digest(self) -> str:
            """The digest of the first key."""
            return KEYS[0].digest

    tier = MemoryTier(10, 100)
    tier.put(KEYS[0], b"x")
    assert tier.get(Colliding({"n": 99})) is None
