"""Ask a store's Redis before a command counts on it, and say in one line what to do where it does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolrt.cli.report import JobFailed

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore


def reach(store: CacheStore) -> None:
    """Return when Redis answers. Raises JobFailed with the reason and the remedy."""
    from poolrt.cachestore import StoreUnavailable

    try:
        store.ping()
    except StoreUnavailable as error:
        remedy = "start it, correct POOLRT_REDIS_URL, or unset that for the embedded server"
        if not store.options.url:
            remedy = "poolrt doctor looks into it"
        raise JobFailed(f"{error}; {remedy}") from error
