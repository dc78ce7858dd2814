"""All drills by name, in the order in which they are done: those of the store, then those of the pool."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from . import creators, nodes, pool_clock, pool_graphs, pool_kills, pool_memory, pool_rings, servers, soak, standalone
from .outcome import Outcome
from .scale import Scale
from .stage import DrillSkipped, Stage
from .swarm import DrillFailed

STORE: Final[dict[str, Callable[[Stage], None]]] = {
    "no fault": creators.no_fault,
    "kill creators": creators.kill_creators,
    "kill creators elsewhere": creators.kill_creators_elsewhere,
    "stop creators": creators.stop_creators,
    "creator hangs": creators.hang,
    "creator fails": creators.error,
    "clear meanwhile": creators.clear_meanwhile,
    "fork meanwhile": creators.fork_meanwhile,
    "kill redis": servers.kill_redis,
    "freeze redis": servers.freeze_redis,
    "freeze redis to the end": servers.freeze_until_all_have_ended,
    "kill embedded redis": servers.kill_embedded,
    "freeze embedded redis": servers.freeze_embedded,
    "flush": servers.flush,
    "full redis": servers.full,
    "evicting redis": servers.evicting,
    "tampered entries": servers.tampered,
    "failover": servers.fail_over,
    "read-only redis": servers.read_only,
    "loading redis": servers.slow_to_load,
    "black hole": servers.black_hole,
    "redis clock steps": nodes.redis_clock,
    "wall clock steps": nodes.wall_clock,
    "full disk": nodes.full_disk,
    "key file open to others": nodes.key_file,
}
POOL: Final[dict[str, Callable[[Stage], None]]] = {
    "kill pool processes": pool_kills.kill_all_kinds,
    "kill workers": pool_kills.kill_workers,
    "kill pool with opencl": pool_kills.kill_on_device,
    "fork server in a start": pool_kills.kill_fork_server_in_a_start,
    "lose coordinator": pool_kills.lose_coordinator,
    "function and full arena": pool_memory.function_beside_full_arena,
    "wall clock jumps": pool_clock.wall_clock_jumps,
    "mutated graphs": pool_graphs.mutate,
    "mutated opencl graphs": pool_graphs.mutate_for_device,
    "mutated rings": pool_rings.mutate_rings,
    "mutated model files": standalone.mutated_model_files,
    "interrupts": standalone.random_interrupts,
    "soak": soak.soak,
}
DRILLS: Final = {**STORE, **POOL}


def play(name: str, scale: Scale) -> Outcome:
    """Play one drill; its outcome contains every failure."""
    stage = Stage(name, scale)
    try:
        with stage:
            DRILLS[name](stage)
    except DrillSkipped as reason:
        if os.environ.get("CI"):
            stage.outcome.broken.append(f"cannot be done here: {reason}")
        else:
            stage.outcome.skipped = str(reason)
    except (DrillFailed, TimeoutError) as failure:
        stage.outcome.broken.append(str(failure))
    return stage.outcome


def describe(name: str) -> str:
    """Return what a drill does, in one line."""
    return (DRILLS[name].__doc__ or "").partition("\n")[0]
