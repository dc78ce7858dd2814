"""URLs of a Redis: their form in messages, and the addresses that a cluster redirects to."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

#: Parameters of a URL whose values are secrets.
_SECRETS: Final = ("password", "ssl_password")
_HIDDEN: Final = "***"


def public_name(url: str) -> str:
    """Return a URL without its passwords."""
    scheme, place, rest = _split(url)
    user, at, host = place.rpartition("@")
    if ":" in user:
        place = f"{user.partition(':')[0]}:{_HIDDEN}{at}{host}"
    path, mark, query = rest.partition("?")
    shown = "&".join(_shown(pair) for pair in query.split("&"))
    return f"{scheme}://{place}{path}{mark}{shown}"


def moved(url: str, host: str, port: int) -> str | None:
    """Return `url` with the address of a MOVED answer; user, password, TLS and all else stay.

    An empty host means the one that answered. None for a unix socket, which is in no cluster.
    """
    scheme, place, rest = _split(url)
    if scheme not in ("redis", "rediss"):
        return None
    host = host or urlsplit(url).hostname or "localhost"
    user, at, _ = place.rpartition("@")
    return f"{scheme}://{user}{at}{f'[{host}]' if ':' in host else host}:{port}{rest}"


def socket_path(url: str) -> str | None:
    """Return the path of a unix socket, None for a URL of another kind or without a path."""
    parts = urlsplit(url)
    return unquote(parts.path) or None if parts.scheme == "unix" else None


def _split(url: str) -> tuple[str, str, str]:
    """Return scheme, user with host, and the rest; `urlunsplit` would change some URLs."""
    scheme, _, tail = url.partition("://")
    place = urlsplit(url).netloc
    return scheme, place, tail[len(place) :]


def _shown(pair: str) -> str:
    name = pair.partition("=")[0]
    return f"{name}={_HIDDEN}" if unquote(name) in _SECRETS else pair
