"""A session's profile: its runs as a file of trace events, which chrome://tracing and Perfetto show."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from poolrt.cachestore.forked_locks import freed_in_children

from .options import SessionOptions


class Profile:
    """Notes the time of the load and of each run of a session, if its options ask for that."""

    def __init__(self, options: SessionOptions) -> None:
        self._prefix = options.profile_file_prefix if options.enable_profiling else None
        self._lock = freed_in_children(threading.Lock())
        self._events: list[dict[str, Any]] = []
        self.start_ns = time.time_ns()
        self._started = time.perf_counter_ns()

    @property
    def is_on(self) -> bool:
        """Whether anything is noted."""
        return self._prefix is not None

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Note what the block takes, in microseconds since the session began."""
        if self._prefix is None:
            yield
            return
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            end = time.perf_counter_ns()
            event = {
                "cat": "Session", "name": name, "ph": "X", "pid": os.getpid(), "tid": threading.get_native_id(),
                "ts": (begin - self._started) // 1000, "dur": (end - begin) // 1000, "args": {},
            }  # fmt: skip
            with self._lock:
                self._events.append(event)

    def end(self) -> str:
        """Write the file and return its name, or nothing if the options do not ask for it, or it was written before."""
        with self._lock:
            prefix, self._prefix = self._prefix, None
            events, self._events = self._events, []
        if prefix is None:
            return ""
        name = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return name
