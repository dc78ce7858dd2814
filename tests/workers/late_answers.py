"""A server that takes as long for an answer as a request says."""

from __future__ import annotations

import time
from typing import Any

from tests.workers.own_process import serve


def answer(seconds: Any) -> Any:
    """Return a number after so many seconds."""
    time.sleep(seconds)
    return seconds


if __name__ == "__main__":
    serve(answer)
