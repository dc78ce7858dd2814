"""Digests, ages and key fields of a store, as text for people and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.report import JobFailed, UsageError

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key

#: Least number of digits in the beginning of a digest.
_SHORTEST_PREFIX: Final = 4
#: What a text that cannot begin a digest should have been.
EXPECTED: Final = f"expected {_SHORTEST_PREFIX} or more digits of a digest, as `poolrt cache list` shows them"
#: Longest value of a field, in characters, that is shown in full.
_LONGEST: Final = 60


def find_digest(digests: Iterable[str], text: str, what: str) -> str:
    """Return the one of ``digests`` that begins with a typed ``text``.

    Raises UsageError if ``text`` cannot begin a digest, and JobFailed if it begins none or several; ``what`` names them.
    """
    prefix = text.lower()
    if not is_prefix(text):
        raise UsageError(f"{text}: {EXPECTED}")
    found = sorted(digest for digest in digests if digest.startswith(prefix))
    if not found:
        raise JobFailed(f"no {what} begins with {prefix}")
    if len(found) > 1:
        raise JobFailed(f"{len(found)} digests begin with {prefix}: {', '.join(digest[:16] for digest in found[:5])}")
    return found[0]


def is_prefix(text: str) -> bool:
    """Return whether a typed text can begin a digest."""
    return len(text) >= _SHORTEST_PREFIX and all(digit in "0123456789abcdef" for digit in text.lower())


def stored_key(store: CacheStore, digest: str) -> Key:
    """Return the key of an entry. Raises JobFailed if the entry fails verification."""
    key = store.key_of(digest)
    if key is None:
        raise JobFailed(f"entry {digest} is damaged or forged: poolrt cache verify removes it")
    return key


def age_text(seconds: float) -> str:
    """Return an age for people: ``12 s``, ``3 min``, ``2 d``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def readable(value: Any) -> Any:
    """Return a key's field as a JSON value: bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [readable(member) for member in value]
    if isinstance(value, dict):
        return {str(name): readable(member) for name, member in value.items()}
    return value


def short_text(value: Any) -> str:
    """Return a key's field as text of at most ``_LONGEST`` characters."""
    text = str(readable(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
