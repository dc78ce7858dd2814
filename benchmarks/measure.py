"""Measure rivals in one run: alternating repeats, medians, a ratio, and a line for the record."""

from __future__ import annotations

import compileall
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
#: The machine's load, of the last minute, before this process measures anything.
_LOAD: Final = os.getloadavg()[0]
#: The three floors, each by its own name: the compiler of bytecode follows no links.
_FLOORS: Final = ("poolrt", "poolrt/workers", "poolrt/cachestore")


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run the contestants in turn, ``rounds`` times, and return the median of what each one returned."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            found[name].append(contestant())
    return {name: statistics.median(values) for name, values in found.items()}


def seconds(action: Callable[[], object], repeat: int = 1) -> float:
    """Return the mean wall time of ``repeat`` calls, in seconds."""
    start = time.perf_counter()
    for _ in range(repeat):
        action()
    return (time.perf_counter() - start) / repeat


def installed_environment(**more: str) -> dict[str, str]:
    """Compile poolrt's modules to bytecode, as installing the rivals did; return the environment for processes.

    A process that may not keep bytecode would compile them at each start.
    """
    root = Path(__file__).resolve().parents[1]
    for floor in _FLOORS:
        compileall.compile_dir(root / floor, quiet=1)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def record(title: str, lines: list[str]) -> None:
    """Print a result; append it to RESULTS.md, with machine and date, where POOLRT_RECORD=1 is set."""
    print(f"{title}\n" + "\n".join(f"  {line}" for line in lines), flush=True)
    if os.environ.get("POOLRT_RECORD") == "1":
        with RESULTS.open("a", encoding="utf-8") as file:
            today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
            file.write(f"\n## {title}\n\n{today}, {_machine()}, load before it {_LOAD:.2f}\n\n")
            file.writelines(f"- {line}\n" for line in lines)


def _machine() -> str:
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
