"""Programs that start at the same moment on an empty cache: each kernel is created by one of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cachestore.names import write_key
from tests.cachestore.server import RedisServer
from tests.drills.ports import Port

from .conftest import NetworkMaker
from .networks import TINY
from .surroundings import PROGRAM_S, Surroundings, json_of

PROGRAMS = 3


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of the test's own, over TCP."""
    folder = tmp_path / "server"
    folder.mkdir()
    port = Port()
    server = RedisServer(folder, "--port", str(port.number), "--bind", "127.0.0.1")
    yield f"redis://127.0.0.1:{port.number}"
    server.kill()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A signing key that several nodes share."""
    path = tmp_path / "signing.key"
    write_key(path)
    return path


def run_at_once(places: list[Surroundings], words: tuple[str, ...]) -> tuple[list[int], int]:
    """Run a model in several places at the same moment; return what each has created, and the number of primitives."""
    programs = [place.start(*words, "--workers", "1", "--json") for place in places]
    found = []
    try:
        for program in programs:
            out, err = program.communicate(timeout=PROGRAM_S)
            done = subprocess.CompletedProcess(program.args, program.returncode, out, err)
            found.append(json_of(done)["primitives"])
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    totals = {each["total"] for each in found}
    assert len(totals) == 1
    for each in found:
        assert sum(count for source, count in each.items() if source != "total") == each["total"]
    return [each["created"] for each in found], totals.pop()


@pytest.mark.slow
@pytest.mark.parametrize("model", [TINY, "squeezenet"])
def test_programs_of_one_user_create_each_kernel_once(fresh: Surroundings, network: NetworkMaker, model: str) -> None:
    created, total = run_at_once([fresh] * PROGRAMS, network(model).words())
    assert sum(created) == total
    stats = fresh.json("cache", "stats")
    assert (stats["creations"], stats["entries"], stats["takeovers"]) == (total, total, 0)


@pytest.mark.parametrize(
    ("programs", "nodes", "model"),
    [
        pytest.param(PROGRAMS, 1, "squeezenet", marks=pytest.mark.slow),
        pytest.param(PROGRAMS, PROGRAMS, "squeezenet", marks=pytest.mark.slow),
        pytest.param(PROGRAMS, PROGRAMS, TINY, marks=pytest.mark.slow),
        (2, 2, TINY),
    ],
)
def test_programs_that_share_a_redis_create_each_kernel_once(
    tmp_path: Path, network: NetworkMaker, redis_url: str, key_file: Path, programs: int, nodes: int, model: str
) -> None:
    # Given one user's home for all programs, or a home for each, as on several machines
    homes = [
        Surroundings(tmp_path / f"node{number}", POOLRT_REDIS_URL=redis_url, POOLRT_KEY_FILE=str(key_file))
        for number in range(nodes)
    ]
    places = [homes[number % nodes] for number in range(programs)]
    # When all run the model at once
    created, total = run_at_once(places, network(model).words())
    # Then together they have created each kernel once
    assert sum(created) == total
    stats = homes[0].json("cache", "stats")
    assert (stats["creations"], stats["entries"], stats["takeovers"]) == (total, total, 0)
    for home in homes:
        home.close()
        assert not (home.cache / "redis").exists()
