"""The shared tier of a read-only store: its connection sends nothing but reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from poolrt.cachestore.errors import StoreFull, StoreReadOnly
from poolrt.cachestore.node_state import UNSET, NodeState
from poolrt.cachestore.stats import Sent

from .connection import Command, RedisConnection, T, Upload
from .replies import Shape, integer, list_of
from .schema import READS
from .scripts import Script
from .tier import RedisTier

_READS: Final = frozenset(READS)


class ReadOnlyConnection(RedisConnection):
    """Raise StoreReadOnly for every command that is not a read."""

    def command(self, shape: Shape[T], *command: bytes | str | float) -> T:
        """Run one reading command and return its answer."""
        self._check(command)
        return super().command(shape, *command)

    def wait_command(self, shape: Shape[T], *command: bytes | str | float) -> T | None:
        """Refuse: a wait is for the end of a lease, and a read-only store acquires none."""
        raise StoreReadOnly("wait for a creator")

    def batch(self, shape: Shape[T], commands: Sequence[Command]) -> list[T]:
        """Run several reading commands in one round trip."""
        for command in commands:
            self._check(command)
        return super().batch(shape, commands)

    def values(self, fields: tuple[str, ...], names: Sequence[str]) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return some fields of a hash and some values."""
        self._check(fields)
        return super().values(fields, names)

    def script(
        self, shape: Shape[T], script: Script, keys: Sequence[str], arguments: Sequence[bytes | str | float]
    ) -> T:
        """Refuse: every script writes."""
        raise StoreReadOnly("run scripts in Redis")

    def uploads(self, shape: Shape[T], uploads: Sequence[Upload], script: Script) -> list[T | StoreFull]:
        """Refuse: every script writes."""
        raise StoreReadOnly("run scripts in Redis")

    def _check(self, command: Command) -> None:
        if command[0] not in _READS:
            raise StoreReadOnly(f"send {command[0]!r} to Redis")


class ReadOnlyTier(RedisTier):
    """Read values, listings, counters and capacities; write nothing."""

    def remove(self, digest: str, blob: bytes | None = None) -> bool:
        """Do nothing."""
        return False

    def touch(self, digests: Sequence[str]) -> list[str]:
        """Do nothing."""
        return []

    def count(self, sent: Sent) -> None:
        """Do nothing."""

    def settle(self, state: NodeState) -> tuple[NodeState, list[str]]:
        """Return the generation and the capacities in Redis."""
        meta = self._schema.meta
        generation, revision, *limits = self._connection.command(
            list_of(_given, 4), "HMGET", meta, "generation", "revision", "capacity", "capacity_bytes"
        )
        capacities = [UNSET if limit is None else limit for limit in limits]
        return NodeState(generation or 0, revision or 0, *capacities), []


def _given(reply: Any) -> int | None:
    return None if reply is None else integer(reply)
