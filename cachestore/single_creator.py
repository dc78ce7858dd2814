"""Get an entry that is not on this node, or make it, exactly once over all processes and hosts.

With Redis: look up, acquire the lease, and either create under it or wait for its holder. Without: the node's file
lease lets one process create and the others find its file. Every creator holds it, also under a lease in Redis, so that
losing Redis half-way does not make the processes of one node start again. No failure of Redis ever reaches the caller.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Literal

from .deferred_dataclass import dataclass
from .entry import EntryCodec, EntryMeta
from .errors import CreationFailed, CreationTimeout, StoreFull, StoreUnavailable
from .file_lease import FileLease, FileLeaseWait
from .heartbeat import BEATS_PER_TERM, Heartbeat
from .identity import is_dead, own_identity
from .key import Key
from .limits import Limits
from .node import Node
from .node_state import NodeState
from .options import StoreOptions
from .portable_error import describe_exception
from .redis.lease import Ended, Held, Off, Owned, Present
from .redis.tier import RedisTier
from .stats import Tally
from .verification import Verification

Source = Literal["memory", "files", "prebuilt", "redis", "waited", "created"]
Create = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Obtained:
    """A payload, where it came from, whether it may be kept in memory, and the seconds that its creation took."""

    payload: bytes
    source: Source
    keep: bool = True
    creation_s: float = 0.0


@dataclass(slots=True)
class _Request:
    """One caller's progress."""

    key: Key
    create: Create
    started: float
    deadline: float
    missed: bool = False
    waited: bool = False
    asked_redis: bool = False
    file_lease: FileLeaseWait | None = None

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def timeout(self) -> CreationTimeout:
        return CreationTimeout(self.key.digest, time.monotonic() - self.started)


