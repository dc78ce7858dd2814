"""The drill in which the wall clock of two hosts jumps by a day under their pools, and the program that is such a host."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import IO, Any, Final

import poolrt

from .nodes import compile_clock
from .stage import Stage
from .swarm import DrillFailed
from .traffic import Traffic

_DAY_S: Final = 86_400
#: Bound, in seconds, on any call, without which a jump counts as one that made it hang.
_CALL_S: Final = 30.0
#: Bound, in seconds, on the start and the end of a host.
_LIMIT_S: Final = 90.0
#: Seconds between two looks of a host at its clock.
_LOOK_S: Final = 0.1
#: Limits of these stores and pools, in seconds: a clock that jumps by a day exceeds each of them, a busy machine none.
_OF_STORES: Final = {"lease_s": 20.0, "io_timeout_s": 10.0}
_OF_POOLS: Final = {"run_timeout_s": 60, "creation_limit_s": 60, "start_timeout_s": 60, "coordinator_timeout_s": 20}


def wall_clock_jumps(stage: Stage) -> None:
    """The wall clock of two hosts jumps by a day, forward and back, under runs and creations of both for one Redis."""
    clock = stage.folder / "clock"
    clock.write_text("0")
    library = compile_clock(stage)
    server = stage.server()
    environment = {**os.environ, "LD_PRELOAD": str(library), "DRILL_CLOCK": str(clock)}
    hosts = []
    for number in range(2):
        options = stage.options(server.url, f"host{number}", **_OF_STORES)
        chosen = {"redis_url": options.pop("url"), **options, **_OF_POOLS, "arena_bytes": 256 << 20, "threads": 1}
        command = [sys.executable, "-m", "tests.drills.pool_clock", json.dumps(chosen)]
        host = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stage.later(partial(_end, host))
        hosts.append(host)
    for host in hosts:
        _read(host.stdout)
    for offset in (_DAY_S, -_DAY_S, 2 * _DAY_S, 0):
        # A rename, so that no process reads a half of it.
        fresh = stage.folder / "clock.new"
        fresh.write_text(str(offset))
        fresh.rename(clock)
        stage.outcome.faults += 1
        time.sleep(stage.scale.outage_s)
    reports = []
    for host in hosts:
        assert host.stdin is not None
        host.stdin.write("end\n")
        host.stdin.flush()
        reports.append(_read(host.stdout))
        host.wait(_LIMIT_S)
    for number, found in enumerate(reports):
        _check(stage, number, found)
    store = stage.store(stage.options(server.url, "host0", **_OF_STORES))
    stats = store.stats()
    stage.outcome.creations.append(stats["creations"])
    # Each kernel was created once, and no lease was taken from a creator at work.
    stage.await_entries(store, stats["creations"])
    stage.check_counters(stats, takeovers=0, duplicates=0, late=0, degraded=0)


def _check(stage: Stage, number: int, found: dict[str, Any]) -> None:
    """Hold what a host reports against the bounds: nothing fails, waits for long or counts as lost."""
    stage.expect(not found["hanging"], f"host {number}: calls that hang: {found['hanging']}")
    stage.expect(found["span_s"] > 2.9 * _DAY_S, f"host {number}: its clock moved by {found['span_s']:.0f} s only")
    stage.expect(not found["lost"], f"host {number}: {found['lost']} workers were killed")
    for kind, tally in found["tallies"].items():
        failed = tally["struck"] + sum(tally["refused"].values()) + len(tally["bad"])
        stage.outcome.calls += tally["right"] + failed
        stage.outcome.answered += tally["right"]
        stage.outcome.bad += len(tally["bad"])
        stage.outcome.longest_s = max(stage.outcome.longest_s, tally["longest_s"])
        stage.expect(
            not failed, f"host {number}: {failed} calls ({kind}) failed: {tally['refused'] or tally['bad'][:1]}"
        )
        stage.expect(tally["right"] > 0, f"host {number}: no call ({kind}) was answered")
        late = tally["longest_s"] > _CALL_S + stage.outcome.noise_s
        stage.expect(not late, f"host {number}: a call ({kind}) took {tally['longest_s']:.1f} s")
        stage.note(f"host {number}: {kind}: {tally['right']} right, longest {tally['longest_s']:.2f} s")


def _end(host: subprocess.Popen[str]) -> None:
    """Kill a host, and close the connections to it."""
    host.kill()
    host.communicate()


def _read(stream: IO[str] | None) -> Any:
    """Return what a host reports next. Raises DrillFailed if it ends or takes too long."""
    assert stream is not None
    if not select.select([stream], [], [], _LIMIT_S)[0]:
        raise DrillFailed(f"a host reported nothing for {_LIMIT_S:g} s")
    line = stream.readline()
    if not line:
        raise DrillFailed("a host has exited")
    return json.loads(line)


def main(chosen: dict[str, Any]) -> None:
    """Be a host: use a pool from the first line written until the first line read, and report how that went."""
    with poolrt.Pool(workers=2, progress=False, **chosen) as pool, Traffic(pool) as traffic:
        print("{}", flush=True)
        seen = [time.time() - time.monotonic()]
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            seen.append(time.time() - time.monotonic())
        hanging = traffic.end()
        lost = pool.stats(_LIMIT_S)["workers_lost"]
        tallies = {kind: asdict(tally) for kind, tally in traffic.tallies.items()}
        print(
            json.dumps({"hanging": hanging, "lost": lost, "tallies": tallies, "span_s": max(seen) - min(seen)}),
            flush=True,
        )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
