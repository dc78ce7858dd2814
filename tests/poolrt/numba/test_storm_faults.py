"""Storms of processes that call the same functions while a creator or Redis is killed, and where there is no store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from poolrt.cachestore import CacheStore
from tests.cachestore.server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[3]
#: A silent creator's term, in seconds, and what a busy machine may add.
LEASE_S: Final = 4.0
BUSY_S: Final = 8.0
FUNCTIONS: Final = 3


@dataclass(frozen=True)
class Storm:
    """What the processes printed, None for one that was killed, and the lines of their compilations."""

    answers: list[dict[str, Any] | None]
    log: list[list[str]]

    @property
    def survivors(self) -> list[dict[str, Any]]:
        """What the others printed."""
        return [answer for answer in self.answers if answer is not None]

    def count(self, event: str) -> Counter[str]:
        """Return how often each function's compilation began, or was done."""
        return Counter(name for what, name, *_ in self.log if what == event)

    def times(self, event: str, function: str) -> list[float]:
        """Return when, on the steady clock."""
        return [float(when) for what, name, _, when in self.log if (what, name) == (event, function)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Return a server that a test may harm."""
    server = RedisServer(tmp_path / "server")
    yield server
    server.kill()


def _home(folder: Path) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


def _storm(
    tmp_path: Path, homes: list[str], url: str, processes: int = 3, functions: int = FUNCTIONS, fault: str | int = ""
) -> Storm:
    """Run processes that begin at one moment; each has the next one of the homes."""
    log = tmp_path / "compilations.log"
    job = {"begin": time.time() + 2.0 + 0.8 * processes, "functions": functions, "log": str(log), "fault": fault}
    command = [sys.executable, "-m", "tests.poolrt.numba.storm", json.dumps(job)]
    shared = {"POOLRT_REDIS_URL": url, "POOLRT_KEY_FILE": str(Path(homes[0], "signing.key"))}
    running = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **shared, "POOLRT_HOME": homes[number % len(homes)]},
        )
        for number in range(processes)
    ]
    texts = [process.communicate(timeout=200)[0] for process in running]
    assert {process.returncode for process in running} <= {0, -signal.SIGKILL}
    answers = [json.loads(text) if text else None for text in texts]
    assert all(answer["right"] for answer in answers if answer is not None)
    return Storm(answers, [line.split() for line in log.read_text().splitlines()])


def test_two_hosts_with_one_redis_compile_each_function_once(tmp_path: Path, server: RedisServer) -> None:
    homes = [_home(tmp_path / "a"), _home(tmp_path / "b")]
    CacheStore.connect(server.url, home=homes[0]).keeps_nothing()  # makes the key file
    storm = _storm(tmp_path, homes, server.url, processes=8, functions=11)
    assert storm.count("done") == dict.fromkeys(["shared", *(f"f{n}" for n in range(11))], 1)
    counts = sum(map(Counter, storm.survivors), Counter[str]())
    assert (counts["created"], counts["fallbacks"], counts["unshared"]) == (12, 0, 0)


def test_a_creator_that_is_killed_delays_the_others_by_a_lease_at_most(tmp_path: Path, server: RedisServer) -> None:
    storm = _storm(tmp_path, [_home(tmp_path / "a")], server.url, fault="creator")
    assert len(storm.survivors) == 2
    # The function under compilation begins once more, all others are compiled once
    assert storm.count("start") == {"shared": 1, "f0": 1, "f1": 2, "f2": 1}
    first, second = storm.times("start", "f1")
    assert second - first < LEASE_S + BUSY_S
    assert sum(answer["fallbacks"] for answer in storm.survivors) == 0


def test_a_redis_that_is_killed_costs_one_more_compilation_at_most(tmp_path: Path, server: RedisServer) -> None:
    with server.client() as client:
        pid = client.info("server")["process_id"]
    storm = _storm(tmp_path, [_home(tmp_path / "a")], server.url, fault=pid)
    assert len(storm.survivors) == 3
    assert storm.count("done").keys() == {"shared", "f0", "f1", "f2"}
    assert storm.count("done").total() <= FUNCTIONS + 1 + 1
    with server.client() as client, pytest.raises(redis.ConnectionError):
        client.ping()
    assert sum(answer["fallbacks"] for answer in storm.survivors) == 0


def test_a_redis_that_is_frozen_costs_no_compilation_and_no_hang(tmp_path: Path, server: RedisServer) -> None:
    with server.client() as client:
        pid = client.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    storm = _storm(tmp_path, [_home(tmp_path / "a")], server.url)
    assert storm.count("done") == {"shared": 1, "f0": 1, "f1": 1, "f2": 1}
    assert max(answer["seconds"] for answer in storm.survivors) < LEASE_S + 2 * BUSY_S


def test_a_home_that_is_refused_costs_the_cache_and_no_result(tmp_path: Path) -> None:
    folder = Path(_home(tmp_path / "a"))
    (folder / "a file").touch()
    storm = _storm(tmp_path, [str(folder / "a file")], f"unix://{tmp_path}/none.sock")
    assert storm.count("done") == dict.fromkeys(("shared", "f0", "f1", "f2"), 3)
    assert all(answer["fallbacks"] >= FUNCTIONS for answer in storm.survivors)


def test_a_full_disc_costs_compilations_and_no_result(tmp_path: Path) -> None:
    home = Path(_home(tmp_path / "a"))
    small = ["mount", "-t", "tmpfs", "-o", "size=48k,mode=0700", "tmpfs", str(home)]
    try:
        if subprocess.run(small, capture_output=True, timeout=20).returncode != 0:
            pytest.skip("a small file system cannot be mounted here")
    except FileNotFoundError:
        pytest.skip("there is no mount")
    try:
        storm = _storm(tmp_path, [str(home)], f"unix://{tmp_path}/none.sock")
    finally:
        subprocess.run(["umount", "--lazy", str(home)], capture_output=True, timeout=20, check=True)
    assert len(storm.survivors) == 3
    assert storm.count("done").keys() == {"shared", "f0", "f1", "f2"}
    # There is no room for all of them
    assert FUNCTIONS + 1 < storm.count("done").total() <= 3 * (FUNCTIONS + 1)
    assert max(answer["seconds"] for answer in storm.survivors) < 2 * LEASE_S + 3 * BUSY_S
