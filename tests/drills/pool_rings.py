"""The drill in which clients write damaged entries to their rings: each is disconnected, and others are unharmed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

import poolrt

from .pools import await_that, check_traffic, served
from .stage import Stage
from .swarm import DrillFailed
from .traffic import CALL_S, WORK, Traffic

#: Clients that attack at a time. The coordinator lets a process that was disconnected wait, so one alone would take long.
_ATTACKERS: Final = 4
#: The part of the damages after which memory is looked at for the first time.
_FIRST: Final = 5
#: Bytes that a process of the pool may have more at the end, and descriptors that the coordinator may have more.
_SPARE_BYTES: Final = 16 << 20
_SPARE_FDS: Final = 12
#: Seconds within which the coordinator has taken back what the attackers held.
_TAKEN_BACK_S: Final = 5.0
#: Bytes of another client's that are looked for wherever an attacker can read.
_SECRET: Final = 16
_MARK: Final = 1 << 20


def mutate_rings(stage: Stage) -> None:
    """Write damaged entries, words and messages of rings: only their client is disconnected, nothing grows."""
    secret = stage.random.randbytes(_SECRET)
    expected = np.frombuffer(secret * (_MARK // _SECRET), np.uint8)
    made, ended = Counter[str](), Counter[str]()
    with (
        served(stage, workers=2, run_timeout_s=20) as path,
        poolrt.connect(path, reconnect_timeout_s=0) as witness,
        poolrt.connect(path, reconnect_timeout_s=0) as orderer,
    ):
        mark = witness.empty(_MARK, "uint8")
        mark[:] = expected
        with (
            Traffic(witness, WORK, pause_s=0.01) as traffic,
            Traffic(orderer, ("urgent",), pause_s=0.01) as urgent,
        ):
            part = -(-stage.scale.mutations // _FIRST)
            _attack(stage, path, part, secret, made, ended)
            first = _look(stage, witness)
            _attack(stage, path, stage.scale.mutations - part, secret, made, ended)
            held = _look(stage, witness)
            echoed = witness.submit(bytes, secret).result(CALL_S)
            stage.expect(echoed == secret, "a call of another client was harmed")
            check_traffic(stage, traffic, share=1.0)
            check_traffic(stage, urgent)
            ordered = urgent.total("urgent")
            stage.expect(
                ordered.right == ordered.asked, f"{ordered.right} of {ordered.asked} rows of calls were in order"
            )
            stage.expect(bool((mark == expected).all()), "another client's memory was written to")
            stats = witness.stats(CALL_S)
            stage.expect(not stats["workers_lost"], f"{stats['workers_lost']} workers were lost")
    for name, (bytes_before, fds_before) in first.items():
        nbytes, fds = held[name]
        stage.note(
            f"{name}: {bytes_before / 2**20:.1f} MiB after a {_FIRST}th of the damages, {nbytes / 2**20:.1f} MiB in the end"
        )
        stage.expect(nbytes <= bytes_before + _SPARE_BYTES, f"{name} has grown from {bytes_before} to {nbytes} bytes")
        stage.expect(fds <= fds_before + _SPARE_FDS, f"{name} has {fds} descriptors instead of {fds_before}")
    stage.outcome.faults = made.total()
    stage.note(", ".join(f"{count} {kind}" for kind, count in sorted(made.items())))
    stage.note("connections ended " + ", ".join(f"{how}: {count}" for how, count in ended.most_common()))


def _attack(stage: Stage, path: str, number: int, secret: bytes, made: Counter[str], ended: Counter[str]) -> None:
    """Let attackers damage so many things. Raises DrillFailed if one does not end."""
    share = -(-number // _ATTACKERS)
    command = [sys.executable, "-m", "tests.drills.ring_attacker", path]
    attackers = [
        subprocess.Popen(
            [*command, str(stage.random.randrange(1 << 30)), str(share), secret.hex()], stdout=subprocess.PIPE
        )
        for _ in range(_ATTACKERS)
    ]
    try:
        for attacker in attackers:
            try:
                text, _ = attacker.communicate(timeout=CALL_S + share)
            except subprocess.TimeoutExpired:
                raise DrillFailed("an attacker hangs") from None
            if attacker.returncode:
                raise DrillFailed(f"an attacker exited with status {attacker.returncode}")
            report = json.loads(text)
            made.update(report["made"])
            ended.update(report["ended"])
            for wrong in report["wrong"]:
                stage.expect(False, wrong)
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.communicate()


def _look(stage: Stage, witness: poolrt.Pool) -> dict[str, tuple[int, int]]:
    """Return bytes of own memory, and descriptors, of the coordinator and its workers, once the attackers have gone."""
    gone = await_that(lambda: witness.stats(CALL_S)["clients"] == 2, _TAKEN_BACK_S + stage.outcome.noise_s)
    stage.expect(gone, "clients that have gone are still connected")
    stats = witness.stats(CALL_S)
    pids = {"coordinator": stats["pid"]}
    pids |= {f"worker {place}": worker["pid"] for place, worker in enumerate(stats["workers"], 1)}
    found = {}
    for name, pid in pids.items():
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        found[name] = (resident - shared) * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))
    return found
