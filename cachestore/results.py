"""Results that this node can make again in milliseconds, such as lowered graphs, in files beside its entries.

    <home>/<namespace>/results/entries/<generation>/<digest>     one signed result

They are signed, verified and bounded as entries are, with a kind of their own: no result is ever taken for an entry. They
are in no count, list or bundle, and never in Redis. Guarantees: no method raises OSError; what cannot be read is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from .entry import RESULT, EntryCodec, EntryMeta
from .errors import KeyFileRefused
from .files import FilesTier
from .key import Key
from .node import Node
from .node_state import NodeState
from .options import StoreOptions
from .stats import Tally
from .verification import Verification

#: Results that are kept, and their bytes; the least recently used are removed first.
_MOST: Final = 1024
_MOST_BYTES: Final = 64 << 20
#: Bytes of the longest result that is kept.
_LONGEST: Final = 4 << 20


class Results:
    """The results of one namespace on this node, for any number of threads and processes.

    ``keeps`` returns whether other processes could verify what this one signs.
    """

    def __init__(
        self,
        options: StoreOptions,
        node: Node,
        verification: Verification,
        codec: Callable[[], EntryCodec],
        keeps: Callable[[], bool],
        tally: Tally,
    ) -> None:
        self._read_only = options.read_only
        self._node = node
        self._verification = verification
        self._codec = codec
        self._keeps = keeps
        self._tally = tally
        self._files = FilesTier(_folder(options), _MOST_BYTES)

    def get(self, key: Key) -> bytes | None:
        """Return the result of a key, or None. A corrupt or forged one is counted and removed. Raises KeyFileRefused."""
        state = self._node.state()
        if self._node.capacity(state) == 0:
            return None
        try:
            blob = self._files.get(state.generation, key.digest, not self._read_only)
        except OSError:
            self._tally.add("degraded")
            return None
        entry = self._verification.verify(key, blob, lambda digest, bad: self._discard(state, digest, bad), RESULT)
        return entry.payload if entry is not None else None

    def put(self, key: Key, payload: bytes) -> None:
        """Keep a result, unless this store keeps nothing."""
        state = self._node.state()
        if self._read_only or len(payload) > _LONGEST or self._node.capacity(state) == 0 or not self._keeps():
            return
        try:
            blob = self._codec().pack(key.canonical, payload, EntryMeta(0, 0.0, 0.0, "", ""), RESULT)
            self._files.put(state.generation, key.digest, blob, _MOST)
        except KeyFileRefused:
            pass  # the first creation raises it
        except OSError:
            self._tally.add("degraded")

    def _discard(self, state: NodeState, digest: str, bad: bytes) -> None:
        try:
            if not self._read_only:
                self._files.remove_if(state.generation, digest, bad)
        except OSError:
            self._tally.add("degraded")


def are_kept(options: StoreOptions) -> bool:
    """Return whether this node has a folder of results, without a look at what is in it."""
    return os.path.isdir(_folder(options))


def _folder(options: StoreOptions) -> str:
    return os.path.join(options.folder, "results")
