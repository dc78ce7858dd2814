"""The store: bytes under keys, created once and shared, with Redis or without.

A look-up asks memory, this node's files, Redis. A hit in memory or files needs no connection and imports no client, so
a warm start is fast. All methods can be called from several threads, and in a forked child, which begins with an empty
memory and connections of its own.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .components import Components
from .deferred_dataclass import replace
from .errors import CreationFailed, CreationTimeout, StoreReadOnly, StoreUnavailable
from .key import Key
from .lru import checked_capacity
from .node_state import NodeState
from .options import StoreOptions, options_from_environment
from .outcome import Assemble, Found, Outcome
from .single_flight import Abandoned, SharedFuture
from .stats import Stats, as_stats

if TYPE_CHECKING:
    from .explain import Explanation
    from .inspection import EntryInfo, Inspection, VerifyReport
    from .misses import Miss
    from .prebuilt import PrebuiltTier
    from .redis.link import LinkStatus
    from .redis.tier import RedisTier
    from .results import Results
    from .single_creator import Obtained
    from .transfer import ExportReport, ImportReport, Progress


T = TypeVar("T")


class CacheStore:
    """Keep bytes under keys for all processes of a namespace.

    Opens, makes and connects nothing before the first call that needs it. Use it as a context manager, or call `close`.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._begin()
        this: weakref.ref[CacheStore] = weakref.ref(self)
        atexit.register(_close_at_exit, this)
        os.register_at_fork(after_in_child=lambda: _begin_again(this))

    @classmethod
    def connect(cls, url: str | None = None, **options: Any) -> Self:
        """Return a store; arguments come before environment variables, these before the defaults.

        `url` None and no `POOLRT_REDIS_URL` means the embedded server. `options` are the other fields of
        `StoreOptions`, such as `namespace`, `home` and `key_file`. This connects nothing: call `ping` to see whether
        Redis answers. Raises ValueError for unusable values.
        """
        return cls(options_from_environment(url, **options))

    @property
    def options(self) -> StoreOptions:
        """The options of the store."""
        return self._options

    def keeps_nothing(self) -> bool:
        """Return whether this process keeps what it creates to itself, because no signing key file can be made.

        The first call makes the file, or warns (NothingKept).
        """
        return self._enter()[0].keeps_nothing()

    def get(self, key: Key) -> bytes | None:
        """Return the payload of a key, or None."""
        # For the class only: each store has its own `MemoryTier.reader` under this name.
        payload = self._memory.hit(key)
        return payload if payload is not None else self._get_elsewhere(key)

    def find_here(self, key: Key) -> Outcome | None:
        """Return the payload of a key that this process or this node has, without asking Redis; counts no miss."""
        begin = time.monotonic()
        components, state = self._enter()
        if components.node.capacity(state) == 0:
            return None
        found, creation_s = components.find_here(state, key, keep=False)
        self._flush_hits(components, [found])
        return found and Outcome(found.value, found.source, time.monotonic() - begin, creation_s)

    def payloads_here(self, seen: Container[str], most: int) -> dict[str, bytes]:
        """Return the payloads of the `most` entries of this node used last, by digest, without those `seen`; counts nothing."""
        return self._enter()[0].inspection.payloads_here(seen, most)

    def get_many(
        self, keys: Sequence[Key], *, creates: bool = False, assemble: Assemble | None = None
    ) -> list[Found | None]:
        """Return the payloads of several keys in order, asking Redis once for all that are not on this node.

        What this node does not have, `assemble` may put together from prebuilt parts (see `prebuilt`), before Redis.
        With `creates`, `fetch_or_create` follows for each key that is missing, in any process: the miss is counted there.
        """
        components, state = self._enter()
        if components.node.capacity(state) == 0:
            components.tally.add("misses", 0 if creates else len(keys))
            components.flusher.flush_to_journal()
            return [None] * len(keys)
        found: list[Found | None] = []
        rest: list[Key] = []
        for key in keys:
            item, _ = components.find_here(state, key, assemble)
            found.append(item)
            if item is None:
                rest.append(key)
        if not rest:
            self._flush_hits(components, found)
            return found
        there = iter(self._find_there(components, state, rest, creates))
        return [item if item is not None else next(there) for item in found]

    def get_or_create(self, key: Key, create: Callable[[], bytes], timeout: float | None = None) -> bytes:
        """Return the payload of a key, created unless it exists or is under creation. See `fetch_or_create`."""
        payload = self._memory.hit(key)
        return self.fetch_or_create(key, create, timeout).value if payload is None else payload

    def fetch_or_create(
        self,
        key: Key,
        create: Callable[[], bytes],
        timeout: float | None = None,
        *,
        keep_in_memory: bool = True,
        assemble: Assemble | None = None,
    ) -> Outcome:
        """Return the payload of a key and its source; `create()` makes it unless it exists or is under creation.

        Guarantees: over all threads, processes and hosts one `create` runs per key while nothing fails. `timeout`
        bounds the wait for another creator, in seconds (None: the store's `timeout_s`); our own `create` is not
        interrupted. Raises CreationFailed with the creator's type, message and log, in every caller that waited for it,
        and CreationTimeout. A slow or dead Redis raises nothing: the payload is then created on this node. A caller that
        keeps what it makes of a payload says False for `keep_in_memory`. `assemble` is that of `get_many`.
        """
        begin = time.monotonic()
        near = self._memory.hit(key)
        if near is not None:
            return Outcome(near, "memory", time.monotonic() - begin, self._memory.creation_s(key))
        deadline = begin + (self._options.timeout_s if timeout is None else timeout)
        components, state = self._enter()
        if components.node.capacity(state) == 0:
            try:
                obtained = components.creator.create_uncached(create)
            finally:
                components.flusher.flush_to_journal()
            return Outcome(obtained.payload, obtained.source, time.monotonic() - begin, obtained.creation_s)
        missed = False
        while True:
            found, creation_s = components.find_here(state, key, assemble, keep_in_memory)
            self._flush_hits(components, [found])
            if found is not None:
                return Outcome(found.value, found.source, time.monotonic() - begin, creation_s)
            own: SharedFuture[Obtained] = SharedFuture()
            try:
                future = components.single_flight.join(key.canonical, own)
                if future is own:
                    obtain = partial(self._obtain, components, state, key, create, deadline, keep_in_memory)
                    obtained = self._lead(components, own, key, obtain)
                    return Outcome(obtained.payload, obtained.source, time.monotonic() - begin, obtained.creation_s)
            finally:
                own.abandon()  # if an interrupt came before it was led
            if not missed:
                missed = True
                components.tally.add("misses")
            try:
                obtained = future.result(deadline - time.monotonic())
            except (Abandoned, TimeoutError):
                if time.monotonic() >= deadline:
                    raise CreationTimeout(key.digest, time.monotonic() - begin) from None
                continue
            components.tally.add("waits")
            components.flusher.flush_look_ups(None)
            return Outcome(obtained.payload, "waited", time.monotonic() - begin, obtained.creation_s)

    @property
    def results(self) -> Results:
        """Results that this node keeps beside its entries. Raises PathRefused."""
        return self._enter()[0].results

    @property
    def prebuilt(self) -> PrebuiltTier:
        """The parts of entries that came with the package."""
        return self._components.prebuilt

    def remove(self, key: Key) -> bool:
        """Remove a key everywhere; return whether it was there. Counts nothing."""
        self._check_writable("remove entries")
        components, state = self._enter()
        there = key in components.memory
        components.memory.remove(key)
        there |= components.node.remove(state, key.digest)
        components.node.note_removal()
        tier = components.limits.tier()
        if tier is not None:
            try:
                there |= tier.remove(key.digest)
            except StoreUnavailable:
                components.tally.add("degraded")
        return there

    def clear(self) -> None:
        """Remove everything; the results of creations under way are not kept either.

        Holds at once for the processes of this node, for another node when it next asks Redis for anything, and reaches
        Redis later if it is away.
        """
        self._check_writable("clear")
        self._enter()[0].limits.clear()
        self._enter()

    def set_capacity(self, capacity: int | None = None, bytes: int | None = None) -> None:
        """Keep at most `capacity` entries and `bytes` bytes (0: no limit in bytes) in the namespace, from now on.

        None leaves a limit as it is. Lowering drops the least recently used; a capacity of 0 clears the store and
        turns it off until it is raised again. No process or node changes it by its own defaults.
        """
        capacity = None if capacity is None else checked_capacity(capacity)
        bytes = None if bytes is None else checked_capacity(bytes)
        self._check_writable("change its capacity")
        components, _ = self._enter()
        components.limits.set_capacity(capacity, bytes)
        self._enter()

    def set_memory_capacity(self, capacity: int) -> None:
        """Keep at most `capacity` entries in the memory of this process, from now on; 0 empties it at once.

        Concerns no other process, and neither files nor Redis. Raises ValueError for less than 0.
        """
        capacity = checked_capacity(capacity)
        self._options = replace(self._options, capacity=capacity)  # for forked children
        self._components.set_memory_capacity(capacity)

    @property
    def capacity(self) -> int:
        """Most entries that the namespace keeps."""
        components, _ = self._enter()
        return components.node.capacity(self._settle(components))

    @property
    def size(self) -> int:
        """Number of entries in Redis, or in this node's files while Redis is away."""
        components, _ = self._enter()
        return components.inspection.sizes(components.limits.tier())[0]

    def stats(self) -> Stats:
        """Return the counters of all processes of the namespace; without Redis, those in this node's journal.

        A read-only store adds its own, which stay in this process.
        """
        components, _ = self._enter()
        state = self._settle(components)
        tier, counts = components.flusher.counts_of_all(components.limits.tier())
        entries, total = components.inspection.sizes(tier)
        return as_stats(counts, entries, total, components.node.capacity(state), components.node.capacity_bytes(state))

    def entries(self) -> list[EntryInfo]:
        """Return the stored entries, most recently used first: all of Redis, or this node's files without it."""
        return self._look_at_entries(lambda inspection, tier: inspection.entries(tier))

    def key_of(self, digest: str) -> Key | None:
        """Return the key of a stored entry by its digest, or None if there is no sound one. Counts nothing."""
        return self._look_at_entries(lambda inspection, tier: inspection.key_of(tier, digest))

    def explain(self, *keys: Key) -> list[Explanation]:
        """Return for each key the nearest stored entries of its kind, and the fields in which they differ.

        Compares with the entries of the time when this node missed the key, if it did lately; else, for a stored key,
        of the time when it was created; else with the present ones. Counts nothing.
        """
        missed = {miss.key: miss.time for miss in self.misses()}
        explainer = self._look_at_entries(lambda inspection, tier: inspection.explainer(tier))
        return [explainer.explain(key, missed.get(key)) for key in keys]

    def note_asked(self, name: str, keys: Sequence[Key]) -> None:
        """Note the name of what needs these keys, such as a model, on this node: see `EntryInfo.asked_by`."""
        self._enter()[0].node.note_asked(name, keys)

    def misses(self, count: int = sys.maxsize) -> list[Miss]:
        """Return the keys that this node has last missed, at most `count`, the latest one last."""
        return self._enter()[0].node.latest_misses(count)

    def verify(self) -> VerifyReport:
        """Check every entry in this node's files and in Redis; report bad ones and, unless read-only, remove them."""
        components, state = self._enter()
        components.reset_memory(state)
        report = self._look_at_entries(lambda inspection, tier: inspection.verify(tier))
        components.flusher.flush_to_journal()
        return report

    def export(self, path: str | os.PathLike[str], progress: Progress | None = None) -> ExportReport:
        """Write all stored entries into one signed file, a bundle, in place of a former file.

        Exports all of Redis, or this node's files while Redis is away (see the report), without bad entries.
        `progress(done, total)` is called with numbers of entries. Raises OSError when the file cannot be written, and
        StoreUnavailable when Redis goes away half-way; the former file then stays.
        """
        components = self._enter()[0]
        return components.transfer.export(components.limits.tier(), os.fspath(path), progress)

    def import_(
        self, path: str | os.PathLike[str], progress: Progress | None = None, node_only: bool = False
    ) -> ImportReport:
        """Import the entries of a bundle, from any namespace, that are missing here and for which there is room.

        Checks the whole file before anything changes: raises BundleForged when it is signed with another key than ours,
        BundleCorrupt when it is not exactly what `export` wrote, KeyFileRefused when there is no key to check it with,
        and OSError when it cannot be read. `node_only` puts the entries in this node's files without asking Redis,
        which gets them when they are used.
        """
        self._check_writable("import")
        components, _ = self._enter()
        components.signing(make=False)
        path = os.fspath(path)
        if not node_only:
            self._settle(components)
            # If Redis goes away, nothing has changed yet: a begun import goes on without it by itself.
            with suppress(StoreUnavailable):
                return components.transfer.import_(components.limits.tier(), path, progress, publish_later=True)
        return components.transfer.import_(None, path, progress, publish_later=not node_only)

    def ping(self) -> None:
        """Return when Redis answers; raise StoreUnavailable, with the URL and the reason, when it does not."""
        self._enter()[0].link().require()

    def status(self) -> LinkStatus:
        """Ask Redis now, and return whether it answers."""
        return self._enter()[0].link().status()

    def down(self) -> bool:
        """Stop the embedded server of this home; return whether it was running. The next need starts it again."""
        from .redis.embedded import EmbeddedServer

        self._check_writable("stop its server")
        self.close()
        return EmbeddedServer(self._options.server_folder).down()

    def close(self) -> None:
        """Flush the counts and close the connections; a later call opens them again."""
        components = self._components
        tier = components.tier_if_connected()
        if tier is not None:
            try:
                components.flusher.flush_node(tier, leaving=True)
            except StoreUnavailable:
                tier = None
        components.flusher.close()
        components.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_writable(self, action: str) -> None:
        if self._options.read_only:
            raise StoreReadOnly(action)

    def _begin(self) -> None:
        self._components = Components(self._options)
        self._memory = self._components.memory
        vars(self)["get"] = self._memory.reader(self._get_elsewhere)

    def _begin_in_child(self) -> None:
        """Begin again: threads that do not exist here may hold locks, and the connections are the parent's."""
        self._components.forget()
        self._begin()

    def _enter(self) -> tuple[Components, NodeState]:
        """Return the components of this process, and the node's present state."""
        components = self._components
        return components, components.state()

    def _get_elsewhere(self, key: Key) -> bytes | None:
        found = self._find(key)
        return found.value if found is not None else None

    def _find(self, key: Key) -> Found | None:
        """Return what `get_many` returns for one key."""
        components, state = self._enter()
        if components.node.capacity(state) == 0:
            return self.get_many([key])[0]
        found, _ = components.find_here(state, key)
        if found is None:
            return self._find_there(components, state, (key,))[0]
        if found.source == "files":
            components.flusher.flush_look_ups(None)
        return found

    def _flush_hits(self, components: Components, found: list[Found | None]) -> None:
        """Flush hits in files and prebuilt parts; the memory tier has its hits flushed from time to time."""
        if any(item is not None and item.source != "memory" for item in found):
            components.flusher.flush_look_ups(None)

    def _find_there(
        self, components: Components, state: NodeState, keys: Sequence[Key], creates: bool = False
    ) -> list[Found | None]:
        tier = components.limits.tier()
        found: list[Found | None] = []
        if tier is not None:
            try:
                seen, blobs = tier.look_up([key.digest for key in keys])
                state = components.limits.note(tier, seen, state)
                for key, blob in zip(keys, blobs, strict=True):
                    entry = components.verification.verify(key, blob, tier.remove)
                    if entry is None or blob is None:
                        components.tally.add_miss(asked_redis=True, count=not creates)
                        found.append(None)
                        continue
                    components.node.put_later(state, key.digest, blob)
                    components.memory.put(key, entry.payload, state, entry.meta.seconds)
                    components.tally.use(key.digest, "redis", entry.meta.seconds)
                    found.append(Found(entry.payload, "redis"))
            except StoreUnavailable:
                tier = None
        if tier is None:
            components.tally.add("degraded")
            components.tally.add("misses", 0 if creates else len(keys) - len(found))
            found += [None] * (len(keys) - len(found))
        components.flusher.flush_look_ups(tier)
        if None in found:
            components.node.note_misses([key for key, item in zip(keys, found, strict=True) if item is None])
        return found

    def _lead(
        self, components: Components, own: SharedFuture[Obtained], key: Key, obtain: Callable[[], Obtained]
    ) -> Obtained:
        """Get the payload for this thread and all that wait for it."""
        try:
            return components.single_flight.lead(key.canonical, own, obtain, CreationFailed)
        finally:
            components.flusher.flush(components.tier_if_connected())

    def _obtain(
        self,
        components: Components,
        state: NodeState,
        key: Key,
        create: Callable[[], bytes],
        deadline: float,
        keep: bool,
    ) -> Obtained:
        from .single_creator import Obtained

        near = components.memory.hit(key, current=True)
        if near is not None:  # the last leader has ended between the look and the join
            return Obtained(near, "memory", creation_s=components.memory.creation_s(key))
        begin = time.monotonic()
        try:
            obtained = components.creator.obtain(key, create, deadline)
        except CreationFailed:
            components.node.note_misses([key], time.monotonic() - begin)
            raise
        if obtained.source == "created":
            components.node.note_misses([key], time.monotonic() - begin)
        if obtained.keep and keep:
            components.memory.put(key, obtained.payload, state, obtained.creation_s)
        return obtained

    def _look_at_entries(self, look: Callable[[Inspection, RedisTier | None], T]) -> T:
        """Return what `look` returns for all stored entries; without Redis, if that is away or goes away."""
        components, _ = self._enter()
        try:
            return look(components.inspection, components.limits.tier())
        except StoreUnavailable:
            return look(components.inspection, None)

    def _settle(self, components: Components) -> NodeState:
        """Return the state after asking Redis, if it answers, for the decisions of other nodes."""
        tier = components.limits.tier()
        if tier is not None:
            with suppress(StoreUnavailable):
                return components.limits.settle(tier)
        return components.node.state()


def _begin_again(reference: weakref.ref[CacheStore]) -> None:
    store = reference()
    if store is not None:
        store._begin_in_child()


def _close_at_exit(reference: weakref.ref[CacheStore]) -> None:
    store = reference()
    if store is not None:
        store.close()
