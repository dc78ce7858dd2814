"""Processes and servers that fall silent, held to bounds of about a second: these tests have the machine to themselves."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import Key, StoreUnavailable

from .actor import payload_of
from .actors import Actors, expect
from .conftest import StoreMaker
from .server import RedisServer
from .waiting import wait_until

FIELDS = [{"primitive": "test", "n": number} for number in range(5)]
RIGHT = hashlib.sha256(payload_of(FIELDS[0], 1000)).hexdigest()
KEY = Key(FIELDS[0])


def test_a_frozen_creator_loses_its_lease_and_comes_too_late(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    own = {**options, "lease_s": 1.0}
    # Given a creation that cannot end before its process is stopped
    victim = actors.add(own, FIELDS[:1], hold=True, announce=True)
    actors.go(victim)
    assert expect(victim) == "creating"
    os.kill(victim.pid, signal.SIGSTOP)
    waiters = [actors.add(own, FIELDS[:1]) for _ in range(3)]
    actors.go(*waiters)
    said = [one["results"][0] for one in actors.results(*waiters)]
    assert [result["sha256"] for result in said] == [RIGHT] * 3
    assert sorted(result["source"] for result in said).count("created") == 1
    os.kill(victim.pid, signal.SIGCONT)
    (late,) = actors.results(victim)
    assert late["results"][0]["sha256"] == RIGHT
    stats = make_store().stats()
    assert (stats["creations"], stats["entries"], stats["takeovers"]) == (2, 1, 1)


def test_a_busy_creator_keeps_its_lease_beyond_its_term(
    actors: Actors, options: dict[str, Any], make_store: StoreMaker
) -> None:
    own = {**options, "lease_s": 1.0}
    busy = actors.add(own, FIELDS[:1], create_s=1.5, announce=True)
    actors.go(busy)
    assert expect(busy) == "creating"
    assert make_store(**own).fetch_or_create(KEY, lambda: b"mine").source == "waited"
    assert make_store().stats()["takeovers"] == 0


def test_a_frozen_redis_costs_little_and_is_used_again(own_server: RedisServer, make_store: StoreMaker) -> None:
    store = make_store(url=own_server.url)
    store.ping()
    own_server.freeze()
    begin = time.monotonic()
    for fields in FIELDS:
        assert store.get_or_create(Key(fields), lambda: b"x") == b"x"
    assert time.monotonic() - begin < 5.0
    with pytest.raises(StoreUnavailable):
        store.ping()
    own_server.thaw()
    wait_until(lambda: store.get(Key({"nobody": "has this"})) is None and store.size == 5)
    assert store.stats()["degraded"] > 0


def test_a_frozen_embedded_server_costs_no_thread_more_than_a_second(make_store: StoreMaker, home: Path) -> None:
    make_store(url=None).get_or_create(KEY, lambda: b"x")
    pid = int((home / "redis" / "redis.pid").read_text())
    store = make_store(url=None)

    def ask(number: int) -> float:
        begin = time.monotonic()
        assert store.get_or_create(Key({"asked by": number}), lambda: b"made here") == b"made here"
        return time.monotonic() - begin

    os.kill(pid, signal.SIGSTOP)
    try:
        # The first calls of a process, which has no connection yet
        with ThreadPoolExecutor(8) as pool:
            assert max(pool.map(ask, range(8))) < 1.2
        # And every call after them
        begin = time.monotonic()
        number = 8
        while time.monotonic() - begin < 2.0:
            number += 1
            assert ask(number) < 1.2
            time.sleep(0.02)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: store.stats()["entries"] == number + 1)
