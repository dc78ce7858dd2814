"""Drills in which processes of a pool are killed or stopped while clients use it."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

import numpy as np

import poolrt

from ..poolrt.pool.processes import below, children, descendants
from .delay import all_delayed_s
from .pools import BACK_S, PAUSES_S, ROUND, Hunt, await_that, check_memory, check_traffic, expect_gone, pool_of
from .stage import DrillSkipped, Stage
from .traffic import WORK, Traffic, product_graph

#: Silence, in seconds, after which a coordinator is lost to the clients of these drills.
_SILENCE_S: Final = 1.0
#: Bound, in seconds, on what clients notice by themselves beyond that.
_NOTICE_S: Final = 1.0
#: Seconds between two kills of processes with a device: each needs about a second until its driver is ready.
_DEVICE_PAUSES_S: Final = (0.0, 0.2, 2.0, 5.0)
#: So many times fewer processes with a device are killed.
_FEWER: Final = 10


def kill_all_kinds(stage: Stage) -> None:
    """Kill (-9) workers, creators and fork servers at random moments under runs, functions and loads."""
    _kill(stage, workers=3, engine="cpu", kills=stage.scale.kills, pauses_s=PAUSES_S)


def kill_workers(stage: Stage) -> None:
    """Kill (-9) workers only, ready ones, under runs and functions."""
    with pool_of(stage, workers=3) as pool, Traffic(pool, WORK) as traffic:
        hunt = Hunt(stage, pool)
        for count in _rounds(stage.scale.kills):
            hunt.kill(count, {"worker": 1})
            hunt.await_back()
        traffic.once()
        check_traffic(stage, traffic)
        check_memory(stage, pool, traffic)


def kill_on_device(stage: Stage) -> None:
    """The same kills, of fewer processes, on a pool whose engine is an OpenCL device."""
    from poolrt.workers.engines.opencl import count

    if not count():
        raise DrillSkipped("no OpenCL device")
    _kill(stage, workers=2, engine="opencl", kills=max(1, stage.scale.kills // _FEWER), pauses_s=_DEVICE_PAUSES_S)


def _kill(stage: Stage, workers: int, engine: str, kills: int, pauses_s: tuple[float, ...]) -> None:
    with pool_of(stage, workers=workers, engine=engine) as pool, Traffic(pool) as traffic:
        hunt = Hunt(stage, pool)
        for count in _rounds(kills):
            hunt.kill(count, pauses_s=pauses_s)
            hunt.await_back()
        # Nothing is left of it: each kind of call, creation included, succeeds at once.
        traffic.once()
        check_traffic(stage, traffic)
        check_memory(stage, pool, traffic)
        stage.note(f"killed: {', '.join(f'{number} {role}' for role, number in hunt.killed.items())}")


def kill_fork_server_in_a_start(stage: Stage) -> None:
    """Kill (-9) the fork server once while the workers of a new pool start: nothing is refused, and all get there."""
    graph, weights = product_graph()
    x = np.ones((32, 256), np.float32)
    for number in range(5 * stage.scale.hits):
        with pool_of(stage, workers=8) as pool:
            pid = pool.stats()["pid"]
            await_that(lambda pid=pid: bool(below(pid, 2)), BACK_S)  # type: ignore[misc]
            time.sleep(0.003 * (number % 10))
            os.kill(children(pid)[0], signal.SIGKILL)
            stage.outcome.faults += 1
            begin = time.monotonic()
            hunt = Hunt(stage, pool)
            try:
                y = pool.load(graph).run(x=x)["y"]
            except poolrt.errors.PoolError as error:
                stage.expect(False, f"refused after one kill: {error}")
            else:
                stage.outcome.answered += 1
                stage.expect(np.allclose(y, np.maximum(x @ weights, 0), 1e-3, 1e-3), "a wrong result")
            stage.outcome.calls += 1
            stage.outcome.longest_s = max(stage.outcome.longest_s, time.monotonic() - begin)
            hunt.await_back()


def lose_coordinator(stage: Stage) -> None:
    """SIGSTOP and kill (-9) of a coordinator under runs, functions and loads: each call ends in time, nothing is left."""
    for number in range(stage.scale.hits):
        for signal_number, silence_s in ((signal.SIGSTOP, _SILENCE_S), (signal.SIGKILL, 0.0)):
            with pool_of(stage, workers=2, coordinator_timeout_s=_SILENCE_S) as pool, Traffic(pool) as traffic:
                pid = pool.stats()["pid"]
                time.sleep(0.2 + 0.1 * number)
                family = descendants(pid)
                begin, delayed_s = time.monotonic(), all_delayed_s()
                os.kill(pid, signal_number)
                stage.outcome.faults += 1
                hanging = traffic.end()
                stage.expect(not hanging, f"calls that hang: {hanging}")
                whole = traffic.total(*traffic.tallies)
                stage.outcome.bad += len(whole.bad)
                stage.expect(not whole.bad, f"{len(whole.bad)} bad answers, one: {whole.bad[:1]}")
                late = max(traffic.lost.values(), default=begin) - begin
                stage.outcome.back_s = max(stage.outcome.back_s, late)
                # One thread wakes another: what each waited for a core adds up.
                delayed_s = max(0.0, traffic.delayed_s - delayed_s)
                allowed = silence_s + _NOTICE_S + max(delayed_s, stage.outcome.noise_s)
                stage.expect(late <= allowed, f"noticed after {late:.2f} s instead of {silence_s + _NOTICE_S:g} s")
            expect_gone(stage, family, "a lost coordinator")


def _rounds(kills: int) -> list[int]:
    """Divide a number of kills into rounds."""
    return [min(ROUND, kills - done) for done in range(0, kills, ROUND)]
