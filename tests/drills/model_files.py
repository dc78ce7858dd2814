"""Import mutated ONNX files: `python -m tests.drills.model_files [--mutations N] [--seed S] [--json]`.

Each file is either imported or refused with `ModelError` or `UnsupportedNode`. It is imported in processes with a limit of
memory, and what is imported is put into its wire form, as a pool would. Exit status 0: the bounds hold; 1: one is broken.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from poolrt import GraphError, ModelError, UnsupportedNode, load_onnx
from poolrt.graph.onnx.importer import UNFORESEEN

from ..peak_memory import peak_resident
from .model_mutations import mutate
from .model_seeds import seeds

ROOT: Final = Path(__file__).resolve().parents[2]
#: Mutations of one process.
_BATCH: Final = 2500
#: Address space of one process, in bytes: what keeps the machine usable if a bound does not hold.
_ADDRESSES: Final = 6 << 30
#: Bound on the resident memory of one process, in bytes.
MOST_RESIDENT: Final = 10**9
#: Bound on the processor time of one file, in seconds.
MOST_SECONDS: Final = 5.0
#: Bound on one process, in seconds.
_BATCH_S: Final = 600.0


@dataclass(slots=True)
class Findings:
    """What became of mutated files: how many were imported or refused, by error, and the largest costs.

    `foreign` counts other errors, `unforeseen` those that only the importer's last resort caught; each with the number of
    a mutation that shows it.
    """

    mutations: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    unforeseen: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    slowest_s: float = 0.0
    slowest: int = -1

    def add(self, other: Findings) -> None:
        """Add the findings of another process."""
        self.mutations += other.mutations
        self.outcomes = dict(Counter(self.outcomes) + Counter(other.outcomes))
        self.foreign = {**other.foreign, **self.foreign}
        self.unforeseen = {**other.unforeseen, **self.unforeseen}
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest

    @property
    def broken(self) -> list[str]:
        """One sentence for each bound that does not hold."""
        found = [f"mutation {number} raises {error}" for error, number in self.foreign.items()]
        found += [f"mutation {number} is refused by chance: {error}" for error, number in self.unforeseen.items()]
        if self.peak_bytes > MOST_RESIDENT:
            found.append(f"a process had {self.peak_bytes} resident bytes, more than {MOST_RESIDENT}")
        if self.slowest_s > MOST_SECONDS:
            found.append(f"mutation {self.slowest} took {self.slowest_s:.1f} s, more than {MOST_SECONDS} s")
        return found


def drill(mutations: int, first: int = 0) -> Findings:
    """Import the mutations with the numbers from ``first`` on, in processes of their own."""
    found = Findings()
    for start in range(first, first + mutations, _BATCH):
        count = min(_BATCH, first + mutations - start)
        command = [sys.executable, "-m", "tests.drills.model_files", "--here", "--json"]
        command += ["--mutations", str(count), "--seed", str(start)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_BATCH_S, check=False)
        try:
            part = json.loads(done.stdout)
        except ValueError:
            last = done.stderr.strip().rpartition("\n")[2]
            found.foreign[f"a process that ended with status {done.returncode}: {last}"] = start
            continue
        found.add(Findings(**{name: value for name, value in part.items() if name != "broken"}))
    return found


def import_here(mutations: int, first: int) -> Findings:
    """Import mutations in this process."""
    found = Findings(mutations)
    for number in range(first, first + mutations):
        content = mutate(number)
        started = time.process_time()
        try:
            with _time_limit():
                outcome = _import(content, number, found)
        except _TooLong:
            outcome = "too long"
        except Exception as error:  # noqa: BLE001 - any error is a finding
            outcome = type(error).__name__
            found.foreign.setdefault(f"{outcome}: {error}"[:200], number)
        took = time.process_time() - started
        if took > found.slowest_s:
            found.slowest_s, found.slowest = took, number
        found.outcomes[outcome] = found.outcomes.get(outcome, 0) + 1
    found.peak_bytes = peak_resident()
    return found


def _import(content: bytes, number: int, found: Findings) -> str:
    try:
        graph = load_onnx(content)
    except UnsupportedNode as error:
        _check_line(error, number, found)
        return "UnsupportedNode"
    except ModelError as error:
        _check_line(error, number, found)
        if UNFORESEEN in str(error):
            found.unforeseen.setdefault(f"{error}"[:200], number)
        return "ModelError"
    try:
        graph.to_wire()
    except GraphError:
        return "imported, refused by a pass"
    return "imported"


def _check_line(error: ModelError, number: int, found: Findings) -> None:
    if not str(error).isprintable() or len(str(error)) > 1000:
        found.foreign.setdefault(f"a message that is no line: {str(error)[:100]!r}", number)


class _TooLong(BaseException):
    """One file takes more than `MOST_SECONDS` of processor time."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills.model_files", description=__doc__)
    parser.add_argument("--mutations", type=int, default=100_000, metavar="N", help="files (default: 100,000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="number of the first mutation (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--here", action="store_true", help="in this process, whose memory is limited")
    chosen = parser.parse_args(arguments)
    for seed in seeds():
        load_onnx(seed).to_wire()
    if chosen.here:
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        found = import_here(chosen.mutations, chosen.seed)
    else:
        found = drill(chosen.mutations, chosen.seed)
    listed: dict[str, Any] = {**asdict(found), "broken": found.broken}
    if chosen.json:
        print(json.dumps(listed))
    else:
        for name, value in listed.items():
            print(f"{name:12}{value}")
    return int(bool(found.broken))


if __name__ == "__main__":
    sys.exit(main())
