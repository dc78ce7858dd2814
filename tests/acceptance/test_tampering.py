"""Entries that were damaged or forged at rest: refused, counted, created again; results stay right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.signing import load_key

from .conftest import NetworkMaker
from .networks import TINY
from .surroundings import Surroundings


class Cache:
    """The cache of some surroundings, at rest: the node's files and the embedded server."""

    def __init__(self, place: Surroundings) -> None:
        self.place = place
        key = load_key(str(place.cache / "signing.key"), make=False)
        #: Name of an entry in Redis, without its digest.
        self.prefix = Schema("default", key.fingerprint).value("")
        self.client = redis.Redis(unix_socket_path=str(place.cache / "redis" / "redis.sock"))

    def files(self) -> list[Path]:
        """Return the files of all entries, in a stable order."""
        return sorted(path for path in self.place.cache.glob("default/entries/*/*") if path.is_file())

    def in_redis(self, digest: str) -> bytes:
        """Return an entry's bytes in Redis."""
        found = self.client.get(self.prefix + digest)
        assert isinstance(found, bytes)
        return found

    def counts(self) -> dict[str, Any]:
        """Return the counters of `poolrt cache stats`."""
        return self.place.json("cache", "stats")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, network: NetworkMaker) -> Iterator[Surroundings]:
    """Surroundings where a network's kernels are cached."""
    place = Surroundings(tmp_path_factory.mktemp("filled"))
    place.json(*network(TINY).words())
    yield place
    place.close()


@pytest.fixture
def cache(filled: Surroundings) -> Iterator[Cache]:
    """The cache of those surroundings, with its server running and every entry in both tiers."""
    filled.json("cache", "stats")
    cache = Cache(filled)
    assert {path.name for path in cache.files()} == {
        name.decode().removeprefix(cache.prefix) for name in cache.client.scan_iter(f"{cache.prefix}*")
    }
    yield cache
    cache.client.close()
    filled.assert_nothing_is_left()


def flipped(blob: bytes, position: int) -> bytes:
    """Return bytes with one of them changed."""
    bad = bytearray(blob)
    bad[position] ^= 0x01
    return bytes(bad)


def run(place: Surroundings, network: NetworkMaker) -> dict[str, Any]:
    """Run the network, whose result must be right, and return where its primitives came from."""
    primitives: dict[str, Any] = place.json(*network(TINY).words())["primitives"]
    return primitives


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return the counters of refusals and creations that have changed, and by how much."""
    names = ("corrupt", "forged", "creations", "creation_errors")
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


#: A byte of the magic, of the header, of the middle (the kernels) and of the signature.
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("begin", marks=pytest.mark.slow),
        pytest.param("header", marks=pytest.mark.slow),
        "middle",
        pytest.param("end", marks=pytest.mark.slow),
    ],
)
def test_a_flipped_byte_everywhere_is_refused_counted_and_the_kernel_created_again(
    cache: Cache, network: NetworkMaker, where: str
) -> None:
    # Given one entry with a flipped byte, in the node's files and in Redis
    before = cache.counts()
    victim = cache.files()[0]
    good = victim.read_bytes()
    bad = flipped(good, {"begin": 0, "header": 40, "middle": len(good) // 2, "end": len(good) - 1}[where])
    victim.write_bytes(bad)
    cache.client.set(cache.prefix + victim.name, bad)
    # When the network is run
    primitives = run(cache.place, network)
    # Then it was refused in both places, and its kernel was created once, and is sound in both places again
    assert (primitives["created"], primitives["files"]) == (1, primitives["total"] - 1)
    assert grown(before, cache.counts()) == {"corrupt": 2, "creations": 1}
    assert victim.read_bytes() != bad
    assert cache.in_redis(victim.name) == victim.read_bytes()
    assert cache.place.json("cache", "verify")["problems"] == []


@pytest.mark.slow
def test_a_flipped_byte_in_a_file_is_refused_and_the_entry_taken_from_redis(
    cache: Cache, network: NetworkMaker
) -> None:
    before = cache.counts()
    victim = cache.files()[-1]
    good = victim.read_bytes()
    victim.write_bytes(flipped(good, len(good) // 2))
    primitives = run(cache.place, network)
    assert (primitives["created"], primitives["redis"]) == (0, 1)
    assert grown(before, cache.counts()) == {"corrupt": 1}
    assert victim.read_bytes() == good


@pytest.mark.slow
def test_a_flipped_byte_in_redis_is_refused_by_a_node_that_does_not_have_the_entry(
    cache: Cache, network: NetworkMaker, tmp_path: Path
) -> None:
    # Given a second node that shares Redis and the key, and one bad entry in Redis
    before = cache.counts()
    url = f"unix://{cache.place.cache / 'redis' / 'redis.sock'}"
    key_file = str(cache.place.cache / "signing.key")
    other = Surroundings(tmp_path / "other", POOLRT_REDIS_URL=url, POOLRT_KEY_FILE=key_file)
    victim = cache.files()[0].name
    cache.client.set(cache.prefix + victim, flipped(cache.in_redis(victim), -1))
    # When each of the two runs the network
    here, there = run(cache.place, network), run(other, network)
    # Then this one has it in its files and never asks, and that one creates it again
    assert (here["created"], here["files"]) == (0, here["total"])
    assert (there["created"], there["redis"]) == (1, there["total"] - 1)
    assert grown(before, cache.counts()) == {"corrupt": 1, "creations": 1}
    other.close()


@pytest.mark.slow
def test_verify_finds_a_flipped_byte_that_no_run_would_meet(cache: Cache, network: NetworkMaker) -> None:
    before = cache.counts()
    victim = cache.files()[0].name
    good = cache.in_redis(victim)
    cache.client.set(cache.prefix + victim, flipped(good, 50))
    done = cache.place.call("cache", "verify")
    assert done.returncode == 1
    assert f"removed {victim[:16]} in redis: entry {victim} is corrupt" in done.stdout
    assert grown(before, cache.counts()) == {"corrupt": 1}
    assert cache.client.get(cache.prefix + victim) is None
    assert cache.place.call("cache", "verify").returncode == 0
    # The node's files still have it, so nothing is created; `capacity` and LRU go by what Redis has.
    assert run(cache.place, network)["created"] == 0
    cache.client.set(cache.prefix + victim, good)


@pytest.mark.slow
def test_entries_signed_with_another_key_are_refused_as_forged_and_created_again(
    fresh: Surroundings, network: NetworkMaker, tmp_path: Path
) -> None:
    # Given genuine entries, but signed with another user's key, in the place of one's own
    someone = Surroundings(tmp_path / "someone")
    total = run(someone, network)["total"]
    entries = [path for path in someone.cache.glob("default/entries/*/*") if path.is_file()]
    assert len(entries) == total
    fresh.json("cache", "stats")
    folder = fresh.cache / "default" / "entries" / entries[0].parent.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in entries:
        shutil.copy(path, folder / path.name)
    someone.close()
    # When the network is run
    primitives = run(fresh, network)
    # Then each of them is refused, and each kernel is created again
    assert primitives["created"] == total
    assert grown(
        dict.fromkeys(("corrupt", "forged", "creations", "creation_errors"), 0), fresh.json("cache", "stats")
    ) == {
        "forged": total,
        "creations": total,
    }
    assert run(fresh, network)["created"] == 0
