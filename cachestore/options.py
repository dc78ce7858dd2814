"""The options of a store: arguments first, then environment variables, then defaults."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from .lru import checked_capacity

#: Entries that a process keeps in memory unless a capacity is set.
DEFAULT_CAPACITY: Final = 1024
#: Entries that a namespace keeps until its operator sets a capacity. The same in every process: a client's own default
#: would evict what others have published.
NAMESPACE_CAPACITY: Final = 1024
DEFAULT_NAMESPACE: Final = "default"
#: Names in the home folder that a namespace cannot have.
_RESERVED: Final = ("redis", "signing.key")
_CAPACITIES: Final = (
    *("capacity", "capacity_bytes", "memory_bytes", "files_bytes", "files_capacity"),
    *("store_capacity", "store_capacity_bytes"),
)
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a store; times in seconds.

    `url` None means the embedded server; `key_file` None means `signing.key` in `home`, made on first use. Each owner has
    a capacity: `capacity` entries, `capacity_bytes` (0: no limit) and `memory_bytes` bound the memory of this process,
    `files_capacity` and `files_bytes` the node's files. The namespace's own is in Redis; only with `set_store_capacity`,
    and if nobody has set one yet, `store_capacity` and `store_capacity_bytes` (0: no limit) become the namespace's. A
    silent creator keeps its lease for `lease_s`, a busy one for `creation_limit_s`; a caller waits `timeout_s` for another
    creator unless it gives a timeout. An embedded server stops after `server_idle_s` without clients (0: never). Entries
    created here contain `toolchain`. A `read_only` store writes nothing anywhere (see `read_only`).
    """

    home: str
    url: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    key_file: str | None = None
    capacity: int = DEFAULT_CAPACITY
    capacity_bytes: int = 0
    memory_bytes: int = 256 << 20
    files_bytes: int = 2 << 30
    files_capacity: int = 16384
    store_capacity: int = NAMESPACE_CAPACITY
    store_capacity_bytes: int = 0
    set_store_capacity: bool = False
    lease_s: float = 4.0
    creation_limit_s: float = 600.0
    timeout_s: float = 600.0
    io_timeout_s: float = 0.5
    redis_server: str | None = None
    server_idle_s: float = 900.0
    toolchain: str = ""
    read_only: bool = False

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace) or self.namespace in _RESERVED:
            raise ValueError(
                f"namespace {self.namespace!r} is not usable: 1 to 64 of A-Z a-z 0-9 _ . - not beginning with . or -, "
                f"and not {' or '.join(_RESERVED)}"
            )
        for name in ("home", "key_file"):
            path = getattr(self, name)
            if path is not None and ("\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path)):
                raise ValueError(f"{name} {path!r} is not usable: expect UTF-8 text without NUL")
        for name in _CAPACITIES:
            object.__setattr__(self, name, checked_capacity(getattr(self, name), name))
        if self.server_idle_s < 0:
            raise ValueError(f"server_idle_s: expect 0 or more, got {self.server_idle_s:g}")
        if min(self.lease_s, self.creation_limit_s, self.timeout_s, self.io_timeout_s) <= 0:
            raise ValueError("lease_s, creation_limit_s, timeout_s and io_timeout_s: expect more than 0 seconds")

    @property
    def memory_limit(self) -> int:
        """The most bytes of entries in the memory of this process."""
        return min(self.memory_bytes, self.capacity_bytes or self.memory_bytes)

    @property
    def initial_capacities(self) -> tuple[int, int] | None:
        """The capacities in entries and bytes that a namespace without any gets from this store, if it may set them."""
        if self.read_only or not self.set_store_capacity:
            return None
        return self.store_capacity, self.store_capacity_bytes

    @property
    def folder(self) -> str:
        """The namespace's folder on this node."""
        return os.path.join(self.home, self.namespace)

    @property
    def server_folder(self) -> str:
        """The embedded server's folder."""
        return os.path.join(self.home, "redis")


def default_home() -> str:
    """Return the user's cache folder for poolrt."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "poolrt")


def capacity_from_environment() -> int:
    """Return `POOLRT_PRIMITIVE_CACHE_CAPACITY`, or the default. Raises ValueError for what is no capacity."""
    return _number(None, "POOLRT_PRIMITIVE_CACHE_CAPACITY", DEFAULT_CAPACITY)


def options_from_environment(
    url: str | None = None,
    namespace: str | None = None,
    home: str | None = None,
    key_file: str | None = None,
    capacity: int | None = None,
    capacity_bytes: int | None = None,
    redis_server: str | None = None,
    read_only: bool | None = None,
    **more: float | str,
) -> StoreOptions:
    """Return options with arguments first, then the environment, then the defaults.

    In the home folder's path, `{uid}` stands for the number of the process's user.
    Reads `POOLRT_REDIS_URL`, `POOLRT_NAMESPACE`, `POOLRT_HOME`, `POOLRT_KEY_FILE`, `POOLRT_PRIMITIVE_CACHE_CAPACITY`,
    `POOLRT_PRIMITIVE_CACHE_BYTES`, `POOLRT_REDIS_SERVER` and `POOLRT_READ_ONLY`. `more` are other fields of
    StoreOptions. Raises ValueError for values that cannot be used, naming the variable.
    """
    environ = os.environ
    folder = os.fspath(home or environ.get("POOLRT_HOME") or default_home()).replace("{uid}", str(os.getuid()))
    return StoreOptions(
        home=os.path.abspath(folder),
        url=url or environ.get("POOLRT_REDIS_URL") or None,
        namespace=namespace or environ.get("POOLRT_NAMESPACE") or DEFAULT_NAMESPACE,
        key_file=key_file or environ.get("POOLRT_KEY_FILE") or None,
        capacity=_number(capacity, "POOLRT_PRIMITIVE_CACHE_CAPACITY", DEFAULT_CAPACITY),
        capacity_bytes=_number(capacity_bytes, "POOLRT_PRIMITIVE_CACHE_BYTES", 0),
        redis_server=redis_server or environ.get("POOLRT_REDIS_SERVER") or None,
        read_only=_flag(read_only, "POOLRT_READ_ONLY"),
        **more,  # type: ignore[arg-type]
    )


def _number(given: int | None, variable: str, default: int) -> int:
    if given is not None:
        return given
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{variable} is {text!r}, not a number") from None
    if number < 0:
        raise ValueError(f"{variable} is negative")
    return number


def _flag(given: bool | None, variable: str) -> bool:
    if given is not None:
        return given
    text = os.environ.get(variable, "").strip().lower()
    if text not in ("", "0", "1", "false", "true", "no", "yes"):
        raise ValueError(f"{variable} is {text!r}, neither true nor false")
    return text in ("1", "true", "yes")
