"""`PoolrtPlugin`: a Dask worker plugin that gives each worker the cluster's cache, and a runtime for graphs."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from distributed import WorkerPlugin

from poolrt.cachestore import CacheStore, StoreError
from poolrt.cachestore.errors import KeyFileNotMade
from poolrt.cachestore.options import StoreOptions
from poolrt.cachestore.signing import check_key, load_key
from poolrt.numba.process_store import process_store
from poolrt.settings import Settings, SettingsError

from .errors import ClusterError, KeysDiffer
from .runtime import Runtime
from .worker_settings import AdoptedSettings, install_key, open_stores

if TYPE_CHECKING:
    from distributed import Worker

#: The plugin's name on scheduler and workers: a second one replaces the first.
NAME: Final = "poolrt"
#: Longest that a task waits for the setup of its worker's plugin, in seconds.
_SETUP_S: Final = 60.0

_log: Final = logging.getLogger("poolrt")


class PoolrtPlugin(WorkerPlugin):
    """Gives each worker of a Dask cluster one shared cache, and runs graphs there: ``client.register_plugin(PoolrtPlugin())``.

    Functions of `poolrt.njit` and `poolrt.kernel`, executors and graphs in tasks then find and create kernels once for the
    cluster. Workers that join later are set up too. The settings hold for the whole process of a worker, as its ``POOLRT_*``
    variables; what is not given here comes from the worker's own environment.
    """

    name = NAME
    idempotent = False

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        home: str | os.PathLike[str] | Callable[[Worker], str] | None = None,
        namespace: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key: str | bytes | None = None,
        read_only: bool | None = None,
        threads: int | None = None,
        workers: int = 0,
    ) -> None:
        """Set up workers with these settings of the cache.

        ``home`` is a folder of the worker's machine, or a function that returns one for a worker. ``key_file`` names the
        file with the signing key there. ``key`` is a key file's content, which the worker writes into its home: it travels
        with the plugin through the scheduler, so use it only if the cluster's connections are encrypted. ``threads`` is
        how many threads compute one batch (default: the worker's), ``workers`` a number of processes for a pool beside
        each worker; 0 runs graphs in the worker itself. Raises SettingsError or ValueError naming the setting.
        """
        given: dict[str, Any] = {
            "redis_url": redis_url,
            "home": None if callable(home) else home,
            "namespace": namespace,
            "key_file": key_file,
            "read_only": read_only,
            "threads": threads,
            "workers": workers,
        }
        settings = Settings.load(environ={}, **given)
        if key is not None and (key_file is not None or read_only):
            other = (
                "key_file: name one of the two" if key_file is not None else "read_only: name a key file that exists"
            )
            raise SettingsError("argument", "key", f"cannot be given with {other}")
        names = ("redis_url", "home", "namespace", "key_file", "read_only")
        self._values = {
            name: str(int(value)) if isinstance(value := getattr(settings, name), bool) else value
            for name in names
            if given[name] is not None
        }
        self._home = home if callable(home) else None
        self._key = _material(key)
        self._threads = settings.threads
        self._workers = settings.workers
        #: Names what the workers of this registration agree on.
        self._registration = uuid.uuid4().hex
        self._begin()

    def __repr__(self) -> str:
        return f"<PoolrtPlugin: {', '.join(sorted(self._values)) or 'settings of the workers'}>"

    def __getstate__(self) -> dict[str, Any]:
        here = ("_set_up", "_runtime", "_adopted", "_failure", "facts")
        return {name: value for name, value in vars(self).items() if name not in here}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _begin(self) -> None:
        self._set_up = threading.Event()
        self._runtime: Runtime | None = None
        self._adopted: AdoptedSettings | None = None
        self._failure = ""
        #: What `stats` says of this worker: home, namespace, key, and whether Redis answered.
        self.facts: dict[str, Any] = {}

    async def setup(self, worker: Worker) -> None:
        """Set up the process of a worker. Raises SettingsClash, KeysDiffer, KeyFileRefused and ValueError."""
        try:
            options, unreachable = await asyncio.to_thread(self._enter, worker)
            if unreachable:
                _warn(worker, unreachable)
            if options.url is not None and self.facts["key"]:
                await self._compare_keys(worker, options)
            self._runtime = Runtime(
                self._threads or max(1, worker.state.nthreads // max(1, self._workers)), self._workers
            )
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            if self._adopted is not None:
                self._adopted.withdraw()
            raise
        finally:
            self._set_up.set()

    async def teardown(self, worker: Worker) -> None:
        """Drop the worker's graphs, and end its pool and threads. Settings that a store has been opened with stay."""
        runtime, self._runtime = self._runtime, None
        self._failure = self._failure or "the plugin was removed, or the worker is closing"
        self._set_up.set()
        if runtime is not None:
            await asyncio.to_thread(runtime.close)
        for store in open_stores():
            await asyncio.to_thread(store.close)
        if self._adopted is not None:
            self._adopted.withdraw()

    def runtime(self, address: str) -> Runtime:
        """Return the runtime of the worker with this address. Raises ClusterError if it was not set up."""
        done = self._set_up.wait(_SETUP_S)
        runtime = self._runtime
        if runtime is None:
            reason = (self._failure or "its setup was interrupted") if done else f"not done within {_SETUP_S:.0f} s"
            raise ClusterError(f"the plugin of worker {address} cannot be used: {reason}")
        return runtime

    def _enter(self, worker: Worker) -> tuple[StoreOptions, str]:
        """Set the variables; return the options, and the text of a warning if Redis does not answer."""
        values = dict(self._values)
        if self._home is not None:
            values["home"] = os.fspath(self._home(worker))
        if self._key is not None:
            values["key_file"] = ""  # the home's own
        values.update({name: os.path.expanduser(values[name]) for name in ("home", "key_file") if name in values})
        self._adopted = AdoptedSettings(values)
        options = self._adopted.options
        if self._key is not None:
            install_key(options.home, self._key)
        path = options.key_file or os.path.join(options.home, "signing.key")
        try:
            key = load_key(path, make=not options.read_only).id.hex()
        except KeyFileNotMade:
            key = ""  # the store warns that it keeps nothing
        self.facts = {"home": options.home, "namespace": options.namespace, "key": key, "redis": "embedded"}
        if options.url is None:
            return options, ""
        with CacheStore(options) as store:
            status = store.status()
        self.facts["redis"] = status.url if status.reachable else f"{status.url} does not answer"
        if status.reachable:
            return options, ""
        return options, (
            f"{status.url} cannot be reached from Dask workers ({status.reason}): they share kernels on each machine only, until "
            "it answers; poolrt.dask.stats(client) counts this as degraded"
        )

    async def _compare_keys(self, worker: Worker, options: StoreOptions) -> None:
        """Raise KeysDiffer if a worker that was set up before has another key for the same Redis."""
        place, scheduler = [NAME, self._registration, options.namespace], cast(Any, worker.scheduler)
        await scheduler.set_metadata(keys=[*place, worker.address], value=self.facts["key"])
        # Written before it is read: of two workers at once, at least one sees the other.
        known: dict[str, str] = await scheduler.get_metadata(keys=place)
        for address, key in known.items():
            if key and key != self.facts["key"]:
                await scheduler.set_metadata(keys=[*place, worker.address], value="")
                raise KeysDiffer(
                    f"worker {worker.address} has the signing key {self.facts['key']}, worker {address} has {key}: they would "
                    "share nothing; give all of them one key file (key_file=, or POOLRT_KEY_FILE)"
                )


def _material(key: str | bytes | None) -> bytes | None:
    """Return a key's bytes. Raises ValueError, without the key, for one that is too short, too long or could be guessed."""
    if key is None:
        return None
    if not isinstance(key, str | bytes):
        raise SettingsError("argument", "key", f"expected text or bytes, got {type(key).__name__}")
    material = (key.encode() if isinstance(key, str) else bytes(key)).removesuffix(b"\n")
    try:
        check_key(material)
    except ValueError as error:
        raise SettingsError("argument", "key", str(error)) from None
    return material


def _warn(worker: Worker, text: str) -> None:
    """Write a warning to the worker's log, and have the cluster's clients warn, as `distributed.warn` does in tasks."""
    _log.warning(text)
    worker.log_event("warn", {"message": pickle.dumps(text), "category": pickle.dumps(RuntimeWarning)})


def store_counts() -> dict[str, Any]:
    """Return the counters of the namespace of this process, over all its processes; empty if they cannot be read."""
    try:
        return dict(process_store().stats())
    except (StoreError, OSError):
        return {}
