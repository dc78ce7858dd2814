"""The state that all processes of a node share about a namespace without asking Redis: one small file, read by `pread`.

It holds the generation (raised by every `clear`; entries of older generations do not count), the capacity with the
revision that it was set in, and a count of removals. A process compares the raw bytes with those it saw last, so a hit
in memory notices another process's `clear` at the cost of one system call, without a connection. On a file system that
shows writes in a mapping at once, it costs a comparison of 52 bytes.

Generations and revisions are microseconds since the epoch, and at least one more than the last: where two places
disagree (a Redis that lost its memory, a node that was cut off), the higher number is the later one.
"""

from __future__ import annotations

import os
import struct
import time
from binascii import crc32
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from .deferred_namedtuple import NamedTuple
from .file_lock import lock_file, unlock_file
from .folders import open_file

#: magic, generation, revision, capacity, capacity in bytes, removals; its CRC-32 follows.
_RECORD: Final = struct.Struct(">8sQQqqQ")
_CRC: Final = struct.Struct(">I")
_SIZE: Final = _RECORD.size + _CRC.size
_MAGIC: Final = b"PLRNODE1"
#: Reads of a record that another process is just writing.
_READ_ATTEMPTS: Final = 5

if TYPE_CHECKING:
    import mmap

#: A view of the record and what it holds as long as nothing changes: compare `view[:]` with the bytes.
Watch: TypeAlias = "tuple[mmap.mmap | bytes, bytes]"

#: A capacity that is not set: the caller's default holds.
UNSET: Final = -1


class NodeState(NamedTuple):
    """The shared facts of one namespace on one node."""

    generation: int = 0
    revision: int = 0
    capacity: int = UNSET
    capacity_bytes: int = UNSET
    removals: int = 0

    def updated(self, other: NodeState) -> NodeState:
        """Return this state with the generation and the capacities of `other`, which is Redis, unless ours are newer."""
        newer = self
        if other.generation > newer.generation:
            newer = newer._replace(generation=other.generation)
        if other.revision >= newer.revision:
            capacities = {"capacity": other.capacity, "capacity_bytes": other.capacity_bytes}
            newer = newer._replace(revision=other.revision, **capacities)
        return newer


class NodeStateView:
    """Read the state without a part in it: the file is neither made nor changed nor repaired.

    `read` raises OSError when the file is there and cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._none = NodeState()
        # Bytes and their meaning in one reference, so that threads never see one without the other.
        self._last: tuple[bytes, NodeState] = (b"", self._none)

    def read(self) -> NodeState:
        """Return the present state, the same object as long as it does not change; the default without a file."""
        if self._descriptor < 0:
            try:
                self._open()
            except FileNotFoundError:
                return self._none
        raw = b""
        for _ in range(_READ_ATTEMPTS):
            raw = os.pread(self._descriptor, _SIZE, 0)
            last = self._last
            if raw == last[0]:
                return last[1]
            state = _decode(raw)
            if state is not None:
                self._last = (raw, state)
                return state
        return self._read_damaged(raw)

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _read_damaged(self, raw: bytes) -> NodeState:
        # The file may have lost a clear: nothing that is older than now counts.
        state = NodeState(generation=later_than(0))
        self._last = (raw, state)
        return state


class NodeStateFile(NodeStateView):
    """Read and change the state that the processes of a node share; a missing or damaged file is made again.

    Every method raises OSError when the folder cannot be used.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._mapping: mmap.mmap | None = None
        self._can_be_mapped = True

    def watch(self, state: NodeState) -> Watch | None:
        """Return how to see without a system call that `state`, from `read`, still holds; None if there is no way."""
        raw, known = self._last
        if known is not state:
            return None
        if self._mapping is None and self._descriptor >= 0 and self._can_be_mapped:
            from .mapping import map_record

            self._mapping = map_record(self._descriptor, _SIZE)
            self._can_be_mapped = self._mapping is not None
        return (self._mapping, raw) if self._mapping is not None else None

    def reopen_if_deleted(self) -> None:
        """Open the file again when its folder was deleted, so that processes agree again."""
        if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink == 0:
            self.close()

    def change(self, step: Callable[[NodeState], NodeState]) -> NodeState:
        """Replace the state by `step(state)`, one process at a time, and return the new one."""
        self.reopen_if_deleted()
        if self._descriptor < 0:
            self._open()
        # An own description, since a lock on the shared one would also be held by every forked child.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock_file(descriptor, self._path)
            before = _decode(os.pread(descriptor, _SIZE, 0))
            # A damaged file may have lost a clear: a new generation never shows cleared entries.
            after = step(before if before is not None else NodeState(generation=later_than(0)))
            if after != before:
                os.pwrite(descriptor, _encode(after), 0)
            return after
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        super().close()
        # Not closed: a thread may be looking at it, and the last reference unmaps it.
        self._mapping = None
        self._last = (b"", NodeState())

    def _open(self) -> None:
        descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size == 0:
                lock_file(descriptor, self._path)
                if os.fstat(descriptor).st_size == 0:
                    os.pwrite(descriptor, _encode(NodeState()), 0)
                unlock_file(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _read_damaged(self, raw: bytes) -> NodeState:
        return self.change(lambda state: state)


def later_than(number: int) -> int:
    """Return a generation or revision after `number`."""
    return max(number + 1, time.time_ns() // 1000)


def _encode(state: NodeState) -> bytes:
    record = _RECORD.pack(
        _MAGIC, state.generation, state.revision, state.capacity, state.capacity_bytes, state.removals
    )
    return record + _CRC.pack(crc32(record))


def _decode(raw: bytes) -> NodeState | None:
    if len(raw) != _SIZE or _CRC.unpack_from(raw, _RECORD.size)[0] != crc32(raw[: _RECORD.size]):
        return None
    magic, generation, revision, capacity, capacity_bytes, removals = _RECORD.unpack_from(raw)
    return NodeState(generation, revision, capacity, capacity_bytes, removals) if magic == _MAGIC else None