class SingleCreator:
    """Run the protocol for one process."""

    def __init__(
        self,
        options: StoreOptions,
        limits: Limits,
        node: Node,
        verification: Verification,
        codec: Callable[[], EntryCodec],
        tally: Tally,
    ) -> None:
        self._options = options
        self._limits = limits
        self._node = node
        self._verification = verification
        self._codec = codec
        self._tally = tally
        self._identity = ""

    def obtain(self, key: Key, create: Create, deadline: float) -> Obtained:
        """Return the entry's payload, from Redis, from another creator, or from `create`.

        Raises CreationFailed with the creator's error, CreationTimeout when another creator takes past `deadline`
        (monotonic clock), and KeyFileRefused.
        """
        # Without a signing key nothing is created, and no process waits for it.
        self._codec()
        request = _Request(key, create, time.monotonic(), deadline)
        tier = self._limits.tier()
        if tier is not None:
            try:
                return self._with_redis(tier, request)
            except StoreUnavailable:
                # Lost before anything was created: go on without it.
                pass
        self._tally.add("degraded")
        return self._create_here(self._node.state(), request, None)

    def create_uncached(self, create: Create) -> Obtained:
        """Create without looking or keeping, as the capacity 0 asks."""
        self._tally.add("misses")
        payload, seconds = self._run(create)
        return Obtained(payload, "created", False, seconds)

    def _with_redis(self, tier: RedisTier, request: _Request) -> Obtained:
        """Raises StoreUnavailable only while nothing has been created."""
        key, digest = request.key, request.key.digest
        nonce = os.urandom(16).hex()
        self._identity = self._identity or own_identity()
        waited_for: int | None = None
        while True:
            found = self._get(tier, request)
            if found is not None:
                return found
            request.asked_redis = True
            answer = tier.leases.acquire(digest, nonce, self._identity, waited_for)
            if isinstance(answer, Off):
                self._limits.settle(tier)
                return self.create_uncached(request.create)
            if isinstance(answer, Owned):
                self._limits.note(tier, answer.seen)
                return self._create_here(self._node.state(), request, _Lease(tier, digest, nonce, answer))
            if request.left <= 0:
                raise request.timeout()
            if isinstance(answer, Present):
                waited_for = None
                continue
            if isinstance(answer, Held):
                self._miss(request)
                request.waited = True
                if is_dead(answer.owner):
                    if tier.leases.fail(digest, answer.nonce, answer.fence, None):
                        self._tally.add("takeovers")
                    waited_for = None
                    continue
                # A silent holder on this node has the file lease too: its silence counts from now.
                request.file_lease = request.file_lease or self._node.file_lease(digest)
                request.file_lease.look()
                waited_for = answer.fence
                news = tier.leases.wait(digest, answer, request.left)
                if news is None:
                    # Its holder may have created it on this node, and not reached Redis since.
                    entry = self._node.get(self._node.state(), key)
                    if entry is not None:
                        self._tally.add("waits")
                        return Obtained(entry.payload, "waited", creation_s=entry.meta.seconds)
                    continue
                answer = news
            waited_for = None
            self._raise_failure(key, answer)

    def _get(self, tier: RedisTier, request: _Request) -> Obtained | None:
        digest = request.key.digest
        blob = tier.get(digest)
        entry = self._verification.verify(request.key, blob, tier.remove)
        if entry is None or blob is None:
            return None
        self._node.put_later(self._node.state(), digest, blob)
        if request.waited:
            self._tally.add("waits")
            return Obtained(entry.payload, "waited", creation_s=entry.meta.seconds)
        self._tally.use(digest, "redis", entry.meta.seconds)
        return Obtained(entry.payload, "redis", creation_s=entry.meta.seconds)

    def _raise_failure(self, key: Key, ended: Ended) -> None:
        if ended.failure is not None:
            failure = self._verification.verify_failure(key, ended.failure)
            if failure is not None:
                raise failure

    def _create_here(self, state: NodeState, request: _Request, lease: _Lease | None) -> Obtained:
        """Take this node's file lease and create, unless another process of the node has done so meanwhile."""
        term = self._options.lease_s
        with Heartbeat(term / BEATS_PER_TERM, self._options.creation_limit_s) as heart:
            if lease is not None:
                heart.add(lease.beat)
            file_lease: FileLease | None = None
            try:
                wait = request.file_lease or self._node.file_lease(request.key.digest)
                try:
                    file_lease = wait.take(request.deadline)
                except OSError:
                    self._tally.add("degraded")
                if file_lease is not None:
                    heart.add(file_lease.beat)
                if wait.waited:
                    self._miss(request)
                    request.waited = True
                if wait.took_over and lease is None:
                    # Under a lease the takeover of the lease has been counted, by its script.
                    self._tally.add("takeovers")
                if wait.failure is not None:
                    failure = self._verification.verify_failure(request.key, wait.failure)
                    if failure is not None:
                        if lease is not None:
                            lease.fail(wait.failure)
                        raise failure
                return self._find_or_create(state, request, lease, file_lease)
            except CreationFailed:
                raise
            except BaseException:
                # Interrupted, or out of time: let one of the waiting processes try.
                if lease is not None:
                    lease.fail(None)
                raise
            finally:
                if file_lease is not None:
                    file_lease.end()

    def _find_or_create(
        self, state: NodeState, request: _Request, lease: _Lease | None, file_lease: FileLease | None
    ) -> Obtained:
        key, digest = request.key, request.key.digest
        entry = self._node.get(state, key)
        if entry is not None:
            blob = self._node.get_blob(state, digest)
            if lease is not None and blob is not None:
                self._publish(state, lease, blob)
            if request.waited:
                self._tally.add("waits")
                return Obtained(entry.payload, "waited", creation_s=entry.meta.seconds)
            self._tally.use(digest, "files", entry.meta.seconds)
            return Obtained(entry.payload, "files", creation_s=entry.meta.seconds)
        self._miss(request)
        if file_lease is None and request.left <= 0:
            raise request.timeout()
        try:
            payload, seconds = self._run(request.create)
        except CreationFailed as failure:
            sealed = self._verification.sign_failure(key, failure)
            if file_lease is not None:
                file_lease.fail(sealed)
            if lease is not None:
                lease.fail(sealed)
            raise
        fence = lease.owned.fence if lease is not None else 0
        meta = EntryMeta(fence, time.time(), seconds, socket.gethostname(), self._options.toolchain)
        blob = self._codec().pack(key.canonical, payload, meta)
        if lease is None:
            self._node.put(state, digest, blob, unpublished=True)
            return Obtained(payload, "created", creation_s=seconds)
        return Obtained(payload, "created", self._publish(state, lease, blob), seconds)

    def _publish(self, state: NodeState, lease: _Lease, blob: bytes) -> bool:
        """Publish an entry in Redis and keep it here; return whether it counts (not after a `clear` meanwhile)."""
        digest = lease.digest
        try:
            published = lease.tier.leases.publish(digest, lease.nonce, lease.owned.fence, state.generation, blob)
        except StoreUnavailable as error:
            self._tally.add("degraded")
            self._node.put(state, digest, blob, unpublished=True)
            # The late publication ends our lease.
            self._node.mark_unpublished(digest, lease=f"{lease.nonce} {lease.owned.fence}")
            if isinstance(error, StoreFull):
                lease.fail(None)
            return True
        for dropped in published.dropped:
            self._node.remove(state, dropped)
        if published.word in ("OK", "LATE"):
            self._node.put(state, digest, blob)
        elif published.word == "CLEARED" and published.seen.generation < state.generation:
            # Not cleared: Redis has lost its data, and the generation with them. The next calls restore both.
            self._node.put(state, digest, blob, unpublished=True)
            return True
        return published.word not in ("CLEARED", "TRANSIENT")

    def _run(self, create: Create) -> tuple[bytes, float]:
        """Run the creator; return its payload and the seconds it took."""
        begin = time.perf_counter()
        try:
            payload = create()
            if not isinstance(payload, (bytes, bytearray, memoryview)):
                raise TypeError(f"a creator returns bytes, not {type(payload).__name__}")
        except CreationFailed:
            self._tally.add("creation_errors")
            raise
        except Exception as error:
            self._tally.add("creation_errors")
            raise CreationFailed(*describe_exception(error)) from error
        self._tally.add("creations")
        return bytes(payload), time.perf_counter() - begin

    def _miss(self, request: _Request) -> None:
        if not request.missed:
            request.missed = True
            self._tally.add_miss(asked_redis=request.asked_redis)


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease that we own."""

    tier: RedisTier
    digest: str
    nonce: str
    owned: Owned

    def beat(self) -> bool:
        """Renew; a Redis that does not answer may answer at the next beat."""
        try:
            return self.tier.leases.renew(self.digest, self.nonce)
        except StoreUnavailable:
            return True

    def fail(self, failure: bytes | None) -> None:
        """End without a value; without an answer from Redis, the lease expires by itself."""
        try:
            self.tier.leases.fail(self.digest, self.nonce, self.owned.fence, failure)
        except StoreUnavailable:
            return
