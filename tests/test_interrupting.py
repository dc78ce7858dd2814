"""Interrupts that tests send are not lost."""

from __future__ import annotations

import gc
import signal
import time
import weakref

import pytest

from .interrupting import interrupted_by_timer


class _Interrupt(BaseException):
    pass


class _Finalized:
    def __init__(self) -> None:
        self.circle = self


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_an_interrupt_in_a_callback_of_the_garbage_collector_or_a_finalizer_comes_after_it() -> None:
    steps: list[str] = []

    def wait(step: str, _info: dict[str, int] | None = None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        _spin(0.01)
        steps.append(step)

    gc.collect()
    gc.disable()  # it runs once below, and not after the block
    gc.callbacks.append(wait)
    try:
        with interrupted_by_timer(_Interrupt), pytest.raises(_Interrupt):
            weakref.finalize(_Finalized(), wait, "finalizer")
            gc.collect()
            _spin(1.0)
    finally:
        gc.callbacks.remove(wait)
        gc.enable()
    assert steps == ["start", "finalizer", "stop"]
