"""The components of a store in one process. A forked child gets new ones."""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING

from .entry import EntryCodec
from .errors import KeyFileNotMade, KeyFileRefused, NothingKept
from .folders import make_folder
from .kept_property import kept_property
from .key import Key
from .limits import Limits
from .memory import MemoryTier
from .node import Node
from .node_state import NodeState
from .options import StoreOptions
from .outcome import Assemble, Found
from .ownership import check_folder, check_folders
from .signing import SigningKey, load_key, process_key
from .single_flight import SingleFlight
from .statistics_flusher import StatisticsFlusher
from .stats import Tally
from .verification import Verification

if TYPE_CHECKING:
    from .inspection import Inspection
    from .prebuilt import PrebuiltTier
    from .redis.link import RedisLink
    from .redis.tier import RedisTier
    from .results import Results
    from .single_creator import Obtained, SingleCreator
    from .transfer import Transfer


class Components:
    """Build and hold the components, opening nothing.

    Those that a hit in memory or files does not need are built, and their modules imported, on need.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._signing: SigningKey | None = None
        self._keeps_nothing = False
        self._codec: EntryCodec | None = None
        self._seen: NodeState | None = None
        self._trusted = False
        self._link: RedisLink | None = None
        self.tally = Tally()
        self.single_flight: SingleFlight[bytes, Obtained] = SingleFlight()
        self.verification = Verification(self.codec, self.tally)
        node_type, flusher_type = Node, StatisticsFlusher
        if options.read_only:
            from .read_only import ReadOnlyFlusher, ReadOnlyNode

            node_type, flusher_type = ReadOnlyNode, ReadOnlyFlusher
        self.node = node_type(options, self.verification, self.tally)
        self.limits = Limits(self.link, self.node)
        self.flusher = flusher_type(self.node, self.limits, self.verification, self.tally)
        self._memory_capacity = options.capacity
        self.memory = MemoryTier(
            options.capacity, options.memory_limit, self.tally.memory_uses, self.flusher.flush_memory_hits
        )

    @kept_property
    def creator(self) -> SingleCreator:
        """The protocol for an entry that is not on this node."""
        from .single_creator import SingleCreator

        creator_type = SingleCreator
        if self._options.read_only:
            from .read_only import ReadOnlyCreator

            creator_type = ReadOnlyCreator
        elif self.keeps_nothing():
            from .read_only import KeylessCreator

            creator_type = KeylessCreator
        return creator_type(self._options, self.limits, self.node, self.verification, self.codec, self.tally)

    @kept_property
    def prebuilt(self) -> PrebuiltTier:
        """The parts that came with the package."""
        from .prebuilt import PrebuiltTier, prebuilt_file

        return PrebuiltTier(prebuilt_file(self._options.prebuilt), self.tally)

    @kept_property
    def results(self) -> Results:
        """Results that this node keeps beside its entries."""
        from .results import Results

        keeps = lambda: not self.keeps_nothing()  # noqa: E731
        return Results(self._options, self.node, self.verification, self.codec, keeps, self.tally)

    @kept_property
    def inspection(self) -> Inspection:
        """Listing and verification of all entries."""
        from .inspection import Inspection

        return Inspection(self.node, self.verification, self.flusher.flush_hits)

    @kept_property
    def transfer(self) -> Transfer:
        """Bundles."""
        from .transfer import Transfer

        return Transfer(self._options, self.node, self.limits, self.verification, self.signing)

    def link(self) -> RedisLink:
        """Return the link to Redis; this connects nothing."""
        if self._link is None:
            from .redis.link import RedisLink

            with self._lock:
                if self._link is None:
                    self._link = RedisLink(self._options, self.tally, self.signing)
        return self._link

    def tier_if_connected(self) -> RedisTier | None:
        """Return the tier if this process is connected already."""
        return self.limits.tier() if self._link is not None and self._link.connected else None

    def codec(self) -> EntryCodec:
        """Return the codec, reading or making the signing key the first time. Raises KeyFileRefused."""
        if self._codec is None:
            self._codec = EntryCodec(self.signing(), self._options.namespace)
        return self._codec

    def signing(self, make: bool = True) -> SigningKey:
        """Return the signing key, reading it the first time, or making it unless `make` is false or we are read-only.

        If the file of the home folder cannot be made, as on a full or read-only disk, the key is this process's own, with
        a warning (NothingKept). Raises KeyFileRefused.
        """
        if self._signing is None:
            with self._lock:
                if self._signing is None:
                    options = self._options
                    path = options.place.signing_key
                    try:
                        self._signing = load_key(path, make and not options.read_only)
                    except KeyFileNotMade as error:
                        if options.key_file is not None:
                            remedy = "name a file that can be read, or made, with POOLRT_KEY_FILE"
                            raise KeyFileNotMade(path, f"{error.reason}; {remedy}") from error
                        self._keeps_nothing = True
                        self._signing = process_key()
                        text = (
                            f"{error}; nothing that is created is kept: set POOLRT_HOME to a folder that can be written"
                        )
                        warnings.warn(text, NothingKept, stacklevel=2)
        return self._signing

    def keeps_nothing(self) -> bool:
        """Return whether this process has a signing key of its own, so that no other could use its entries."""
        try:
            self.signing()
        except KeyFileRefused:
            pass  # the first creation raises it
        return self._keeps_nothing

    def state(self) -> NodeState:
        """Return the node's present state; forget entries in memory of an older one.

        The first call looks at the folders, and raises PathRefused if another user can change one.
        """
        if self._seen is not None and self.memory.is_unchanged:
            return self._seen
        if not self._trusted:
            self._check_folders()
        state = self.node.state()
        self.follow(state)
        return state

    def _check_folders(self) -> None:
        """Check the folders once in a process: see `ownership` for why that holds."""
        options = self._options
        if not options.read_only and not os.path.isdir(options.folder):
            check_folder(options.home)
            try:
                # Before the second check: another user could make what is missing in a folder such as /tmp.
                make_folder(options.folder)
            except OSError:
                pass  # the node counts it
        check_folders(options.place)
        self._trusted = True

    def find_here(
        self, state: NodeState, key: Key, assemble: Assemble | None = None, keep: bool = True
    ) -> tuple[Found | None, float]:
        """Return a payload that needs no connection, from memory, files or prebuilt parts, and the seconds of its creation."""
        payload = self.memory.hit(key, current=True)
        if payload is not None:
            return Found(payload, "memory"), self.memory.creation_s(key)
        entry = self.node.get(state, key)
        if entry is not None:
            payload, seconds = entry.payload, entry.meta.seconds
            self.tally.use(key.digest, "files", seconds)
        else:
            payload, seconds = assemble(key) if assemble is not None else None, 0.0
            if payload is None:
                return None, 0.0
            self.tally.add("hits.prebuilt")
        if keep:
            self.memory.put(key, payload, state, seconds)
        return Found(payload, "files" if entry is not None else "prebuilt"), seconds

    def follow(self, state: NodeState) -> None:
        """Forget the entries in memory when the node's state has changed."""
        if state is self._seen:
            # Needed for the second time: worth a watch, which needs no system call.
            self.memory.watch(self.node.watch(state))
            return
        if self._seen != state:
            self.reset_memory(state)
        self._seen = state

    def reset_memory(self, state: NodeState) -> None:
        """Forget the entries in memory, and keep those of `state` from now on."""
        with self._lock:
            self.memory.reset(self._memory_capacity, state)

    def set_memory_capacity(self, capacity: int) -> None:
        """Hold at most `capacity` entries in memory from now on."""
        with self._lock:
            self._memory_capacity = capacity
            self.memory.set_capacity(capacity)

    def close(self) -> None:
        """Close files and connections; they open again on the next need."""
        if self._link is not None:
            self._link.close()
        self.memory.watch(None)
        self.node.close()

    def forget(self) -> None:
        """Close the files that a forked child has inherited, without touching the parent's connections."""
        self.memory.watch(None)
        self.node.forget()
