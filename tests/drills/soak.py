"""The soak: several clients for a long time, while everything is killed, stopped and restarted; nothing grows.

It goes in rounds. In each, clients of one server work, and faults meet workers, creators, fork servers and clients at random
moments; then the clients end, and what the coordinator still holds is looked at from outside. Each third round begins with a
kill of the coordinator.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import poolrt

from ..poolrt.pool.processes import descendants, is_alive
from .pools import GONE_S, Hunt, await_that, start_server
from .stage import Stage
from .swarm import DrillFailed
from .traffic import CALL_S, WORK, Tally

#: Clients at a time.
_CLIENTS: Final = 4
#: Seconds of a round, at most, and rounds after which the coordinator is killed.
_ROUND_S: Final = 30.0
_ROUNDS_OF_A_LIFE: Final = 3
#: What meets a process -> how often of a hundred times.
_FAULTS: Final = {
    "kill a worker": 50,
    "stop a worker": 15,
    "kill another": 10,
    "kill a fork server": 2,
    "kill a client": 15,
    "stop a client": 8,
}
#: Seconds between two faults, and for which a process is stopped; the longest is beyond what a coordinator waits.
_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
_STOPS_S: Final = (0.05, 0.3, 1.0, 4.0)
#: Least share of the runs and functions that get their results.
_SHARE: Final = 0.9
#: What a coordinator may hold more than after its first round: bytes, and descriptors (idle creators).
_SPARE_BYTES: Final = 16 << 20
_SPARE_FDS: Final = 12
#: Seconds within which a coordinator has taken back what clients that have gone held.
_TAKEN_BACK_S: Final = 5.0


def soak(stage: Stage) -> None:
    """Clients, models and functions amid kills, stops and restarts: results are right, and nothing grows."""
    whole = _Answers()
    path = str(stage.folder / "s")
    until = time.monotonic() + stage.scale.soak_s
    number, made, held = 0, Counter[str](), None
    while time.monotonic() < until:
        with _life(stage, path) as server:
            first: _Held | None = None
            for _ in range(_ROUNDS_OF_A_LIFE):
                left_s = until - time.monotonic()
                if left_s <= 0 and number:
                    break
                number += 1
                made += _round(stage, path, server, min(_ROUND_S, stage.scale.soak_s / 4), number, whole)
                held = _look(stage, path, server)
                minutes = (time.monotonic() - until + stage.scale.soak_s) / 60
                print(f"    {minutes:.1f} min, round {number}: {held}", file=sys.stderr, flush=True)
                first = first or held
                _compare(stage, first, held)
    stage.note(f"{number} rounds; after the last the coordinator held {held}")
    stage.outcome.faults = made.total()
    stage.note(", ".join(f"{kind}: {count}" for kind, count in made.most_common()))
    whole.check(stage)


@contextmanager
def _life(stage: Stage, path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a server, which is killed (-9) at the end of the block: all its processes are gone soon after."""
    server = start_server(stage, path, workers=3)
    try:
        yield server
        family = [server.pid, *descendants(server.pid)]
        stage.expect(server.poll() is None, f"the coordinator has exited with status {server.returncode}")
    finally:
        server.kill()
        server.wait()
    gone = await_that(lambda: not any(map(is_alive, family)), GONE_S + stage.outcome.noise_s)
    stage.expect(gone, f"processes left by a killed coordinator: {[pid for pid in family if is_alive(pid)]}")
    Path(path).unlink(missing_ok=True)


def _round(
    stage: Stage, path: str, server: subprocess.Popen[bytes], seconds: float, number: int, whole: _Answers
) -> Counter[str]:
    """Let clients work while faults meet processes; return how many of each kind."""
    chance, made = stage.random, Counter[str]()
    clients = [_start_client(path, 1000 * number + seat) for seat in range(_CLIENTS)]
    until = time.monotonic() + seconds
    try:
        with poolrt.connect(path) as witness:
            hunt = Hunt(stage, witness)
            while time.monotonic() < until:
                time.sleep(chance.choice(_PAUSES_S))
                (fault,) = chance.choices(list(_FAULTS), list(_FAULTS.values()))
                what, _, whom = fault.partition(" a")
                role = {" worker": "worker", " fork server": "fork server", "nother": "others"}.get(whom)
                if role is None:
                    seat = chance.randrange(_CLIENTS)
                    met = _hit(clients[seat].pid, what, chance.choice(_STOPS_S))
                    if what == "kill":
                        clients[seat].communicate()
                        clients[seat] = _start_client(path, 1000 * number + 100 * made.total() + seat)
                else:
                    found = hunt.by_role()[role]
                    met = bool(found) and _hit(chance.choice(found), what, chance.choice(_STOPS_S))
                made[fault] += met
            hunt.await_back()
        for client in clients:
            _ask_to_end(client)
        for client in clients:
            whole.add(client)
    finally:
        for client in clients:
            client.kill()
            client.communicate()
    return made


