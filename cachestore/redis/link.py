"""The link to Redis: connect on first need, stop asking while it fails, and reconnect when it answers again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from poolrt.cachestore.errors import StoreUnavailable
from poolrt.cachestore.options import NAMESPACE_CAPACITY, StoreOptions
from poolrt.cachestore.signing import SigningKey
from poolrt.cachestore.stats import Tally

from ..deferred_dataclass import dataclass
from .address import public_name, socket_path
from .breaker import CircuitBreaker
from .connection import CONNECT_S, RedisConnection
from .embedded import START_S, EmbeddedServer
from .lease import Terms
from .schema import Schema
from .tier import RedisTier

#: Longest wait, in seconds, for an embedded server: enough to start one, which takes some hundredths of a second.
#: Callers go on without a frozen server, or one that loads for long, and find it later.
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
    """Return the tier while Redis answers, in the part of the namespace that belongs to the signing key.

    Without a URL, the embedded server is started, or only used if it runs when the store is read-only.
    """

    def __init__(self, options: StoreOptions, tally: Tally, signing: Callable[[], SigningKey]) -> None:
        self._options = options
        self._tally = tally
        self._signing = signing
        self._url = options.url
        self._server = EmbeddedServer(options.server_folder, options.redis_server, options.server_idle_s)
        self._breaker = CircuitBreaker()
        self._lock = threading.Lock()
        self._tier: RedisTier | None = None
        self._epoch = 0
        self._failed_attempts = 0

    @property
    def epoch(self) -> int:
        """Number of connections so far; after a new one, Redis may have lost data."""
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
        """Return the tier, or None while the breaker is open. Raises KeyFileRefused."""
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
        """Return the tier after asking Redis, even with an open breaker; raise StoreUnavailable if it is away.

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
                # Another thread has just failed; attempts one after the other would add up their waits.
                raise StoreUnavailable(self.name, self._breaker.reason)
            self._epoch += 1
            try:
                if self._url is None and self._options.read_only:
                    if not self._server.is_running():
                        raise StoreUnavailable(self.name, "the server does not run, and a read-only store starts none")
                elif self._url is None:
                    # Again after each failure: the server may have been killed, and its data are in its files.
                    self._server.ensure(patience_s)
                if self._tier is None:
                    if self._url is not None:
                        _check_socket(self._url, self.name)
                    self._tier = self._make_tier(self._server.url if self._url is None else self._url)
            except (StoreUnavailable, ImportError) as error:
                reason = error.reason if isinstance(error, StoreUnavailable) else str(error)
                self._failed_attempts += 1
                self._breaker.failed(reason)
                raise StoreUnavailable(self.name, reason) from error
            return self._tier
        finally:
            self._lock.release()

    def _make_tier(self, url: str) -> RedisTier:
        options = self._options
        schema = Schema(options.namespace, self._signing().fingerprint)
        connection_type, tier_type = RedisConnection, RedisTier
        if options.read_only:
            from .read_only import ReadOnlyConnection, ReadOnlyTier

            connection_type, tier_type = ReadOnlyConnection, ReadOnlyTier
        tally = self._tally
        connection = connection_type(
            url,
            self.name,
            options.io_timeout_s,
            self._breaker,
            lambda: tally.add("malformed"),
            own_server=self._url is None,
        )
        terms = Terms(options.lease_s, options.creation_limit_s)
        return tier_type(connection, schema, terms, (NAMESPACE_CAPACITY, 0), options.initial_capacities)


def _check_socket(url: str, name: str) -> None:
    """Raise StoreUnavailable if the URL names a unix socket at which no server listens.

    The client would say so, too, but to import it takes 80 ms of each process on a node without Redis.
    """
    path = socket_path(url)
    if path is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(path)
        except OSError as error:
            raise StoreUnavailable(name, f"cannot connect to {path}: {error.strerror or error}") from None
