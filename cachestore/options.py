"""The options of a store: arguments first, then environment variables, then the settings' file, then defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from .deferred_dataclass import dataclass
from .lru import checked_capacity
from .place import DEFAULT_NAMESPACE, Place, StoreSettings, is_read_only, is_true, place_from_environment

#: Entries that a process keeps in memory unless a capacity is set.
DEFAULT_CAPACITY: Final = 1024
#: Entries that a namespace keeps until its operator sets a capacity. The same in every process: a client's own default
#: would evict what others have published.
NAMESPACE_CAPACITY: Final = 1024
_UNITS: Final[Mapping[str, int]] = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_CAPACITIES: Final = (
    *("capacity", "capacity_bytes", "memory_bytes", "files_bytes", "files_capacity"),
    *("store_capacity", "store_capacity_bytes"),
)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a store; times in seconds.

    `url` None means the embedded server; `key_file` None means `signing.key` in `home`, made on first use. Each owner has
    a capacity: `capacity` entries, `capacity_bytes` (0: no limit) and `memory_bytes` bound the memory of this process,
    `files_capacity` and `files_bytes` the node's files. The namespace's own is in Redis; only with `set_store_capacity`,
    and if nobody has set one yet, `store_capacity` and `store_capacity_bytes` (0: no limit) become the namespace's. A
    silent creator keeps its lease for `lease_s`, a busy one for `creation_limit_s`; a caller waits `timeout_s` for another
    creator unless it gives a timeout. An embedded server stops after `server_idle_s` without clients (0: never). Entries
    created here contain `toolchain`. A `read_only` store writes nothing anywhere (see `read_only`). `prebuilt` is the file of
    prebuilt parts: "package" for that of the package, "none", or an absolute path (see `prebuilt`).
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
    prebuilt: str = "package"

    def __post_init__(self) -> None:
        for name in ("url", "key_file", "redis_server"):
            object.__setattr__(self, name, getattr(self, name) or None)
        self.place.check()
        if self.prebuilt not in ("package", "none") and (not os.path.isabs(self.prebuilt) or "\0" in self.prebuilt):
            raise ValueError(f"prebuilt {self.prebuilt!r} is neither 'package' nor 'none' nor an absolute path")
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
    def place(self) -> Place:
        """The folders of the namespace, its Redis and its signing key."""
        return Place(self.home, self.url, self.namespace, self.key_file)

    @property
    def folder(self) -> str:
        """The namespace's folder on this node."""
        return self.place.folder

    @property
    def server_folder(self) -> str:
        """The embedded server's folder."""
        return self.place.server_folder


def capacity_from_environment() -> int:
    """Return the capacity that variable or file set, or the default. Raises ValueError for what is no capacity."""
    return _capacity(StoreSettings())


def options_from_environment(
    url: str | None = None,
    namespace: str | None = None,
    home: str | None = None,
    key_file: str | None = None,
    capacity: int | None = None,
    capacity_bytes: int | None = None,
    redis_server: str | None = None,
    read_only: bool | None = None,
    prebuilt: str | None = None,
    **more: float | str,
) -> StoreOptions:
    """Return options with arguments first, then the environment, then the file that `POOLRT_CONFIG` names, then the defaults.

    An argument of None counts as not given; an empty text is the built-in way: the embedded server, a key of the home folder.
    In the home folder's path, `{uid}` stands for the number of the process's user.
    Reads `POOLRT_REDIS_URL`, `POOLRT_NAMESPACE`, `POOLRT_HOME`, `POOLRT_KEY_FILE`, `POOLRT_PRIMITIVE_CACHE_CAPACITY`,
    `POOLRT_PRIMITIVE_CACHE_BYTES`, `POOLRT_REDIS_SERVER`, `POOLRT_READ_ONLY` and `POOLRT_PREBUILT`. `more` are other fields of
    StoreOptions, each with the variable of its name, such as `POOLRT_LEASE_S`, except `timeout_s` and `toolchain`. Raises
    ValueError for values that cannot be used, naming the variable.
    """
    settings = StoreSettings()
    for name, parse in _PARSERS.items():
        if name not in more:
            source, text = settings.find(name, f"POOLRT_{name.upper()}")
            if text.strip():
                more[name] = parse(source, text.strip())
    place = place_from_environment(url, namespace, home, key_file)
    return StoreOptions(
        home=place.home,
        url=place.url,
        namespace=place.namespace,
        key_file=place.key_file,
        capacity=_capacity(settings) if capacity is None else capacity,
        capacity_bytes=_capacity_bytes(settings) if capacity_bytes is None else capacity_bytes,
        redis_server=_server(settings) if redis_server is None else redis_server,
        read_only=is_read_only(read_only),
        prebuilt=prebuilt or settings.find("prebuilt", "POOLRT_PREBUILT")[1] or "package",
        **more,  # type: ignore[arg-type]
    )


def _capacity(settings: StoreSettings) -> int:
    source, text = settings.find("capacity", "POOLRT_PRIMITIVE_CACHE_CAPACITY")
    return _to_count(source, text.strip()) if text.strip() else DEFAULT_CAPACITY


def _capacity_bytes(settings: StoreSettings) -> int:
    source, text = settings.find("capacity_bytes", "POOLRT_PRIMITIVE_CACHE_BYTES")
    return _to_size(source, text.strip()) if text.strip() else 0


def _server(settings: StoreSettings) -> str:
    return os.path.expanduser(settings.find("redis_server", "POOLRT_REDIS_SERVER")[1])


def _to_count(variable: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{variable} is {text!r}, not a number") from None
    if number < 0:
        raise ValueError(f"{variable} is negative")
    return number


def _to_size(variable: str, text: str) -> int:
    """Return a number of bytes, which may have a unit."""
    unit = text.lstrip("0123456789 ")
    if unit.upper() not in _UNITS:
        raise ValueError(f"{variable} is {text!r}, not a number of bytes such as '512 MiB'")
    return _to_count(variable, text.removesuffix(unit).strip()) * _UNITS[unit.upper()]


def _to_seconds(variable: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"{variable} is {text!r}, not a number of seconds") from None
    least = 0.0 if variable == "POOLRT_SERVER_IDLE_S" else 1e-3
    if not least <= seconds < float("inf"):
        raise ValueError(f"{variable} is {text!r}: expect {'0 or more' if not least else 'more than 0'} seconds")
    return seconds


#: Options without an argument of their own -> how the text of the variable is read.
_PARSERS: Final[Mapping[str, Callable[[str, str], float]]] = {
    **dict.fromkeys(("memory_bytes", "files_bytes", "store_capacity_bytes"), _to_size),
    **dict.fromkeys(("files_capacity", "store_capacity"), _to_count),
    **dict.fromkeys(("lease_s", "creation_limit_s", "io_timeout_s", "server_idle_s"), _to_seconds),
    "set_store_capacity": is_true,
}
