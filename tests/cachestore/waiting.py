"""Wait for what another thread or process is about to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

#: Bounds, in seconds, on anything that should happen soon, and on what processes that have just begun come to; pause
#: between two looks.
SOON_S: Final = 10.0
_BEGUN_S: Final = 60.0
_LOOK_S: Final = 0.005


def wait_until(condition: Callable[[], bool], seconds: float = SOON_S) -> None:
    """Return as soon as `condition()` holds; fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(_LOOK_S)


def await_all_at(digest: str, processes: Collection[int], client: Any) -> None:
    """Return once each of some processes, and no other, creates an entry or waits for its creator.

    Those with a connection wait for news from Redis, where no other client may wait for any; `client` asks there. All others
    have the file of the entry's lease open, as has its creator.
    """

    def all_are() -> bool:
        waiting = [one for one in client.client_list() if one["cmd"] == "xread"]
        at_turn = [process for process in processes if _has_open(process, f"/creating/{digest}")]
        return len(waiting) + len(at_turn) >= len(processes)

    wait_until(all_are, _BEGUN_S)


def _has_open(process: int, end: str) -> bool:
    """Tell whether a process has a file open whose path ends so."""
    places = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                places.append(os.readlink(entry.path))
    return any(place.endswith(end) for place in places)
