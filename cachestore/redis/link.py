"""The way to Redis: connect on first need, stay away while it fails, come back when it is there again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from poolrt.cachestore.errors import StoreUnavailable

from .address import public_name
from .breaker import CircuitBreaker
from .connection import RedisConnection
from .embedded import START_S, EmbeddedServer
from .lease import Terms
from .tier import RedisTier

#: Longest wait, in seconds, for an embedded server that is not up: enough to start one, which takes some hundredths
#: of a second; for a frozen one, or a long load, callers go on without it, and find it later.
_PATIENCE_S: Final = 0.75


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """Whether Redis answers: its name, the reason if it does not, and the time of one answer in seconds."""

    url: str
    embedded: bool
    reachable: bool
    reason: str
    answer_s: float


class RedisLink:
    """Give out the tier while Redis answers.

    `server` is the embedded server to start when there is no `url`; with `read_only` it is used if it runs, and the tier
    is one that cannot write.
    """

    def __init__(
        self,
        url: str | None,
        server: EmbeddedServer,
        namespace: str,
        terms: Terms,
        defaults: tuple[int, int],
        io_timeout_s: float,
        read_only: bool = False,
    ) -> None:
        self._url = url
        self._server = server
        self._namespace = namespace
        self._terms = terms
        self._defaults = defaults
        self._io_timeout_s = io_timeout_s
        self._read_only = read_only
        self._breaker = CircuitBreaker()
        self._lock = threading.Lock()
        self._tier: RedisTier | None = None
        self._epoch = 0
        self._failed_attempts = 0

    @property
    def epoch(self) -> int:
        """Number of times that Redis was found, first or again; whoever told it something may have to tell it anew."""
        return self._epoch

    @property
    def name(self) -> str:
        """The server as messages name it, without a password."""
        return "embedded" if self._url is None else public_name(self._url)

    @property
    def connected(self) -> bool:
        """Whether a connection has been made and has not failed since."""
        return self._tier is not None and not self._breaker.reason

    def tier(self) -> RedisTier | None:
        """Return the tier, or None while Redis is given up."""
        tier = self._tier
        if tier is not None and not self._breaker.reason:
            return tier
        if not self._breaker.allows():
            return None
        try:
            return self._connect(_PATIENCE_S)
        except StoreUnavailable:
            return None

    def require(self) -> RedisTier:
        """Return the tier after asking Redis, whatever the breaker says; raise StoreUnavailable if it is away.

        Waits longer than `tier` for an embedded server that is reading its data.
        """
        tier = self._connect(START_S)
        tier.ping()
        return tier

    def status(self) -> LinkStatus:
        """Ask Redis now."""
        embedded = self._url is None
        try:
            tier = self.require()
            begin = time.perf_counter()
            tier.ping()
        except StoreUnavailable as error:
            return LinkStatus(self.name, embedded, False, error.reason, 0.0)
        return LinkStatus(self.name, embedded, True, "", time.perf_counter() - begin)

    def close(self) -> None:
        """Close the connections; the next `tier` makes new ones."""
        with self._lock:
            if self._tier is not None:
                self._tier.close()
                self._tier = None

    def _connect(self, patience_s: float) -> RedisTier:
        failed = self._failed_attempts
        if not self._lock.acquire(timeout=patience_s):
            raise StoreUnavailable(self.name, "another thread is still connecting")
        try:
            if self._tier is not None and not self._breaker.reason:
                return self._tier
            if self._failed_attempts != failed and self._breaker.reason:
                # Another thread has just tried in vain; each trying in its turn would add up their waits.
                raise StoreUnavailable(self.name, self._breaker.reason)
            self._epoch += 1
            try:
                if self._url is None and self._read_only:
                    if not self._server.is_running():
                        raise StoreUnavailable(self.name, "it does not run, and a read-only store starts none")
                elif self._url is None:
                    # Again after each failure: the server may have been killed, and its data are in its files.
                    self._server.ensure(patience_s)
                if self._tier is None:
                    url = self._server.url if self._url is None else self._url
                    self._tier = self._make_tier(url)
            except (StoreUnavailable, ImportError) as error:
                reason = error.reason if isinstance(error, StoreUnavailable) else str(error)
                self._failed_attempts += 1
                self._breaker.failed(reason)
                raise StoreUnavailable(self.name, reason) from error
            return self._tier
        finally:
            self._lock.release()

    def _make_tier(self, url: str) -> RedisTier:
        connection_type, tier_type = RedisConnection, RedisTier
        if self._read_only:
            from .read_only import ReadOnlyConnection, ReadOnlyTier

            connection_type, tier_type = ReadOnlyConnection, ReadOnlyTier
        connection = connection_type(url, self.name, self._io_timeout_s, self._breaker)
        return tier_type(connection, self._namespace, self._terms, self._defaults)
