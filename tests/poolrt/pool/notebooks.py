"""A kernel of IPython that runs cells of a notebook, and the messages that its frontend gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

from .processes import BOUND_S


class Kernel:
    """A kernel, and the messages that it has published, as a frontend gets them."""

    def __init__(self, kernel: Any, client: Any) -> None:
        self._kernel = kernel
        self._client = client
        self.messages: list[dict[str, Any]] = []

    def begin(self, code: str) -> str:
        """Execute a cell; return its number. The answer comes later. An error does not skip the next cell."""
        return str(self._client.execute(code, stop_on_error=False))

    def read(self, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read messages until one is ``ready``, and return that."""
        until = time.monotonic() + 3 * BOUND_S
        while True:
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=max(0.1, until - time.monotonic()))
            self.messages.append(message)
            if ready(message):
                return message

    def run(self, code: str) -> list[dict[str, Any]]:
        """Execute a cell and return the messages below it; fails if it raises."""
        return self.finish(self.begin(code))

    def finish(self, cell: str) -> list[dict[str, Any]]:
        """Wait for a cell's end and return the messages below it; fails if it raises."""
        found = self.wait_for(cell)
        errors = [f"{m['content']['ename']}: {m['content']['evalue']}" for m in found if m["msg_type"] == "error"]
        assert errors == [], errors  # as pytest explains assertions of test modules only
        return found

    def wait_for(self, cell: str) -> list[dict[str, Any]]:
        """Wait for a cell's end and return the messages below it."""
        self.read(lambda m: m["parent_header"].get("msg_id") == cell and m["content"].get("execution_state") == "idle")
        return self.below(cell)

    def below(self, cell: str) -> list[dict[str, Any]]:
        """Return the messages below a cell so far."""
        return [message for message in self.messages if message["parent_header"].get("msg_id") == cell]

    def interrupt(self, cell: str) -> None:
        """Interrupt the cell that is executed, as the button of a notebook does; fails if that does not end it."""
        self._kernel.interrupt_kernel()
        errors = [m["content"]["ename"] for m in self.wait_for(cell) if m["msg_type"] == "error"]
        assert errors == ["KeyboardInterrupt"], errors


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[Kernel]:
    """A new kernel, with additional variables, during the block. Needs ipykernel."""
    start_new_kernel = import_module("jupyter_client.manager").start_new_kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # with it, the kernel does not watch its descriptors
        for name, value in environment.items():
            patch.setenv(name, value)
        running, client = start_new_kernel(kernel_name="python3", startup_timeout=3 * BOUND_S)
    try:
        yield Kernel(running, client)
    finally:
        client.stop_channels()
        running.shutdown_kernel(now=True)
        running.cleanup_resources()


def texts(messages: list[dict[str, Any]], name: str) -> str:
    """Return what a stream shows."""
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == name)
