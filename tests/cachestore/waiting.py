"""Wait for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Bound, in seconds, on anything that should happen soon, and pause between two looks.
SOON_S: Final = 10.0
_LOOK_S: Final = 0.005


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as `condition()` holds; fail when it does not within SOON_S."""
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(_LOOK_S)
