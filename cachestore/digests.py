"""SHA-256 and the comparison of digests, at first without OpenSSL: its library takes 3 ms to load, a third of a warm start.

CPython's own module hashes 64 KiB in a quarter of a millisecond, as `random` of the standard library uses it. Longer
messages, and processes that have loaded OpenSSL, use `hashlib`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hashlib import _Hash as Hash
    from hmac import compare_digest
else:
    from _operator import _compare_digest as compare_digest  # what `hmac` has without OpenSSL, which it loads

__all__ = ["LONG", "compare_digest", "openssl_sha256", "sha256"]

#: Bytes of a message beyond which loading OpenSSL pays.
LONG: Final = 1 << 16
#: The module with CPython's own SHA-256: of 3.11, and of later versions.
_OWN: Final = ("_sha256", "_sha2")


def sha256(message: bytes | memoryview = b"") -> Hash:
    """Return a SHA-256 that has hashed a message."""
    if len(message) > LONG or "_hashlib" in sys.modules:
        return openssl_sha256(message)
    return _own(message)


def openssl_sha256(message: bytes | memoryview = b"") -> Hash:
    """Return OpenSSL's SHA-256, if this Python has one, that has hashed a message."""
    import hashlib

    return hashlib.sha256(message)


def _find_own() -> Callable[[bytes | memoryview], Hash]:
    for name in _OWN:
        try:
            found: Any = import_module(name).sha256
        except (ImportError, AttributeError):
            continue
        return found  # type: ignore[no-any-return]
    return openssl_sha256


_own: Final = _find_own()
