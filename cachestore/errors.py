"""The store's errors: one small tree that survives pickling and crossing a process as plain data.

`to_wire()` gives a dictionary of strings, numbers and None (safe for msgpack and JSON); `from_wire()` turns it back
into the same class. An unknown class name in a wire form, from a newer peer, becomes a plain `StoreError`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

#: Longest text, in characters, that a wire form carries in one field.
MAX_WIRE_TEXT = 64 * 1024


class StoreError(Exception):
    """Root of everything the store raises on purpose."""

    #: Constructor arguments in order; each is kept as an attribute of the same name.
    fields: ClassVar[tuple[str, ...]] = ("message",)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.fields)

    def copy(self) -> Self:
        """Return an equal error with its own traceback, so that several threads can raise it at once."""
        rebuild, arguments = self.__reduce__()
        twin = rebuild(*arguments)
        twin.__cause__ = self.__cause__
        return twin

    def to_wire(self) -> dict[str, Any]:
        """Return the error as plain data."""
        wire: dict[str, Any] = {"error": type(self).__name__}
        for name in self.fields:
            value = getattr(self, name)
            wire[name] = value[:MAX_WIRE_TEXT] if isinstance(value, str) else value
        return wire

    @staticmethod
    def from_wire(wire: Any) -> StoreError:
        """Return the error that `to_wire` described.

        Raises ValueError when the data is not such a description.
        """
        if not isinstance(wire, dict) or not isinstance(wire.get("error"), str):
            raise ValueError("not the wire form of a store error")
        kind = _CLASSES.get(wire["error"])
        if kind is None:
            return StoreError(f"{wire['error']}: {wire.get('message', '')}")
        values = [wire.get(name) for name in kind.fields]
        for name, value in zip(kind.fields, values, strict=True):
            expected = (int, float) if name == "seconds" else (str,)
            if not isinstance(value, expected):
                raise ValueError(f"wire form of {wire['error']} has no usable field {name!r}")
        error: StoreError = kind(*values)
        return error


class StoreUnavailable(StoreError):
    """Redis cannot be reached, or answers with an error; the caller can go on without it.

    Raised by `ping()`. Check the URL, or unset it to use the embedded server.
    """

    fields = ("url", "reason")

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the store's Redis at {url} is not available: {reason}")
        self.url = url
        self.reason = reason


class StoreFull(StoreUnavailable):
    """Redis has no memory for a value even after making room; everything else works. Raise its `maxmemory`."""


class KeyFileRefused(StoreError):
    """The signing key file has the wrong owner, permissions or content; entries could be forged with it."""

    fields = ("path", "reason")

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"signing key file {path} is refused: {reason}")
        self.path = path
        self.reason = reason


class EntryCorrupt(StoreError):
    """Bytes at rest are not an entry, or not the entry that was written. The store counts, removes and recreates it."""

    fields = ("digest", "reason")

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"entry {digest or '?'} is corrupt: {reason}")
        self.digest = digest
        self.reason = reason


class EntryForged(StoreError):
    """A well-formed entry was signed with another key than ours. The store counts, removes and recreates it."""

    fields: ClassVar[tuple[str, ...]] = ("digest", "key_id")

    def __init__(self, digest: str, key_id: str) -> None:
        super().__init__(f"entry {digest or '?'} is signed with another key (id {key_id})")
        self.digest = digest
        self.key_id = key_id


class BundleCorrupt(EntryCorrupt):
    """A bundle is not exactly what was written. Nothing of it was imported; export it again."""

    fields = ("path", "reason")

    def __init__(self, path: str, reason: str) -> None:
        StoreError.__init__(self, f"bundle {path} is corrupt: {reason}; nothing was imported")
        self.digest = ""
        self.path = path
        self.reason = reason


class BundleForged(EntryForged):
    """A bundle was signed with another key than ours. Nothing of it was imported; give the key that it was made with."""

    fields = ("path", "key_id", "own_key_id")

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

    fields = ("action",)

    def __init__(self, action: str) -> None:
        super().__init__(f"the store is read-only and does not {action}")
        self.action = action


class CreationFailed(StoreError):
    """The creator of an entry failed; every waiter gets this same error, and the next request tries again.

    `type` and `message` are those of the creator's exception, `log` is the compiler's log or the traceback.
    """

    fields = ("type", "message", "log")

    def __init__(self, type: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.log = log

    def __str__(self) -> str:
        return f"creation failed with {self.type}: {self.message}"


class CreationTimeout(StoreError):
    """Another creator did not finish within the caller's `timeout`; a later request may find it done."""

    fields = ("digest", "seconds")

    def __init__(self, digest: str, seconds: float) -> None:
        super().__init__(f"no result for entry {digest} within {seconds:.1f} s")
        self.digest = digest
        self.seconds = seconds


_CLASSES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        StoreError,
        StoreUnavailable,
        StoreFull,
        KeyFileRefused,
        EntryCorrupt,
        EntryForged,
        BundleCorrupt,
        BundleForged,
        StoreReadOnly,
        CreationFailed,
        CreationTimeout,
    )
}
