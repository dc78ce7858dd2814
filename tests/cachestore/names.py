"""The names of a store in Redis, and key files as a user would have them."""

from __future__ import annotations

import os
from pathlib import Path

from poolrt.cachestore import CacheStore
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.signing import load_key


def schema_of(store: CacheStore) -> Schema:
    """Return the names of a store's namespace and signing key; make the key, as the store does when it is used."""
    options = store.options
    key = load_key(options.key_file or os.path.join(options.home, "signing.key"), make=True)
    return Schema(options.namespace, key.fingerprint)


def write_key(path: Path) -> str:
    """Write a new signing key, and return its path."""
    path.write_text(os.urandom(32).hex())
    path.chmod(0o600)
    return str(path)
