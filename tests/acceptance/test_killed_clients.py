"""Clients that are killed while runs are under way: within a second, nothing of them is left."""

from __future__ import annotations

import time

import pytest

from .conftest import NetworkMaker
from .networks import LASTING
from .surroundings import Surroundings, arena_holders, survivors, wait_until, watch


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("opencl", LASTING),
        *(pytest.param(engine, "squeezenet", marks=pytest.mark.slow) for engine in ("cpu", "opencl")),
    ],
)
def test_when_the_client_is_killed_everything_is_gone_within_a_second(
    warm: Surroundings, network: NetworkMaker, engine: str, name: str
) -> None:
    words = (*network(name).words(), "--engine", engine, "--workers", "2")
    warm.json(*words)
    # Given a client whose workers are at work
    with warm.start(*words, "--repeat", "1000000") as client:
        try:
            wait_until(lambda: len(warm.at_work(client.pid)) == 2, 60.0, lambda: f"not two at work: {warm.strangers()}")
            arenas = warm.arenas()
            assert len(arenas) == 1
            assert len(arena_holders(arenas)) >= 4  # client, coordinator and workers
            watched = watch(process.pid for process in warm.strangers())
        # When it is killed
        finally:
            client.kill()
        deadline = time.monotonic() + 1.0
        # Then its processes, its shared memory, its sockets and its temporary files are gone
        assert survivors(watched, deadline) == []
        client.communicate()
    warm.assert_nothing_is_left(0.0)
    assert arena_holders(arenas) == []
