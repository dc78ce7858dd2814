"""Check that a store's Redis answers before a command relies on it; the error says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolrt.cli.report import JobFailed

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore


def reach(store: CacheStore) -> None:
    """Return when Redis answers. Raises JobFailed with the reason and what to do."""
    from poolrt.cachestore import StoreUnavailable

    try:
        store.ping()
    except StoreUnavailable as error:
        remedy = "start that server, correct POOLRT_REDIS_URL, or unset it to use the embedded server"
        if not store.options.url:
            remedy = "poolrt doctor shows why"
        raise JobFailed(f"{error}; {remedy}") from error
