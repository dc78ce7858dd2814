"""Settings: every knob of poolrt in one frozen record, and the reader of the environment.

Sources, nearest first: an argument, a ``POOLRT_*`` variable, a TOML file (``--config`` or ``POOLRT_CONFIG``), the
defaults below. A value that is wrong is refused here, with the place it came from, before any process or socket exists.
Nothing heavy is imported: every warm start imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field, fields

from .setting_kinds import KIB, Choice, Flag, Instructions, Integer, Kind, Seconds, Size, Text, is_text

if TYPE_CHECKING:
    from pathlib import Path


class SettingsError(ValueError):
    """A setting is unknown, of the wrong type or out of range. Raised while settings are read.

    ``source`` is the file, the variable or "argument"; ``key`` is the setting; the message says what is expected.
    """

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(source, key, reason)
        self.source = source
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.key}: {self.reason}" if self.key else f"{self.source}: {self.reason}"


def _knob(default: Any, section: str, kind: Kind, env: str = "") -> Any:
    """Declare a setting: default, table in the TOML file, what it accepts, its variable where not POOLRT_<NAME>."""
    return field(default=default, metadata={"section": section, "kind": kind, "env": env})


_PATH: Final = Text("path as UTF-8 text without NUL")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured. Make one with `load`; an empty text means "not set, use the built-in way"."""

    #: Redis server as redis://, rediss:// or unix:// URL; empty: the embedded server of this user.
    redis_url: str = _knob(
        "", "cache", Text("URL starting with redis://, rediss:// or unix://, or ''", r"((rediss?|unix)://.+)?")
    )
    #: Binary for the embedded server; empty: valkey-server or redis-server of the system, else the bundled one.
    redis_server: str = _knob("", "cache", _PATH)
    #: Time without a client after which the embedded server stops; its data stay. 0: never.
    server_idle_s: float = _knob(900.0, "cache", Seconds(0, 31536000))
    #: Prefix that keeps the entries of different uses of one server apart.
    namespace: str = _knob(
        "default",
        "cache",
        Text("1 to 64 of A-Z a-z 0-9 _ . -, not starting with . or -", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"),
    )
    #: Whether to read and verify only: nothing is written to Redis or to files, and what is missing stays in the process.
    read_only: bool = _knob(False, "cache", Flag())
    #: Folder of the key file, the embedded server and the node's files; empty: $XDG_CACHE_HOME/poolrt, ~/.cache/poolrt.
    #: ``{uid}`` stands for the number of the process's user.
    home: str = _knob("", "cache", _PATH)
    #: File with the secret that entries are signed with; empty: made in the home folder on first use, mode 0600.
    key_file: str = _knob("", "cache", _PATH)
    #: File of prebuilt kernels: "package" is the one in the package, if it has one, "none" turns them off.
    prebuilt: str = _knob("package", "cache", Text("'package', 'none' or an absolute path", r"package|none|/[^\0]*"))
    #: Most primitives that one process keeps in memory; 0: none.
    capacity: int = _knob(1024, "cache", Integer(0), "POOLRT_PRIMITIVE_CACHE_CAPACITY")
    #: Most bytes of entries that one process keeps in memory, beside `memory_bytes`; 0: no further limit.
    capacity_bytes: int = _knob(0, "cache", Size(0), "POOLRT_PRIMITIVE_CACHE_BYTES")
    #: Bytes that one process keeps in memory.
    memory_bytes: int = _knob(256 * KIB**2, "cache", Size(0))
    #: Entries that the node keeps in files.
    files_capacity: int = _knob(16384, "cache", Integer(0))
    #: Bytes that the node keeps in files.
    files_bytes: int = _knob(2 * KIB**3, "cache", Size(0))
    #: Bytes of models' weights, in the layouts of plans, that the node keeps in files for all its processes; 0: none.
    constant_files_bytes: int = _knob(8 * KIB**3, "cache", Size(0))
    #: Whether a namespace without a capacity gets `store_capacity`; otherwise `poolrt cache capacity` sets one.
    set_store_capacity: bool = _knob(False, "cache", Flag())
    #: Entries that the namespace keeps for all its nodes, if `set_store_capacity`.
    store_capacity: int = _knob(1024, "cache", Integer(0))
    #: Bytes that the namespace keeps, if `set_store_capacity`; 0: no limit in bytes.
    store_capacity_bytes: int = _knob(0, "cache", Size(0))
    #: Term of a creator's lease; a dead creator delays its waiters by this at most.
    lease_s: float = _knob(4.0, "cache", Seconds(0.1, 600))
    #: Longest that one creation may take; then its creator loses the lease, and counts as dead.
    creation_limit_s: float = _knob(600.0, "cache", Seconds(1, 86400))
    #: Bound on one exchange with Redis.
    io_timeout_s: float = _knob(0.5, "cache", Seconds(0.01, 60))

    #: Where `poolrt serve` listens; empty: poolrt.sock in $XDG_RUNTIME_DIR, or in the home folder where there is none.
    socket: str = _knob("", "pool", _PATH)
    #: Worker processes; 0: one for each core.
    workers: int = _knob(0, "pool", Integer(0, 1024))
    #: Threads of one worker; 0: cores divided by workers.
    threads: int = _knob(0, "pool", Integer(0, 1024))
    #: Engine that graphs run on where they name none.
    engine: str = _knob("cpu", "pool", Text("'cpu', 'opencl' or 'opencl:INDEX'", r"cpu|opencl(:[0-9]+)?"))
    #: Shared memory for tensors; pages are taken as they are touched.
    arena_bytes: int = _knob(4 * KIB**3, "pool", Size(KIB**2, 64 * KIB**4))
    #: Most bytes that an ONNX model may compute from its constants while it is imported, beside its own data.
    constant_bytes: int = _knob(768 * KIB**2, "pool", Size(0))
    #: Most bytes that a `poolrt.onnx.InferenceSession` keeps for plans and weights; it drops plans of sizes used longest ago.
    plan_bytes: int = _knob(KIB**3, "pool", Size(KIB**2))
    #: Longest that the coordinator, a worker, a creator or an OpenCL driver may take to come up.
    start_timeout_s: float = _knob(60.0, "pool", Seconds(1, 3600))
    #: Longest that a coordinator may give no sign of life to a client that waits; then it counts as lost.
    coordinator_timeout_s: float = _knob(10.0, "pool", Seconds(0.1, 3600))
    #: Longest that a client waits for a server that was lost to listen again, counted once for each loss. 0: not at all.
    reconnect_timeout_s: float = _knob(10.0, "pool", Seconds(0, 3600))
    #: Whether models keep their graph and constants, to load them again after a fork or a restart of the server.
    keep_graphs: bool = _knob(True, "pool", Flag())
    #: Longest that one run may take; then its worker counts as dead. 0: as long as it likes.
    run_timeout_s: float = _knob(3600.0, "pool", Seconds(0, 31536000))
    #: Times that a run is repeated after its worker died, before it is given up.
    retries: int = _knob(2, "pool", Integer(0))
    #: Microseconds that a client and a worker look for each other's next step before they sleep, and only while the other one
    #: was last seen on another processor. 0: they sleep at once; 50 makes short runs much faster where processors are free.
    spin_us: int = _knob(0, "pool", Integer(0, 1000))
    #: Strongest instructions that kernels are made for, to share entries with weaker hosts: a level such as x86-64-v3, the last
    #: two also with extensions, as x86-64-v4+avx512_vnni; empty: all of this host. Engines without a pool keep it too.
    max_cpu_isa: str = _knob("", "pool", Instructions())
    #: Functions that a worker calls before it is replaced by a new one; 0: as many as come.
    max_tasks_per_child: int = _knob(0, "pool", Integer(0))
    #: Whether clients may send code to the workers: plain functions, pickled, and kernels of their own in graphs.
    functions: bool = _knob(True, "pool", Flag())

    #: Whether loading shows its progress on a terminal or in a notebook.
    progress: bool = _knob(True, "log", Flag())
    #: Which lines about primitives are written to standard error: 1 executions, 2 creations too; see `poolrt.set_verbose`.
    verbose: str = _knob("0", "log", Choice(("0", "1", "2", "profile", "profile_create", "profile_exec")))

    @classmethod
    def load(
        cls,
        config: str | os.PathLike[str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        **arguments: object,
    ) -> Settings:
        """Return the settings from arguments, environment, configuration file and defaults, in this order.

        An argument that is None counts as not given. An empty variable unsets the file's value: the setting has its
        default, and an empty ``POOLRT_CONFIG`` names no file. ``config`` defaults to ``POOLRT_CONFIG``. Raises SettingsError,
        naming source and key, for an unknown, ill-typed or out-of-range value, for an unreadable file, and if the user's
        home folder is unknown or its path is not UTF-8.
        """
        env = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        path = config_file(config, env)
        if path is not None:
            values.update(_from_file(path))
        for name, knob in _KNOBS.items():
            variable = env_name(name)
            if env.get(variable):
                values[name] = _parse(knob.metadata["kind"], env[variable], variable, "")
            elif variable in env:
                values.pop(name, None)
        for name, value in arguments.items():
            if name not in _KNOBS:
                raise SettingsError("argument", name, _unknown("setting", name, sorted(_KNOBS)))
            if value is not None:
                plain = os.fspath(value) if isinstance(value, os.PathLike) else value
                values[name] = _parse(_KNOBS[name].metadata["kind"], plain, "argument", name)
        settings = cls(**values)
        settings._check_home(env)
        return settings

    def _check_home(self, env: Mapping[str, str]) -> None:
        remedy = "set POOLRT_HOME to a folder whose path is UTF-8"
        try:
            home = self._home()
        except RuntimeError as error:
            raise SettingsError("HOME", "", f"this user has no home folder: {remedy}") from error
        if not is_text(home):
            source = "XDG_CACHE_HOME" if env.get("XDG_CACHE_HOME") else "HOME"
            raise SettingsError(source, "", f"the folder {home!r} is not UTF-8: {remedy}")

    @property
    def home_path(self) -> Path:
        """The folder that holds the key file, the embedded server and the node's files (not created here)."""
        from pathlib import Path

        return Path(self._home())

    def _home(self) -> str:
        """Return the folder as text: `pathlib` would be a part of each start, with five modules that it imports."""
        if self.home:
            found = os.path.expanduser(self.home.replace("{uid}", str(os.getuid())))
        else:
            found = os.path.join(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "poolrt")
        if found.startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        if os.path.normpath(found) == found:
            return found
        from pathlib import Path

        return str(Path(found))

    @property
    def socket_path(self) -> Path:
        """The path at which `poolrt serve` listens: absolute, in a folder that is this user's alone unless one is set."""
        from pathlib import Path

        if self.socket:
            return Path(self.socket).expanduser().absolute()
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        folder = Path(runtime) if os.path.isabs(runtime) and os.path.isdir(runtime) else self.home_path.absolute()
        return folder / "poolrt.sock"

    @property
    def constants_folder(self) -> str:
        """The folder of the weights that processes of the node share."""
        return os.path.abspath(os.path.join(self._home(), self.namespace, "constants"))

    def store_arguments(self) -> dict[str, Any]:
        """Return the arguments of `poolrt.cachestore.CacheStore.connect` that say the same. An empty text is the built-in way."""
        same = ("namespace", "read_only", "prebuilt")
        own = ("capacity", "capacity_bytes", "memory_bytes", "files_bytes", "files_capacity")
        shared = ("store_capacity", "store_capacity_bytes", "set_store_capacity")
        times = ("lease_s", "creation_limit_s", "io_timeout_s", "server_idle_s")
        return {
            "url": self.redis_url,
            "home": self._home(),
            "key_file": os.path.expanduser(self.key_file),
            "redis_server": os.path.expanduser(self.redis_server),
            **{name: getattr(self, name) for name in (*same, *own, *shared, *times)},
        }

    def constant_files_arguments(self) -> dict[str, Any]:
        """Return the arguments of `poolrt.cachestore.constant_files.ConstantFiles`; none if weights are not shared."""
        if not self.constant_files_bytes:
            return {}
        return {
            "folder": self.constants_folder,
            "capacity_bytes": self.constant_files_bytes,
            "read_only": self.read_only,
        }


_KNOBS: Final = {knob.name: knob for knob in fields(Settings)}


def config_file(config: str | os.PathLike[str] | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the configuration file that is read: the one given, else that of ``POOLRT_CONFIG``, else none."""
    named = config if config is not None else (os.environ if environ is None else environ).get("POOLRT_CONFIG")
    if not named:
        return None
    from pathlib import Path

    return Path(named).expanduser()


def env_name(setting: str) -> str:
    """Return the environment variable that carries a setting."""
    return str(_KNOBS[setting].metadata["env"]) or f"POOLRT_{setting.upper()}"


def section(setting: str) -> str:
    """Return the table of the configuration file that holds a setting."""
    return str(_KNOBS[setting].metadata["section"])


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the ``POOLRT_*`` variables that no setting reads, sorted: most often a spelling mistake."""
    known = {env_name(name) for name in _KNOBS} | {"POOLRT_CONFIG"}
    return sorted(
        name
        for name in (os.environ if environ is None else environ)
        if name.startswith("POOLRT_") and name not in known
    )


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Return the reason why a name is refused: the names that exist, and the nearest of them."""
    from .spelling import hint

    return f"no such {kind}; known: {', '.join(known)}{hint(name, known)}"


def _parse(kind: Kind, value: object, source: str, key: str) -> Any:
    try:
        return kind.parse(value)
    except ValueError:
        raise SettingsError(source, key, f"expected {kind.expected}, got {value!r}") from None


def _from_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise SettingsError(str(path), "", f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(str(path), "", f"is not TOML: {error}") from error
    except ValueError as error:
        raise SettingsError(repr(str(path)), "", f"cannot be read: {error}") from error
    sections = sorted({section(name) for name in _KNOBS})
    values: dict[str, Any] = {}
    for table, entries in tables.items():
        if table not in sections:
            raise SettingsError(str(path), f"[{table}]", _unknown("table", table, sections))
        if not isinstance(entries, dict):
            raise SettingsError(str(path), table, f"expected a table [{table}], got {entries!r}")
        known = [name for name in _KNOBS if section(name) == table]
        for key, value in entries.items():
            if key not in known:
                raise SettingsError(str(path), f"[{table}] {key}", _unknown("setting", key, known))
            kind: Kind = _KNOBS[key].metadata["kind"]
            if isinstance(value, str) and not isinstance(kind, Text | Choice | Size | Instructions):
                raise SettingsError(str(path), f"[{table}] {key}", f"expected {kind.expected}, got {value!r}")
            values[key] = _parse(kind, value, str(path), f"[{table}] {key}")
    return values
