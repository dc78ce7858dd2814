"""Hits in this node's files, with the parts of the store that they need and no others: a warm start imports no more.

Folders, the signing key's file, the signature of an entry and its key are checked by the code that the store uses. All
that is not a sound entry of the key is left to the store, which counts it, repairs it, or raises its error.
"""

from __future__ import annotations

from .asks import AskLog
from .entry import EntryCodec
from .entry_file import generation_name, read_entry_file
from .errors import StoreError
from .hits import HitLog
from .journal import Journal
from .key import Key
from .node_state import NodeStateView
from .ownership import check_folders
from .place import Place
from .signing import load_key


class NodeReader:
    """Read the entries of one namespace. Any number of threads may use it, and forked children."""

    def __init__(self, place: Place) -> None:
        """Open nothing yet. Raises ValueError for a place that cannot be used."""
        place.check()
        self._place = place
        self._codec: EntryCodec | None = None
        self._journal = Journal(f"{place.folder}/journal")
        self._asks = AskLog(f"{place.folder}/asks")
        self._hits = HitLog(f"{place.folder}/hits")

    def get(self, key: Key, asked_by: str) -> bytes | None:
        """Return the payload of a key, counted as a hit in files, and note what needs it; None unless all of that works.

        Makes no file of the store, and waits for none for longer than a fifth of a second.
        """
        try:
            codec = self._codec or self._open()
            view = NodeStateView(f"{self._place.folder}/state")
            try:
                state = view.read()
            finally:
                view.close()
            if state.capacity == 0:
                return None
            blob = read_entry_file(f"{self._place.folder}/entries/{generation_name(state.generation)}/{key.digest}")
            entry = codec.open(blob, key) if blob is not None else None
            if entry is None:
                return None
            self._asks.note(asked_by, (key,))
            self._journal.append_hit(key.digest, entry.meta.seconds)
            self._hits.add({key.digest: 1})
        except (OSError, StoreError):
            return None
        return entry.payload

    def _open(self) -> EntryCodec:
        """Check the folders and read the signing key, once in a process: see `ownership` for why that holds."""
        check_folders(self._place)
        self._codec = codec = EntryCodec(load_key(self._place.signing_key, make=False), self._place.namespace)
        return codec
