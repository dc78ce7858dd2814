"""Many processes, one creation per key; entries created without a connection come to Redis later."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import Key
from poolrt.cachestore.stats import TIERS

from .actor import payload_of
from .actors import Actors
from .conftest import StoreMaker
from .server import RedisServer
from .waiting import await_all_at, wait_until

FIELDS = [{"primitive": "test", "n": number} for number in range(40)]
RIGHT = [hashlib.sha256(payload_of(fields, 1000)).hexdigest() for fields in FIELDS]


@pytest.mark.parametrize("homes", [pytest.param("one home", marks=pytest.mark.slow), "a home each"])
def test_eight_processes_create_forty_entries_exactly_once(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker, tmp_path: Path, homes: str
) -> None:
    make_store().ping()
    store = make_store()
    store.get_or_create(Key({"first": 0}), lambda: b"makes the key file")
    for number in range(8):
        own = {**options, "key_file": str(Path(options["home"]) / "signing.key")}
        if homes == "a home each":
            own["home"] = str(tmp_path / f"home{number}")
        actors.add(own, FIELDS, create_s=0.005)
    actors.go()
    said = actors.results()
    assert [[result["sha256"] for result in one["results"]] for one in said] == [RIGHT] * 8
    assert actors.creations() == dict.fromkeys(map(json.dumps, FIELDS), 1)
    stats = store.stats()
    assert (stats["creations"], stats["entries"], stats["degraded"], stats["takeovers"]) == (41, 41, 0, 0)
    assert sum(stats["hits"][tier] for tier in TIERS) + stats["misses"] == 8 * 40 + 1
    assert stats["misses"] == stats["creations"] + stats["waits"]


@pytest.mark.slow
def test_eight_processes_share_one_embedded_server(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    own = {**options, "url": None}
    for _ in range(8):
        actors.add(own, FIELDS, create_s=0.002)
    actors.go()
    said = actors.results()
    assert [[result["sha256"] for result in one["results"]] for one in said] == [RIGHT] * 8
    assert actors.creations() == dict.fromkeys(map(json.dumps, FIELDS), 1)
    assert make_store(url=None).stats()["creations"] == 40
    log = (Path(options["home"]) / "redis" / "redis.log").read_text()
    assert log.count("is starting oO0") == 1


@pytest.mark.slow
def test_eight_processes_without_redis_create_exactly_once(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    for _ in range(8):
        actors.add({**options, "url": "unix:///no-server"}, FIELDS, create_s=0.005)
    actors.go()
    said = actors.results()
    assert [[result["sha256"] for result in one["results"]] for one in said] == [RIGHT] * 8
    assert actors.creations() == dict.fromkeys(map(json.dumps, FIELDS), 1)
    # When a process with a connection comes, it takes everything along, a share at a call
    store = make_store()
    wait_until(lambda: store.stats()["entries"] == 40)
    stats = store.stats()
    assert (stats["creations"], stats["entries"]) == (40, 40)
    assert stats["degraded"] > 0


@pytest.mark.parametrize("away", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_creators_error_reaches_all_who_wait_and_is_forgotten(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker, redis_server: RedisServer, away: bool
) -> None:
    own = {**options, "url": "unix:///no-server"} if away else options
    members = [actors.add(own, FIELDS[:1], hold=True, fail="no such type") for _ in range(4)]
    actors.go(*members)
    # Given a creation that goes on until all others wait for it
    with redis_server.client() as client:
        await_all_at(Key(FIELDS[0]).digest, [actor.pid for actor in members], client)
    actors.let_on()
    errors = [one["results"][0]["error"] for one in actors.results(*members)]
    expected = {
        "error": "CreationFailed",
        "type": "CompilerError",
        "message": "no such type",
        "log": "log of no such type",
    }
    assert errors == [expected] * 4
    assert sum(actors.creations().values()) == 1
    # The next request tries again
    retry = actors.add(own, FIELDS[:1])
    actors.go(retry)
    assert actors.results(retry)[0]["results"][0]["source"] == "created"
    stats = make_store().stats()
    assert (stats["creation_errors"], stats["creations"]) == (1, 1)


def test_a_warm_start_needs_neither_connection_nor_client(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    for fields in FIELDS:
        make_store(url="unix:///no-server").get_or_create(Key(fields), partial(payload_of, fields, 1000))
    warm = actors.add({**options, "url": "unix:///no-server"}, FIELDS)
    actors.go(warm)
    (said,) = actors.results(warm)
    assert {result["source"] for result in said["results"]} == {"files"}
    assert said["heavy"] == []
    assert sorted(result["seconds"] for result in said["results"])[20] < 0.001


def test_hits_of_processes_without_connection_reach_redis(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    store = make_store()
    for fields in FIELDS[:10]:
        store.get_or_create(Key(fields), partial(payload_of, fields, 1000))
    warm = [actors.add({**options, "url": "unix:///no-server"}, FIELDS[:1] + FIELDS[:5]) for _ in range(3)]
    actors.go()
    for said in actors.results(*warm):
        assert [result["source"] for result in said["results"]] == ["files", "memory", *["files"] * 4]
    stats = store.stats()
    assert stats["hits"] == {"memory": 3, "files": 15, "prebuilt": 0, "redis": 0}
    # And the order of use has followed: the ten least recently used are dropped first
    store.set_capacity(5)
    assert {entry.digest for entry in store.entries()} == {Key(fields).digest for fields in FIELDS[:5]}


def test_entries_made_without_redis_are_published_later(
    make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    alone = make_store(url="unix:///no-server")
    for fields in FIELDS[:3]:
        alone.get_or_create(Key(fields), lambda: b"made alone")
    # Given a process with a connection that does something else
    other = make_store()

    def publishes() -> bool:
        other.get(Key({"something": "else"}))
        return other.size == 3

    wait_until(publishes)
    # Then another node finds them in Redis
    elsewhere = make_store(home=str(tmp_path / "elsewhere"), key_file=str(Path(options["home"]) / "signing.key"))
    assert [found and found.source for found in elsewhere.get_many([Key(fields) for fields in FIELDS[:3]])] == [
        "redis"
    ] * 3


def test_a_clear_without_redis_reaches_it_later(
    make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    make_store().get_or_create(Key(FIELDS[0]), lambda: b"old")
    make_store(url="unix:///no-server").clear()
    assert make_store().get(Key(FIELDS[0])) is None
    elsewhere = make_store(home=str(tmp_path / "elsewhere"), key_file=str(Path(options["home"]) / "signing.key"))
    assert elsewhere.get(Key(FIELDS[0])) is None


def test_a_clear_on_one_node_reaches_another(make_store: StoreMaker, options: dict[str, Any], tmp_path: Path) -> None:
    here = make_store()
    there = make_store(home=str(tmp_path / "there"), key_file=str(Path(options["home"]) / "signing.key"))
    here.get_or_create(Key(FIELDS[0]), lambda: b"old")
    assert there.get(Key(FIELDS[0])) == b"old"
    here.clear()
    # The other node learns of it when it next asks Redis for anything
    assert there.get(Key(FIELDS[1])) is None
    assert there.get(Key(FIELDS[0])) is None


def test_a_capacity_set_on_one_node_holds_on_another(
    make_store: StoreMaker, options: dict[str, Any], tmp_path: Path
) -> None:
    here = make_store()
    there = make_store(home=str(tmp_path / "there"), key_file=str(Path(options["home"]) / "signing.key"))
    for fields in FIELDS[:4]:
        there.get_or_create(Key(fields), lambda: b"x")
    here.set_capacity(2)
    assert (there.capacity, there.size) == (2, 2)
    here.set_capacity(0)
    there.stats()
    assert there.fetch_or_create(Key(FIELDS[0]), lambda: b"x").source == "created"
    assert (there.capacity, there.size) == (0, 0)