def _start_client(path: str, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.drills.soak_client", path, str(seed)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask_to_end(client: subprocess.Popen[bytes]) -> None:
    """Close a client's standard input: unlike a signal, that does not come too early for one that is still starting."""
    assert client.stdin
    client.stdin.close()
    client.stdin = None


def _hit(pid: int, what: str, seconds: float) -> bool:
    """Kill (-9) a process, or stop it for some seconds; return whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
    except ProcessLookupError:
        return False
    if what == "stop":
        time.sleep(seconds)
        with suppress(ProcessLookupError):  # a worker that was stopped for too long was replaced
            os.kill(pid, signal.SIGCONT)
    return True


@dataclass(frozen=True, slots=True)
class _Held:
    """What a coordinator holds between two rounds: bytes of its own memory, descriptors, and bytes of shared memory."""

    memory: int
    descriptors: int
    shared: int

    def __str__(self) -> str:
        return f"{self.memory / 2**20:.1f} MiB, {self.descriptors} descriptors, {self.shared} bytes of shared memory"


def _look(stage: Stage, path: str, server: subprocess.Popen[bytes]) -> _Held:
    """Return what the coordinator holds once all clients have gone."""
    with poolrt.connect(path) as witness:
        stage.expect(
            await_that(lambda: not witness.stats(CALL_S)["arena"]["used"], _TAKEN_BACK_S + stage.outcome.noise_s),
            "shared memory of clients that have gone is still in use",
        )
        _, resident, shared, *_ = map(int, Path(f"/proc/{server.pid}/statm").read_text().split())
        return _Held(
            (resident - shared) * os.sysconf("SC_PAGE_SIZE"),
            len(os.listdir(f"/proc/{server.pid}/fd")),
            witness.stats(CALL_S)["arena"]["used"],
        )


def _compare(stage: Stage, first: _Held, held: _Held) -> None:
    stage.expect(held.memory <= first.memory + _SPARE_BYTES, f"memory has grown: {first}; then {held}")
    stage.expect(held.descriptors <= first.descriptors + _SPARE_FDS, f"descriptors are left: {first}; then {held}")


class _Answers:
    """What all clients that were not killed report."""

    def __init__(self) -> None:
        self._kinds: dict[str, Tally] = {}

    def add(self, client: subprocess.Popen[bytes]) -> None:
        """Add the report of a client that was asked to end. Raises DrillFailed if it does not."""
        try:
            text, _ = client.communicate(timeout=2 * CALL_S)
        except subprocess.TimeoutExpired:
            raise DrillFailed("a client hangs") from None
        if client.returncode:
            raise DrillFailed(f"a client exited with status {client.returncode}")
        for kind, report in json.loads(text).items():
            self._kinds.setdefault(kind, Tally()).add(Tally.of_report(report))

    def check(self, stage: Stage) -> None:
        """Record all answers: none may be wrong, and of runs and functions most have to be right."""
        outcome, refused = stage.outcome, Counter[str]()
        for kind, tally in self._kinds.items():
            if kind in WORK:
                outcome.calls, outcome.answered = outcome.calls + tally.asked, outcome.answered + tally.right
            outcome.bad += len(tally.bad)
            outcome.longest_s = max(outcome.longest_s, tally.longest_s)
            refused += tally.refused
            stage.expect(not tally.bad, f"{kind}: {len(tally.bad)} bad answers, one: {tally.bad[:1]}")
            stage.note(f"{kind}: {tally}")
        for error, count in refused.most_common(4):
            stage.note(f"refused {count} times: {error}")
        enough = outcome.calls and outcome.answered >= _SHARE * outcome.calls
        stage.expect(bool(enough), f"{outcome.answered} of {outcome.calls} runs and functions got their results")
