"""The environment of a drill: a folder, servers, actors, a look at the store from outside, and its bounds.

Everything that a drill starts has ended at the end of its block, also when it fails.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from poolrt.cachestore import CacheStore, Stats
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.signing import load_key
from poolrt.cachestore.stats import TIERS

from ..cachestore.names import write_key
from ..cachestore.server import RedisServer
from .actor import Call, Job
from .fork_server import ForkServer
from .outcome import Outcome
from .proxy import Proxy
from .scale import Scale
from .swarm import Actor, Swarm

#: Bound, in seconds, on a call that meets a Redis that dies, freezes, forgets, fills up or fails over.
CALL_S: Final = 1.2
#: Time, in seconds, within which everything has to be in a Redis that is back.
BACK_S: Final = 5.0
#: Beyond a lease, in seconds, that a waiter may wait for a silent creator.
AFTER_LEASE_S: Final = 1.0
#: A lease, in seconds, that no pause of the machine outlasts: where it is taken over, its holder is dead.
LASTING_S: Final = 60.0
NAMESPACE: Final = "drill"
#: Time, in seconds, for which other work on the machine can keep Redis from answering in time, and the counters that rise
#: then without a failure.
_STANDSTILL_S: Final = 0.2
_OF_WAITING: Final = ("degraded", "late", "duplicates")


class DrillSkipped(Exception):
    """The drill cannot be done on this machine; the message says why."""


def _unless_gone(_: object, path: str, error: Any) -> None:
    """Raise an error of `rmtree`, except for what the watch of a server that has just ended removes at the same time."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


