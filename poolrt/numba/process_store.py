"""The store that users' functions of a process share, and the hits that need no store."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from poolrt.cachestore.node_reader import NodeReader
from poolrt.cachestore.place import Place, is_read_only, place_from_environment

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key


@lru_cache(maxsize=1)
def process_store() -> CacheStore:
    """Return the store that the environment names, connected on first use."""
    from poolrt.cachestore import CacheStore

    return CacheStore.connect()


def find_on_node(key: Key, asked_by: str) -> bytes | None:
    """Return the payload of a key from the files of this node, without a store if none is open yet.

    ``asked_by`` is the place of the function that needs it. None means: ask the store. Raises ValueError for variables that
    the store refuses, too.
    """
    if process_store.cache_info().currsize or is_read_only():
        return None
    return _reader(place_from_environment()).get(key, asked_by)


@lru_cache(maxsize=1)
def _reader(place: Place) -> NodeReader:
    return NodeReader(place)
