"""What a server does when its memory is full: whether it may drop leases and books, and not entries alone.

Every name of a namespace expires some time after its last use, so each policy but `noeviction` may drop any of them:
`volatile-ttl` the leases first. Without its lease a creation under way is begun again; without its books a namespace
forgets its capacity and the order of use until nodes restore them. A store needs no such policy: it keeps to its own
capacities, and makes room when the server reports that it is full.
"""

from __future__ import annotations

from typing import Any

from ..deferred_namedtuple import NamedTuple
from .connection import RedisConnection
from .replies import blob, refuse


class EvictionPolicy(NamedTuple):
    """A server's `maxmemory-policy`, and its `maxmemory` in bytes; 0: no limit."""

    name: str
    max_bytes: int

    @property
    def spares_leases(self) -> bool:
        """Whether the server drops nothing by itself."""
        return self.name == "noeviction" or self.max_bytes == 0


def eviction_policy(connection: RedisConnection) -> EvictionPolicy:
    """Ask a server for its policy. Raises StoreUnavailable, also if the user may not ask."""
    return connection.command(_policy, "INFO", "memory")


def _policy(reply: Any) -> EvictionPolicy:
    lines = (line.partition(":") for line in blob(reply).decode("utf-8", "replace").splitlines())
    fields = {name: value.strip() for name, _, value in lines}
    name, limit = fields.get("maxmemory_policy", ""), fields.get("maxmemory", "")
    if not name or not limit.isdecimal():
        refuse("maxmemory and its policy in INFO", reply)
    return EvictionPolicy(name, int(limit))