class Stage:
    """The environment of one drill."""

    def __init__(self, drill: str, scale: Scale) -> None:
        self.scale = scale
        self.outcome = Outcome(drill)
        self.folder = Path()
        self.random = random.Random(f"{drill} {scale.seed}" if scale.seed else drill)
        self._stack = ExitStack()
        self._stores: list[CacheStore] = []
        self._fork_server: ForkServer | None = None
        self._begin = 0.0

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="poolrt-drill-"))
        self._stack.callback(shutil.rmtree, self.folder, onerror=_unless_gone)
        self._stack.enter_context(_Metronome(self.outcome))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for store in self._stores:
            store.close()
        self._stack.close()
        self.outcome.seconds = time.monotonic() - self._begin

    # What a drill is played with

    def server(self, *settings: str, name: str = "redis", environment: dict[str, str] | None = None) -> RedisServer:
        """Start a server; it is killed at the end."""
        server = RedisServer(self.folder / name, *settings, environment=environment)
        self._stack.callback(server.kill)
        return server

    def proxy(self, server: RedisServer) -> Proxy:
        """Return a proxy before a server."""
        return self._stack.enter_context(Proxy(server.url.removeprefix("unix://")))

    def later(self, action: Callable[[], object]) -> None:
        """Do something at the end, after a failure too."""
        self._stack.callback(action)

    @property
    def key_file(self) -> Path:
        """The signing key of all stores of this drill, of any home."""
        path = self.folder / "signing.key"
        if not path.exists():
            write_key(path)
        return path

    @property
    def schema(self) -> Schema:
        """The names of these stores in Redis."""
        return Schema(NAMESPACE, load_key(str(self.key_file), make=False).fingerprint)

    def options(self, url: str | None, home: str = "home", **more: Any) -> dict[str, Any]:
        """Return options for stores of this drill; all have one signing key, in any home."""
        folder = self.folder / home
        if url is None:
            self._stack.callback(EmbeddedServer(str(folder / "redis")).down)
        return {
            "url": url,
            "home": str(folder),
            "key_file": str(self.key_file),
            "namespace": NAMESPACE,
            "lease_s": self.scale.lease_s,
            **more,
        }

    def store(self, options: dict[str, Any]) -> CacheStore:
        """Return a store of the drill's own process."""
        self._stores.append(CacheStore.connect(**options))
        return self._stores[-1]

    def swarm(self, name: str = "swarm") -> Swarm:
        """Return a swarm; all its actors are gone at the end."""
        if self._fork_server is None:
            self._fork_server = self._stack.enter_context(ForkServer())
        folder = self.folder / name
        folder.mkdir()
        return self._stack.enter_context(Swarm(folder, self._fork_server))

    def job(self, swarm: Swarm, options: dict[str, Any], **more: Any) -> Job:
        """Return a job for an actor: by default, all keys in order."""
        scale = self.scale
        fields = {"keys": list(range(scale.keys)), "size": scale.size, "create_s": scale.create_s, **more}
        return Job(options=options, log=str(swarm.log), **fields)

    def crowd(
        self, swarm: Swarm, options: dict[str, Any], shuffled: bool = False, processes: int = 0, **more: Any
    ) -> list[Actor]:
        """Add the scale's number of actors, or `processes`, with equal jobs, each in an order of its own if `shuffled`."""
        actors = []
        for _ in range(processes or self.scale.processes):
            job = self.job(swarm, options, **more)
            if shuffled:
                job = replace(job, keys=self.random.sample(job.keys, len(job.keys)))
            actors.append(swarm.add(job))
        return actors

    # What has to hold

    def expect(self, holds: bool, bound: str) -> None:
        """Note a bound that was broken."""
        if not holds:
            self.outcome.broken.append(bound)

    def note(self, text: str) -> None:
        """Say something beside the measured values."""
        self.outcome.notes.append(text)

    def count_creations(self, swarm: Swarm, least: int, most: int) -> int:
        """Record the number of creations, which has to be between two bounds."""
        number = len(swarm.creations())
        self.outcome.creations.append(number)
        self.expect(least <= number <= most, f"{number} creations instead of {_range(least, most)}")
        return number

    def check_each(self, swarm: Swarm, twice: Sequence[int] = ()) -> None:
        """Look at each key: all were created once, and those in `twice` twice."""
        expected = {number: 2 if number in twice else 1 for number in range(self.scale.keys)}
        others = {number: found for number, found in swarm.per_key().items() if found != expected.get(number)}
        self.expect(not others and len(swarm.per_key()) == len(expected), f"creations of single keys: {others}")

    def check_calls(self, actors: Sequence[Actor], longest_s: float, errors: bool = False) -> list[Call]:
        """Look at what actors got: nothing bad, no error unless `errors`, and no call longer than `longest_s`."""
        calls = [call for actor in actors for call in actor.calls()]
        asked = sum(len(actor.job.keys) for actor in actors)
        self.expect(len(calls) == asked, f"{len(calls)} of {asked} calls came back")
        if not errors:
            self.outcome.calls += asked
            self.outcome.answered += sum(call.good for call in calls)
        failed = [call for call in calls if call.error is not None]
        bad = [call for call in calls if call.error is None and not call.good]
        self.outcome.bad += len(bad)
        self.expect(not bad, f"{len(bad)} wrong payloads")
        if not errors and failed:
            self.expect(False, f"{len(failed)} calls failed, one with {failed[0].error}")
        # A call can be late because its own actor had no core, or because the one that it waited for had none.
        self.outcome.noise_s = max([self.outcome.noise_s, *(call.delayed_s for call in calls)])
        longest = max((call.seconds for call in calls), default=0.0)
        self.outcome.longest_s = max(self.outcome.longest_s, longest)
        allowed = longest_s + self.outcome.noise_s
        self.expect(longest <= allowed, f"a call of {longest:.2f} s instead of at most {longest_s:.2f} s")
        return calls

    def await_entries(self, store: CacheStore, number: int, seconds: float = BACK_S) -> float:
        """Use a store until so many entries are in Redis; take down how many there are, and return the seconds it took."""
        begin = time.monotonic()
        while True:
            store.ping()
            entries = store.stats()["entries"]
            took = time.monotonic() - begin
            if entries == number or took > seconds + self.outcome.noise_s:
                break
            time.sleep(0.02)
        self.outcome.in_redis.append(entries)
        self.expect(entries == number, f"{entries} entries in Redis instead of {number} after {took:.1f} s")
        return took

    def check_books(self, store: CacheStore, server: RedisServer) -> None:
        """Compare Redis's bookkeeping with its values, and check the signature of every entry."""
        problems = store.verify().problems
        self.expect(not problems, f"{len(problems)} problems found by verify(), one: {problems[:1]}")
        self.outcome.broken += self.misfits(server)

    def misfits(self, server: RedisServer) -> list[str]:
        """Return in what Redis's bookkeeping does not fit its values."""
        schema = self.schema
        with server.client() as client:
            values = {name.rpartition(b":")[2]: client.strlen(name) for name in client.keys(f"{schema.prefix}:v:*")}
            order = set(client.zrange(schema.order, 0, -1))
            sizes = {name: int(size) for name, size in client.hgetall(schema.sizes).items()}
            total = sizes.pop(b"bytes", 0)
        found = {
            f"{len(order)} entries listed, {len(values)} values": order == set(values),
            "listed sizes are not those of the values": sizes == values,
            f"{total} bytes listed instead of {sum(values.values())}": total == sum(values.values()),
        }
        return [misfit for misfit, fits in found.items() if not fits]

    def check_counters(self, stats: Stats, **exact: int) -> None:
        """Compare counters with what they have to be; `corrupt` and `forged` are 0 unless given."""
        found: dict[str, Any] = dict(stats)
        for name, number in {"corrupt": 0, "forged": 0, **exact}.items():
            if name in _OF_WAITING and number == 0 and found[name] and self.outcome.noise_s > _STANDSTILL_S:
                self.note(f"counter {name} is {found[name]}: nothing had a core for {self.outcome.noise_s:.2f} s")
                continue
            self.expect(found[name] == number, f"counter {name} is {found[name]} instead of {number}")

    def check_sums(self, stats: Stats, calls: Sequence[Call], swarm: Swarm, before: int = 0) -> None:
        """Compare counters with what actors saw, where no counter was lost: each call is one hit or one miss.

        `before` entries have been created, each after a miss, by other processes.
        """
        by_source = {source: sum(call.source == source for call in calls) for source in (*TIERS, "waited", "created")}
        for tier in TIERS:
            found = stats["hits"][tier]
            self.expect(found == by_source[tier], f"{found} hits in {tier} instead of {by_source[tier]}")
        failed = sum(call.error is not None for call in calls)
        self.check_counters(
            stats,
            creations=before + sum(creation.ended for creation in swarm.creations()),
            waits=by_source["waited"],
            misses=before + by_source["created"] + by_source["waited"] + failed,
        )


class _Metronome:
    """Measure how late a sleeper wakes up: on a machine that is busy with other things every bound is late as well."""

    _BEAT_S: Final = 0.01

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            begin = time.monotonic()
            if self._over.wait(self._BEAT_S):
                return
            self._outcome.noise_s = max(self._outcome.noise_s, time.monotonic() - begin - self._BEAT_S)


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
