"""The store's errors: one small tree under `StoreError`, whose members cross processes as plain data."""

from __future__ import annotations

from .portable_error import PortableError


class StoreError(PortableError):
    """Root of everything the store raises on purpose."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached, or answers with an error; the caller can go on without it.

    Raised by `ping()`. Check the URL, or unset it to use the embedded server.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the store's Redis at {url} is not available: {reason}")
        self.url = url
        self.reason = reason


class StoreFull(StoreUnavailable):
    """Redis has no memory for a value even after making room; everything else works. Raise its `maxmemory`."""


class PathRefused(StoreError):
    """Another user can change a folder or file of the cache, or replace it. The message says how to mend that."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is refused: {reason}")
        self.path = path
        self.reason = reason


class KeyFileRefused(StoreError):
    """The signing key file has the wrong owner, permissions or content; entries could be forged with it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"signing key file {path} is refused: {reason}")
        self.path = path
        self.reason = reason


class KeyFileNotMade(KeyFileRefused):
    """There is no signing key file and none can be made. A store then has a key of its own and keeps nothing."""


class NothingKept(UserWarning):
    """A store cannot make its signing key file, so each process keeps what it creates to itself."""


class PrebuiltRefused(UserWarning):
    """The file of prebuilt parts, or one of its parts, is damaged, or another user could have changed it. It is not used."""


class EntryCorrupt(StoreError):
    """Bytes at rest are not an entry, or not the entry that was written. The store counts, removes and recreates it."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"entry {digest or '?'} is corrupt: {reason}")
        self.digest = digest
        self.reason = reason


class EntryForged(StoreError):
    """A well-formed entry was signed with another key than ours. The store counts, removes and recreates it."""

    def __init__(self, digest: str, key_id: str) -> None:
        super().__init__(f"entry {digest or '?'} is signed with another key (id {key_id})")
        self.digest = digest
        self.key_id = key_id


class BundleCorrupt(EntryCorrupt):
    """A bundle is not exactly what was written. Nothing of it was imported; export it again."""

    def __init__(self, path: str, reason: str) -> None:
        StoreError.__init__(self, f"bundle {path} is corrupt: {reason}; nothing was imported")
        self.digest = ""
        self.path = path
        self.reason = reason


class BundleForged(EntryForged):
    """A bundle was signed with another key than ours. Nothing of it was imported; use the key that it was made with."""

    def __init__(self, path: str, key_id: str, own_key_id: str) -> None:
        StoreError.__init__(
            self, f"bundle {path} is signed with another key (id {key_id}, ours is {own_key_id}); nothing was imported"
        )
        self.digest = ""
        self.path = path
        self.key_id = key_id
        self.own_key_id = own_key_id


class StoreReadOnly(StoreError):
    """The store was opened read-only, and was asked to change something. Open it without `read_only` for that."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the store is read-only and does not {action}")
        self.action = action


class CreationFailed(StoreError):
    """The creator of an entry failed; every waiter gets this same error, and the next request tries again.

    `type` and `message` are those of the creator's exception, `log` is the compiler's log or the traceback.
    """

    def __init__(self, type: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.log = log

    def __str__(self) -> str:
        return f"creation failed with {self.type}: {self.message}"


class CreationTimeout(StoreError):
    """Another creator did not finish within the caller's `timeout`; a later request may find the entry."""

    def __init__(self, digest: str, seconds: float) -> None:
        super().__init__(f"no result for entry {digest} within {seconds:.1f} s")
        self.digest = digest
        self.seconds = seconds
