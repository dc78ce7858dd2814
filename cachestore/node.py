"""This node's tier of the store: verified entries in files, the state that processes share, and the journal.

Guarantees: when the folder cannot be used (read-only, full disk), every call goes on without it and counts `degraded`.
That costs speed, never a result.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from .asks import AskedBy, AskLog
from .entry import Entry
from .file_lease import FileLeaseWait
from .files import FileStatus, FilesTier, Mark
from .heartbeat import BEATS_PER_TERM
from .hits import HitCounts, HitLog
from .journal import Journal
from .key import Key
from .misses import Miss, MissLog
from .node_state import UNSET, NodeState, NodeStateFile, Watch
from .options import NAMESPACE_CAPACITY, StoreOptions
from .stats import Batch, Tally
from .verification import Verification
from .write_behind import WriteBehind

T = TypeVar("T")

#: Entries that a process remembers to have put lately.
_MOST_RECENT: Final = 1024


class Node:
    """The files and the state of one namespace on this node."""

    def __init__(self, options: StoreOptions, verification: Verification, tally: Tally) -> None:
        self._options = options
        #: The capacities of the namespace until one is set.
        self._defaults = options.initial_capacities or (NAMESPACE_CAPACITY, 0)
        self._verification = verification
        self._tally = tally
        self._state_file = NodeStateFile(os.path.join(options.folder, "state"))
        self._files = FilesTier(options.folder, options.files_bytes)
        self._journal = Journal(os.path.join(options.folder, "journal"))
        self._misses = MissLog(os.path.join(options.folder, "misses"))
        self._asks = AskLog(os.path.join(options.folder, "asks"))
        self._hits = HitLog(os.path.join(options.folder, "hits"))
        #: The state of this process while the file cannot be used.
        self._alone = NodeState()
        #: Entries that are in Redis too, and the times they were put.
        self._recent: deque[tuple[float, str]] = deque(maxlen=_MOST_RECENT)
        self._behind = WriteBehind(self._put_behind)

    def state(self) -> NodeState:
        """Return the state that the node's processes share; the same object as long as it does not change."""
        return self._or(self._state_file.read, self._alone)

    def watch(self, state: NodeState) -> Watch | None:
        """Return how to see without a system call that `state`, from `state()`, still holds, if there is a way."""
        return self._or(lambda: self._state_file.watch(state), None)

    def change(self, step: Callable[[NodeState], NodeState]) -> NodeState:
        """Change the state for all processes of the node."""
        state = self._or(lambda: self._state_file.change(step), None)
        if state is None:
            state = self._alone = step(self._alone)
        return state

    def capacity(self, state: NodeState) -> int:
        """Return the capacity of the namespace, in entries."""
        return self._defaults[0] if state.capacity == UNSET else state.capacity

    def capacity_bytes(self, state: NodeState) -> int:
        """Return the capacity of the namespace, in bytes; 0 means no limit."""
        return self._defaults[1] if state.capacity_bytes == UNSET else state.capacity_bytes

    def files_capacity(self, state: NodeState) -> int:
        """Return how many entries the node's files keep: never more than the capacity that the namespace was given."""
        own = self._options.files_capacity
        return own if state.capacity == UNSET else min(own, state.capacity)

    def get(self, state: NodeState, key: Key) -> Entry | None:
        """Return the verified entry of a key."""
        blob = self.get_blob(state, key.digest)
        return self._verification.verify(key, blob, lambda digest, bad: self._discard(state, digest, bad))

    def get_blob(self, state: NodeState, digest: str, use: bool = True) -> bytes | None:
        """Return an entry's bytes, unverified; with `use` that counts as a use."""
        return self._or(lambda: self._files.get(state.generation, digest, use), None)

    def put(self, state: NodeState, digest: str, blob: bytes, unpublished: bool = False) -> None:
        """Keep an entry; `unpublished` if Redis does not have it."""
        limit = self.capacity_bytes(state)
        if limit == 0 or len(blob) <= limit:
            capacity = self.files_capacity(state)
            self._or(lambda: self._files.put(state.generation, digest, blob, capacity, unpublished), None)
        if not unpublished:
            self._recent.append((time.monotonic(), digest))

    def put_later(self, state: NodeState, digest: str, blob: bytes) -> None:
        """Keep an entry of Redis a moment later, unless the state has changed by then: it may have been removed."""
        if len(blob) <= self._options.files_bytes:
            self._behind.put(state, digest, blob)

    def remove(self, state: NodeState, digest: str) -> bool:
        """Remove an entry; return whether it was there."""
        self._behind.drain()
        return self._or(lambda: self._files.remove(state.generation, digest), False)

    def note_removal(self) -> None:
        """Make the other processes of the node forget their entries in memory."""
        self.change(lambda state: state._replace(removals=state.removals + 1))

    def sweep(self, state: NodeState) -> None:
        """Drop entries that no longer fit or belong to an older generation."""
        capacity = self.files_capacity(state)
        self._or(lambda: self._files.sweep(state.generation, capacity), None)

    def file_lease(self, digest: str) -> FileLeaseWait:
        """Return the wait for this node's lease to create an entry."""
        limit_s = self._options.creation_limit_s
        stale_after = min(self._options.lease_s, limit_s)
        # The beat before the last allowed one may be nearly an interval old; no holder loses the lease too early.
        return self._files.file_lease(digest, stale_after, limit_s - stale_after * (1 - 1 / BEATS_PER_TERM))

    def put_before(self, when: float) -> list[str]:
        """Return the entries that this process has put before a time of the monotonic clock, each once."""
        found: list[str] = []
        while self._recent and self._recent[0][0] < when and len(found) < _MOST_RECENT:
            try:
                found.append(self._recent.popleft()[1])
            except IndexError:
                # Another thread has taken the last one.
                break
        return found

    def statuses(self, state: NodeState, digests: list[str]) -> list[FileStatus]:
        """Return those of some entries that are here, in the given order."""
        return self._or(lambda: self._files.statuses(state.generation, digests), [])

    def listing(self, state: NodeState) -> list[FileStatus]:
        """Return the entries here, least recently used first."""
        return self._or(lambda: self._files.listing(state.generation), [])

    def unpublished(self) -> list[str]:
        """Return the digests of entries that have to go to Redis."""
        return self._or(self._files.unpublished, [])

    def mark_unpublished(self, digest: str, last_use: float | None = None, lease: str = "") -> None:
        """Remember that an entry has to go to Redis, in the order of last uses (seconds since the epoch; None: now).

        `lease` names the lease that it was made under.
        """
        self._or(lambda: self._files.mark_unpublished(digest, last_use, lease), None)

    def mark_of(self, digest: str) -> Mark | None:
        """Return the mark of an unpublished entry; None if it is published."""
        return self._or(lambda: self._files.mark_of(digest), None)

    def mark_published(self, digest: str, mark: Mark) -> None:
        """Remove the mark of a published entry, unless it was marked again since `mark`."""
        self._or(lambda: self._files.mark_published(digest, mark), None)

    def journal_append(self, batch: Batch) -> bool:
        """Append counts and uses for a process with a connection; return False when that fails."""
        return self._or(lambda: self._append(batch), False)

    def journal_take(self) -> Batch:
        """Take everything out of the journal."""
        return self._or(self._journal.take, Batch({}, ()))

    def journal_read(self) -> Batch:
        """Return the sum of everything in the journal."""
        return self._or(self._journal.read, Batch({}, ()))

    def run_id(self) -> str:
        """Return the run id of Redis that this node was last compared with."""
        return self._or(self._files.run_id, "")

    def set_run_id(self, run_id: str) -> None:
        """Note the run id of Redis that this node was compared with."""
        self._or(lambda: self._files.set_run_id(run_id), None)

    def note_misses(self, keys: Sequence[Key], since_s: float = 0.0) -> None:
        """Note which keys were missing `since_s` seconds ago, so that the misses can be explained."""
        self._or(lambda: self._misses.note(keys, since_s), None)

    def latest_misses(self, count: int) -> list[Miss]:
        """Return the latest misses of this node, the latest one last."""
        return self._or(lambda: self._misses.latest(count), [])

    def note_asked(self, name: str, keys: Sequence[Key]) -> None:
        """Note which name needs keys."""
        self._or(lambda: self._asks.note(name, keys), None)

    def asked_by(self) -> AskedBy:
        """Return the names that have asked for keys on this node."""
        return self._or(self._asks.names, AskedBy({}))

    def note_hits(self, counts: Mapping[str, int]) -> None:
        """Add to the number of hits of entries, by digest."""
        self._or(lambda: self._hits.add(counts), None)

    def hits(self) -> HitCounts:
        """Return how often look-ups on this node have found each entry."""
        return self._or(self._hits.counts, HitCounts({}))

    def close(self) -> None:
        """Write the waiting entries and close the state file."""
        self._behind.close()
        self._state_file.close()

    def forget(self) -> None:
        """Close the file that a forked child has inherited; waiting entries are the parent's."""
        self._state_file.close()

    def _put_behind(self, state: NodeState, digest: str, blob: bytes) -> None:
        if state == self.state():
            self.put(state, digest, blob)

    def _append(self, batch: Batch) -> bool:
        self._journal.append(batch)
        return True

    def _discard(self, state: NodeState, digest: str, bad: bytes) -> None:
        self._or(lambda: self._files.remove_if(state.generation, digest, bad), None)

    def _or(self, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except OSError:
            self._tally.add("degraded")
            return otherwise
