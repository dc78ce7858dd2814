"""What of a primitive belongs to an engine and is never cached: realized kernels and constant tables."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from ..primitives.entry import Entry
from ..primitives.program import Launch

Kernel = TypeVar("Kernel")
Tables = TypeVar("Tables")


class LinkedLaunch(NamedTuple, Generic[Kernel]):
    """A launch with its realized kernel. Arguments are those of a `Launch`, but ``("t", (tables, offset))``."""

    kernel: Kernel
    args: tuple[tuple[str, Any], ...]
    work: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


class Resource(Generic[Kernel, Tables]):
    """The kernels and tables of one primitive on one engine. Immutable, so that threads and streams can share it."""

    def __init__(self, entry: Entry, kernels: list[Kernel], tables: Tables) -> None:
        self.entry = entry
        self._kernels = kernels
        self._tables = tables

    @cached_property
    def launches(self) -> tuple[LinkedLaunch[Kernel], ...]:
        """All launches in order. Made on first use: a primitive may be asked for often and executed through one of them."""
        return tuple(self._linked(run) for run in self.entry.launches)

    def _linked(self, run: Launch) -> LinkedLaunch[Kernel]:
        args = tuple((where, (self._tables, value)) if where == "t" else (where, value) for where, value in run.args)
        return LinkedLaunch(self._kernels[run.kernel], args, run.work, run.global_size, run.local_size)
