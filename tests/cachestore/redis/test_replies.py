"""Replies of Redis: what has its shape is used, and anything else is an outage that is counted, never another exception."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key, StoreError
from poolrt.cachestore.redis import breaker, replies
from poolrt.cachestore.redis.lease import Ended, Held, Owned, Present, Seen, _acquired, _first_event, _published
from poolrt.cachestore.redis.replies import MalformedReply
from poolrt.cachestore.redis.tier import _settled, _ticks, _tidied
from tests.drills.proxy import Proxy

from ..names import write_key
from ..server import RedisServer

D1, D2 = "a" * 64, "b" * 64
NOTHING: tuple[Any, ...] = (
    1 << 63,
    b"9223372036854775808",
    b"0123456789abcdeF",
    None,
    True,
    1.5,
    "1",
    b"x",
    -7,
    [],
    [None],
    [[]],
    {},
    [b"OWN"],
    [1, 2, 3, 4, 5, 6],
    object(),
)


@pytest.mark.parametrize(
    ("shape", "reply", "wanted"),
    [
        (replies.integer, 5, 5),
        (replies.integer, b"-12", -12),
        (replies.integer, b"9223372036854775807", (1 << 63) - 1),
        (replies.count, None, 0),
        (replies.run_id, b"0123456789abcdef", "0123456789abcdef"),
        (replies.flag, 1, True),
        (replies.score, b"1.5e3", 1500.0),
        (replies.value, None, None),
        (replies.list_of(replies.count), [None, b"7"], [0, 7]),
        (replies.digest_list, [D1.encode(), b"../../etc", b"\xff"], [D1]),
        (_acquired, [b"OWN", 1, b"2", 3], Owned(Seen(1, 2), 3)),
        (_acquired, [b"WAIT", 1, 2, b"3", 1500, b"me", b"nonce"], Held(Seen(1, 2), 3, 1.5, "me", b"nonce")),
        (_acquired, [b"HIT", b"0", b"0"], Present(Seen(0, 0))),
        (_acquired, [b"DONE", 0, 0, b"err", b"failure"], Ended(b"failure", False)),
        (_first_event, None, None),
        (_first_event, [[b"stream", [[b"1-0", [b"s", b"retry"]]]]], Ended(None, True)),
        (_ticks, [D1.encode(), b"5", D2.encode(), b"6"], {D1: 5.0, D2: 6.0}),
    ],
)
def test_a_reply_of_its_shape_is_used(shape: Callable[[Any], Any], reply: Any, wanted: Any) -> None:
    assert shape(reply) == wanted


@pytest.mark.parametrize(
    "shape", [replies.integer, replies.flag, replies.score, _acquired, _published, _tidied, _settled]
)
def test_any_other_reply_is_malformed(shape: Callable[[Any], Any]) -> None:
    refused = 0
    for reply in NOTHING:
        try:
            shape(reply)
        except MalformedReply as error:
            refused += 1
            assert str(error).startswith("expected ")
    assert refused >= len(NOTHING) - 1  # -7 is an integer


@pytest.mark.parametrize("shape", [replies.value, replies.digest_list, _first_event, _ticks])
def test_shapes_that_may_be_empty_raise_nothing_else_either(shape: Callable[[Any], Any]) -> None:
    for reply in (*NOTHING, [[b"stream", b"x"]], [[b"stream", [[b"1-0", 5]]]], [D1.encode()]):
        try:
            shape(reply)
        except MalformedReply:
            continue


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("calls", "damaged"), [(100, 0.3), pytest.param(5_000, 0.05, marks=pytest.mark.slow)])
def test_damaged_replies_are_counted_and_nothing_but_the_stores_errors_leaves_it(
    redis_server: RedisServer,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: int,
    damaged: float,
) -> None:
    # Given two nodes that share a Redis whose replies are damaged, and that ask it again soon after each failure
    for name in ("_FIRST_PAUSE_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(breaker, name, 0.001)
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    options: dict[str, Any] = {"namespace": namespace, "io_timeout_s": 0.1, "lease_s": 1.0, "memory_bytes": 0}
    write_key(tmp_path / "key")
    with Proxy(redis_server.url.removeprefix("unix://"), damaged=damaged, seed=seed) as proxy:
        nodes = [
            CacheStore.connect(proxy.url, home=str(tmp_path / name), key_file=str(tmp_path / "key"), **options)
            for name in ("one", "two")
        ]
        # When they are asked for anything, until some of it was refused
        number = 0
        while number < calls or not sum(node.stats()["malformed"] for node in nodes):
            assert number < 20 * calls, f"seed {seed}: no malformed reply was counted"
            number += 1
            store = rng.choice(nodes)
            key, other = Key({"n": rng.randrange(calls)}), rng.randrange(8)
            wanted = key.digest.encode() * 40
            # Then values are right
            assert store.fetch_or_create(key, partial(bytes, wanted)).value == wanted, f"seed {seed}, call {number}"
            try:
                if other == 0:
                    store.stats()
                elif other == 1:
                    store.entries()
                elif other == 2:
                    store.remove(key)
                elif other == 3:
                    store.verify()
            except StoreError:
                continue
        # And what was refused is counted
        for node in nodes:
            node.close()
