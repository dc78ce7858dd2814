"""All drills by name, in the order in which they are done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from . import creators, nodes, servers
from .outcome import Outcome
from .scale import Scale
from .stage import DrillSkipped, Stage
from .swarm import DrillFailed

DRILLS: Final[dict[str, Callable[[Stage], None]]] = {
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


def play(name: str, scale: Scale) -> Outcome:
    """Do one drill; whatever goes wrong is in its outcome."""
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
