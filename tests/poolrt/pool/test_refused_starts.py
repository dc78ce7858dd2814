"""A process of a pool that the system refuses memory or a file says so in one line, without the stack of a bug."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any, Final

import pytest

import poolrt
from poolrt.errors import WorkerLost

from .processes import below, wait_until, workers_of

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
