"""A process of a pool that the system refuses memory or a file says so in one line, without the stack of a bug."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest

import poolrt
from poolrt.errors import WorkerLost

from .processes import BOUND_S, below, wait_until, workers_of

#: Bytes of address space that the fork server's children may add: less than the arena, more than anything else at their start.
_ROOM: Final = 32 * 1024 * 1024


def test_a_worker_that_gets_no_memory_at_its_start_says_so_in_one_line(
    settings: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        (worker,) = workers_of(pool)
        # Given a fork server whose children cannot map the arena
        (server,) = below(pool.stats()["pid"], 1)
        pages = int(Path(f"/proc/{server}/statm").read_text(encoding="ascii").split()[0])
        usual = resource.prlimit(server, resource.RLIMIT_AS)
        resource.prlimit(server, resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGESIZE") + _ROOM, usual[1]))
        # When its worker is lost
        os.kill(worker, signal.SIGKILL)
        said: list[str] = []

        def has_said() -> bool:
            said.append(capfd.readouterr().err)
            return "cannot go on" in "".join(said)

        def works() -> bool:
            try:
                return pool.submit(abs, -7).result(30) == 7
            except WorkerLost:  # starts have failed so often meanwhile that the pool waits before the next one
                return False

        wait_until(has_said, "the next worker says why it cannot start")
        # Then the next one is refused in one line, and once there is memory the pool works again
        resource.prlimit(server, resource.RLIMIT_AS, usual)
        wait_until(works, "the pool works")
    text = "".join([*said, capfd.readouterr().err])
    assert "Traceback" not in text
    assert "poolrt: worker " in text
    assert (
        "cannot go on: OSError: [Errno 12] an arena of 67108864 bytes cannot be mapped: Cannot allocate memory" in text
    )


_WITHOUT_ROOM = """
    import resource, sys
    import numpy as np
    import poolrt
    home, room = sys.argv[1:]
    pool = poolrt.Pool(workers=1, threads=1, home=home, redis_url=f"unix://{home}/none.sock", arena_bytes=64 << 20)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(room), resource.RLIM_INFINITY))
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    for act in (lambda: pool.empty((4, 8)), lambda: pool.load(graph), lambda: pool.workers):
        try:
            act()
        except poolrt.errors.PoolClosed as error:
            print(type(error).__name__, error)
    pool.close()
"""


def test_a_client_that_gets_no_room_for_shared_memory_gets_one_error_at_each_call(settings: dict[str, Any]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_WITHOUT_ROOM), settings["home"], str(_ROOM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * BOUND_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = "PoolClosed this process cannot use the pool's shared memory: an arena of 67108864 bytes cannot be mapped: "
    said += (
        "Cannot allocate memory; lower the pool's setting arena_bytes, or raise the limit of address space (ulimit -v)"
    )
    assert done.stdout.splitlines() == [said] * 3
