"""Beats come while a block runs, and no thread is left of a block that an interrupt has kept from its beginning."""

from __future__ import annotations

import threading

from poolrt.cachestore.heartbeat import Heartbeat
from tests.interrupting import is_interrupted

from .waiting import wait_until


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "poolrt-heartbeat"]


def _enter_and_exit() -> None:
    with Heartbeat(interval=60.0, limit=60.0):
        pass


def test_an_interrupt_while_the_thread_starts_ends_it() -> None:
    moments = 0
    while is_interrupted(_enter_and_exit, 1 + moments, "/threading.py"):
        moments += 1
        wait_until(lambda: not _threads())
    assert moments > 10
