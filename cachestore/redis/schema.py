"""The names of a namespace's keys in Redis. KEY is the fingerprint of the signing key.

    poolrt:{NS}:KEY:v:<digest>          value: one signed entry
    poolrt:{NS}:KEY:u:<nonce>           value on its way in; expires
    poolrt:{NS}:KEY:l:<digest>          lease, hash; expires some time after the lease
    poolrt:{NS}:KEY:w:<digest>:<fence>  wake stream of one lease; expires
    poolrt:{NS}:KEY:z                   order: sorted set digest -> tick of last use
    poolrt:{NS}:KEY:s                   sizes: hash digest -> bytes, and `bytes` -> their sum
    poolrt:{NS}:KEY:r                   repeats: hash digest -> 8 bytes for each creation beside the one that is kept
    poolrt:{NS}:KEY:m                   meta: hash clock, generation, revision, capacity, capacity_bytes, entries,
                                        run_id, mending, looked, looked_to (see tidy.lua)
    poolrt:{NS}:KEY:c                   counters: hash, named as in `stats.COUNTERS`
    poolrt:{NS}:KEY:b:<sender>          number of the last batch of counts from one process; expires

The braces are a hash tag: one namespace lives in one slot of a cluster, so that scripts may touch all of it.

Guarantees: stores with different signing keys share no name. Neither sees, evicts, clears, replaces or waits for
anything of the other, and capacities and counters are each one's own. All names expire some time after their last use
(see life.lua), so the names of a key that is no longer used disappear by themselves.
"""

from __future__ import annotations

from typing import Final

#: Commands that open a connection.
_CONNECT: Final = ("PING", "HELLO", "AUTH")
#: Commands with which a store reads: all that a read-only one sends. INFO shows the eviction policy.
READS: Final = ("PING", "GET", "EXISTS", "HGET", "HMGET", "ZCARD", "ZRANGE", "INFO")
#: Every other command that the store, or a script of it, sends.
_WRITES: Final = (
    "SET", "DEL", "UNLINK", "RENAME", "PEXPIRE", "HSET", "HDEL", "HLEN", "HINCRBY", "STRLEN", "GETRANGE",
    "ZADD", "ZREM", "ZSCORE", "XADD", "XRANGE", "XREAD", "TIME", "EVALSHA", "SCRIPT|LOAD",
)  # fmt: skip


class Schema:
    """Make the names of one namespace and key; without a fingerprint, `acl_rule` has those of all keys."""

    __slots__ = ("counters", "meta", "order", "prefix", "repeats", "sizes")

    def __init__(self, namespace: str, fingerprint: str = "") -> None:
        self.prefix = f"poolrt:{{{namespace}}}{fingerprint and ':'}{fingerprint}"
        self.order = f"{self.prefix}:z"
        self.sizes = f"{self.prefix}:s"
        self.repeats = f"{self.prefix}:r"
        self.meta = f"{self.prefix}:m"
        self.counters = f"{self.prefix}:c"

    @property
    def bookkeeping(self) -> list[str]:
        """Order, sizes, meta and counters, as limits.lua takes them."""
        return [self.order, self.sizes, self.meta, self.counters]

    @property
    def acl_rule(self) -> str:
        """The rights of a Redis user, in the form of ACL SETUSER: these commands, on these keys, nothing else."""
        return self._rule((*_CONNECT, *READS, *_WRITES))

    @property
    def read_only_acl_rule(self) -> str:
        """The rights of the Redis user of a read-only store."""
        return self._rule((*_CONNECT, *READS))

    def value(self, digest: str) -> str:
        """Name the value of an entry."""
        return f"{self.prefix}:v:{digest}"

    def upload(self, nonce: str) -> str:
        """Name a value on its way in."""
        return f"{self.prefix}:u:{nonce}"

    def lease(self, digest: str) -> str:
        """Name the lease of an entry."""
        return f"{self.prefix}:l:{digest}"

    def batch(self, sender: str) -> str:
        """Name the number of the last batch of counts from one process."""
        return f"{self.prefix}:b:{sender}"

    def _rule(self, commands: tuple[str, ...]) -> str:
        allowed = " ".join(f"+{command.lower()}" for command in dict.fromkeys(commands))
        return f"resetkeys ~{self.prefix}:* resetchannels -@all {allowed}"

    def wake(self, digest: str, fence: int) -> str:
        """Name the wake stream of one lease."""
        return f"{self.prefix}:w:{digest}:{fence}"
