"""Measure rivals in one run: alternating repeats, medians, a ratio, and a line for the record.

With ``--short``, each program does everything once, on less work. That shows that it runs; its numbers mean little.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import os
import platform
import signal
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

#: Whether this program was started for its shortest form.
SHORT: Final = "--short" in sys.argv[1:]
#: The longest wait of `settle`, the time that it looks at at once, and the share of a processor in it that is no work.
_LATEST_S: Final = 1.0
_STILL_S: Final = 0.02
_IDLE: Final = 0.02
#: Rounds of a loop that shows the speed of the processor, some 0.2 ms, and the differences that it has on a steady one.
_LOOP: Final = 20_000
_STEADY: Final = 1.3
RESULTS: Final = Path(__file__).with_name("RESULTS.md")
#: The machine's load, of the last minute, before this process measures anything.
_LOAD: Final = os.getloadavg()[0]
#: The three floors, each by its own name: the compiler of bytecode follows no links.
_FLOORS: Final = ("poolrt", "poolrt/workers", "poolrt/cachestore")


def arguments(description: str | None, parts: Sequence[str] = ()) -> list[str]:
    """Parse the command line of a program; return which of its parts were chosen, all unless some were named.

    From here on, SIGTERM and SIGHUP end the program through its ``finally`` blocks.
    """
    parser = argparse.ArgumentParser(
        description=description,
        epilog="With POOLRT_RECORD=1 in the environment, the full form appends its results to benchmarks/RESULTS.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="do everything once, on less work: a test that it runs")
    if parts:
        help_text = f"measure only these: {', '.join(parts)}"
        parser.add_argument("parts", nargs="*", metavar="PART", help=help_text)
    chosen: list[str] = getattr(parser.parse_args(), "parts", []) or list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    _clean_up_when_stopped()
    return chosen


def _clean_up_when_stopped() -> None:
    """Have SIGTERM and SIGHUP stop servers and remove files of this program, as an error does; a forked process just ends."""
    program = os.getpid()

    def stop(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == program:
            raise SystemExit(128 + number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def sized(full: T, short: T) -> T:
    """Return how much work there is in this form of the program."""
    return short if SHORT else full


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run the contestants in turn, ``rounds`` times (once in the short form), and return the median of what each returned.

    Each round begins with another one: what one of them leaves in caches, memory and clocks is not always the same one's.
    It prints how long a loop took beside them if that has changed: virtual processors have phases of 0.6 of their speed.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    names = deque(contestants)
    loops: list[float] = []
    for _ in range(sized(rounds, 1)):
        for name in names:
            loops.append(_time_loop())
            found[name].append(contestants[name]())
        names.rotate(-1)
    if not SHORT and max(loops) > _STEADY * min(loops):
        print(f"  (a loop beside these took {min(loops) * 1e3:.2f} to {max(loops) * 1e3:.2f} ms)", flush=True)
    return {name: statistics.median(values) for name, values in found.items()}


def _time_loop() -> float:
    """Return the least of three times of the same loop, in seconds: that of the processor's present speed."""
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(sized(_LOOP, 1)):
            pass
        found.append(time.perf_counter() - begin)
    return min(found)


def settle() -> None:
    """Return when no thread of this process computes, but after a second at the latest.

    Threads of libraries spin after their last work: OpenBLAS's for 105 ms, ONNX Runtime's for 42 ms, those of GNU OpenMP for
    11 ms on an AMD EPYC. What is measured meanwhile on two threads has one processor of two.
    """
    end = time.perf_counter() + _LATEST_S
    while not SHORT and time.perf_counter() < end:
        begin, used = time.perf_counter(), time.process_time()
        time.sleep(_STILL_S)
        if time.process_time() - used < _IDLE * (time.perf_counter() - begin):
            break


def seconds(action: Callable[[], object], repeat: int = 1) -> float:
    """Return the mean wall time of ``repeat`` calls, in the short form of one, in seconds."""
    repeat = sized(repeat, 1)
    start = time.perf_counter()
    for _ in range(repeat):
        action()
    return (time.perf_counter() - start) / repeat


def installed_environment(**more: str) -> dict[str, str]:
    """Compile poolrt's modules to bytecode, as installing the rivals did; return the environment for processes.

    A process that may not keep bytecode would compile them at each start.
    """
    root = Path(__file__).resolve().parents[1]
    for floor in sized(_FLOORS, ()):
        compileall.compile_dir(root / floor, quiet=1)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def record(title: str, lines: list[str]) -> None:
    """Print a result; append it to RESULTS.md, with machine and date, if POOLRT_RECORD=1 is set and this is the full form."""
    print(f"{title}\n" + "\n".join(f"  {line}" for line in lines), flush=True)
    if os.environ.get("POOLRT_RECORD") == "1" and not SHORT:
        with RESULTS.open("a", encoding="utf-8") as file:
            today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
            file.write(f"\n## {title}\n\n{today}, {_machine()}, load before it {_LOAD:.2f}\n\n")
            file.writelines(f"- {line}\n" for line in lines)


def _machine() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        first = dict(line.split(":", 1) for line in info.read().partition("\n\n")[0].splitlines())
    known = {name.strip(): value.strip() for name, value in first.items()}
    # Machines of a cloud hide the number in a processor's name, not these.
    kind = f"family {known.get('cpu family', '?')}, model {known.get('model', '?')}"
    model = f"{known.get('model name', 'unknown processor')}, {kind}"
    from poolrt.workers.engines.target import cpu_target

    where = f"{model} ({cpu_target().instructions}), {os.cpu_count()} cores"
    return f"{where}, Linux {platform.release()}, Python {platform.python_version()}"
