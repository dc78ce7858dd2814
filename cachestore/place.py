"""Where a namespace is: its folders, its Redis and its signing key, from arguments, the environment, or defaults.

A process that only reads its node's files needs no other option.
"""

from __future__ import annotations

import os
from typing import Final

from .deferred_namedtuple import NamedTuple

DEFAULT_NAMESPACE: Final = "default"
#: Names in the home folder that a namespace cannot have.
_RESERVED: Final = ("redis", "signing.key")
_LONGEST: Final = 64
_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


class Place(NamedTuple):
    """The home folder, the URL of Redis (None: the embedded server), the namespace, and its key file if it is another one."""

    home: str
    url: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    key_file: str | None = None

    @property
    def folder(self) -> str:
        """The namespace's folder on this node."""
        return os.path.join(self.home, self.namespace)

    @property
    def server_folder(self) -> str:
        """The embedded server's folder."""
        return os.path.join(self.home, "redis")

    @property
    def signing_key(self) -> str:
        """The path of the signing key's file."""
        return self.key_file or os.path.join(self.home, "signing.key")

    def check(self) -> None:
        """Raise ValueError, naming the field, for a namespace or a path that cannot be used."""
        name = self.namespace
        usable = 0 < len(name) <= _LONGEST and name[0] not in ".-" and _LETTERS.issuperset(name)
        if not usable or name in _RESERVED:
            raise ValueError(
                f"namespace {name!r} is not usable: 1 to {_LONGEST} of A-Z a-z 0-9 _ . - not beginning with . or -, "
                f"and not {' or '.join(_RESERVED)}"
            )
        for field, path in (("home", self.home), ("key_file", self.key_file)):
            if path is not None and ("\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path)):
                raise ValueError(f"{field} {path!r} is not usable: expect UTF-8 text without NUL")


class StoreSettings:
    """The settings of stores as text, in a process without `poolrt.settings`: of variables, else of the settings' file.

    Raises what `read_store_settings` raises.
    """

    def __init__(self) -> None:
        self._in_file: dict[str, tuple[str, str]] = {}
        if os.environ.get("POOLRT_CONFIG"):
            from .settings_file import read_store_settings

            self._in_file = read_store_settings()

    def find(self, name: str, variable: str) -> tuple[str, str]:
        """Return the source of a setting, for errors, and its text, which is empty if nothing sets it.

        An empty variable unsets the file's value.
        """
        given = os.environ.get(variable)
        return self._in_file.get(name, (variable, "")) if given is None else (variable, given)


def default_home() -> str:
    """Return the user's cache folder for poolrt."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "poolrt")


def place_from_environment(
    url: str | None = None,
    namespace: str | None = None,
    home: str | os.PathLike[str] | None = None,
    key_file: str | None = None,
) -> Place:
    """Return a place with arguments first, then the environment, then the defaults; see `options_from_environment`."""
    settings = StoreSettings()

    def text(given: str | None, name: str, variable: str) -> str:
        return settings.find(name, variable)[1] if given is None else given

    folder = text(None if home is None else os.fspath(home), "home", "POOLRT_HOME") or default_home()
    folder = os.path.expanduser(folder.replace("{uid}", str(os.getuid())))
    if folder.startswith("~"):
        raise ValueError(f"home {folder!r} is not usable: there is no such user, or the user has no home folder")
    return Place(
        os.path.abspath(folder),
        text(url, "redis_url", "POOLRT_REDIS_URL") or None,
        text(namespace, "namespace", "POOLRT_NAMESPACE") or DEFAULT_NAMESPACE,
        os.path.expanduser(text(key_file, "key_file", "POOLRT_KEY_FILE")) or None,
    )


def is_read_only(given: bool | None = None) -> bool:
    """Return the argument, or else the meaning of the setting `read_only`. Raises ValueError for one that has none."""
    if given is not None:
        return given
    return is_true(*StoreSettings().find("read_only", "POOLRT_READ_ONLY"))


def is_true(variable: str, text: str) -> bool:
    """Return the meaning of a variable's text. Raises ValueError for one that has none."""
    word = text.strip().lower()
    if word not in ("", "0", "1", "false", "true", "no", "yes"):
        raise ValueError(f"{variable} is {word!r}, neither true nor false")
    return word in ("1", "true", "yes")
