"""Many processes that start with the same programs at one moment, on each driver."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore
from tests.workers.own_process import Server

from .drivers import PLATFORMS, choose_platform
from .test_program import MODULE


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_storm_of_4_processes_and_20_programs_builds_20(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    choose_platform(platform, monkeypatch)
    home = tmp_path / "home"
    monkeypatch.setenv("POOLRT_HOME", str(home))
    monkeypatch.delenv("POOLRT_REDIS_URL", raising=False)
    servers = [Server(MODULE, str(tmp_path / f"pocl-{number}")) for number in range(4)]
    try:
        with ThreadPoolExecutor(4) as threads:
            ready = [threads.submit(server.ask, ["build", {"source": "__kernel void g() {}"}]) for server in servers]
            assert all("counts" in one.result() for one in ready)
            begin = time.time() + 0.5
            asked = [threads.submit(server.ask, ["storm", {"programs": 20, "begin": begin}]) for server in servers]
            answers = [one.result() for one in asked]
        counts: Counter[str] = Counter()
        for answer in answers:
            *built, failed = answer
            assert [one["values"][0] for one in built] == list(range(20))
            assert "undeclared identifier 'nonsense_here'" in failed["error"]
            for one in built:
                counts.update(one["counts"])
        assert counts["created"] == 20
        assert counts.total() == 80
        assert "fallbacks" not in counts
    finally:
        for server in servers:
            server.close()
        # Their exits have published what PoCL compiled at the launches. So a new process compiles nothing.
        last = Server(MODULE, str(tmp_path / "pocl-last"))
        try:
            warm = last.ask(["storm", {"programs": 20, "begin": 0.0}])[:-1]
        finally:
            last.close()
            CacheStore.connect(home=str(home)).down()
    assert all(one["counts"].keys() <= {"files", "redis"} and one["late"] == 0 for one in warm)


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_program_from_the_cache_costs_neither_a_build_nor_compiling_at_its_launches(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    choose_platform(platform, monkeypatch)
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{tmp_path}/none.sock")
    # Barriers and calls, which a driver compiles for each local size if it does so for any.
    kernel = """
__kernel void k%d(__global float *x) {
    __local float row[256];
    int own = get_local_id(0);
    row[own] = x[get_global_id(0)];
    for (int step = 1; step < %d; step++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        row[own] = sin(row[own] * step) + sqrt(fabs(row[(own + step) %% get_local_size(0)])) * cos(row[own]);
    }
    x[get_global_id(0)] = row[own];
}
"""
    names = [f"k{number}" for number in range(6)]
    request = {
        "source": "".join(kernel % (number, number + 5) for number in range(6)),
        "kernels": names,
        "sizes": [16, 64, 33],
    }
    found = []
    for number in range(2):
        server = Server(MODULE, str(tmp_path / f"pocl-{number}"))
        try:
            # The compiler's start, and the modules of the cache, are in neither.
            server.ask(["build", {"source": "__kernel void g() {}"}])
            found.append(server.ask(["costs", request]))
        finally:
            server.close()  # its exit publishes what PoCL has compiled at the launches
    first, warm = found
    assert first["counts"] == {"created": 1}
    assert warm["counts"] == {"files": 1}
    assert first["build"] > 0.1
    assert warm["build"] + warm["launches"] < (first["build"] + first["launches"]) / 4, found
    if platform == "Portable":
        assert first["launches"] > 4 * warm["launches"], found  # else this test measures nothing
