"""Interrupt `poolrt run`, and a program with a pool, at random moments: `python -m tests.drills.interrupts --count N --seed S`.

Each run gets SIGINT at a random moment between its start and its end, every fourth a second one shortly after. It must end
with status 130 and one line, in bounded time, and leave no process and no temporary file. A signal that arrives before the
program's first line is the interpreter's affair and is counted apart: the program has then not yet installed faulthandler,
which `/proc/PID/status` shows. The exit status is 0 if all runs ended so, 1 if not.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from poolrt.workers.ipc.spawn import module_path

#: The variable by which every process of one run is found again.
MARK: Final = "DRILL_OF_INTERRUPTS"
#: Seconds from the interrupt to the end of the process, and then to the end of its children.
END_S: Final = 20.0
#: Every so many runs create their kernels again.
_COLD: Final = 8
_SCRIPT: Final = """
    import sys
    try:
        import faulthandler
        import numpy as np
        import poolrt
        graph = poolrt.Graph("relu")
        graph.output("y", graph.eltwise(graph.input("x", (64, 64), "float32"), "relu"))
        x = np.ones((64, 64), "float32")
        with poolrt.Pool(workers=1, threads=1) as pool:
            faulthandler.enable()
            model = pool.load(graph)
            for _ in range(int(sys.argv[1])):
                results = [future.result() for future in [model.submit(x=x) for _ in range(4)]]
                assert model.run(x=x)["y"].sum() == results[0]["y"].sum() == 4096
                assert pool.submit(len, [1]).result() == 1
        print("done")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
"""


class End(NamedTuple):
    """How one run ended. ``verdict`` is "interrupted", "too early", "too late", or what is wrong with it."""

    verdict: str
    seconds: float
    text: str


#: Verdicts of runs that ended as they should.
GOOD: Final = frozenset({"interrupted", "too early", "too late"})


@dataclass
class Report:
    """The ends of all runs of one program."""

    program: str
    seed: int
    verdicts: collections.Counter[str] = field(default_factory=collections.Counter)
    longest_s: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, number: int, end: End) -> None:
        self.verdicts[end.verdict] += 1
        if end.verdict not in GOOD:
            self.examples.append(f"run {number}: {end.verdict}: {end.text[-1500:]}")
        elif end.verdict == "interrupted":
            self.longest_s = max(self.longest_s, end.seconds)

    @property
    def broken(self) -> bool:
        return any(verdict not in GOOD for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        facts = {
            "verdicts": dict(self.verdicts),
            "longest_end_s": round(self.longest_s, 3),
            "examples": self.examples[:10],
        }
        return {"program": self.program, "seed": self.seed, "broken": self.broken, **facts}


class Place:
    """A folder with home, temporary folder and model of the runs, made by `__init__` and removed by `close`."""

    def __init__(self) -> None:
        import onnx
        from onnx import TensorProto, helper

        self.folder = Path(tempfile.mkdtemp(prefix="drill-interrupts-"))
        (self.folder / "tmp").mkdir()
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in "xy")
        nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Add", ["h", "x"], ["y"])]
        graph = helper.make_graph(nodes, "small", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, self.folder / "m.onnx")

    def command(self, program: str) -> list[str]:
        if program == "script":
            return [sys.executable, "-c", textwrap.dedent(_SCRIPT), "40"]
        return [sys.executable, "-m", "poolrt", "run", "m.onnx", "--random-inputs", "0", "--repeat", "200"]

    def environment(self, mark: str, *, cold: bool) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("POOLRT_", "PYTHONFAULT"))}
        return (
            env
            | module_path()
            | {
                "POOLRT_HOME": str(self.folder / "home"),
                "POOLRT_REDIS_SERVER": "/nonexistent",
                "POOLRT_WORKERS": "1",
                "POOLRT_THREADS": "1",
                "POOLRT_ARENA_BYTES": "64MiB",
                "TMPDIR": str(self.folder / "tmp"),
                MARK: mark,
                **({"POOLRT_PRIMITIVE_CACHE_CAPACITY": "0"} if cold else {}),
            }
        )

    def start(self, program: str, mark: str, *, cold: bool) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(program),
            cwd=self.folder,
            env=self.environment(mark, cold=cold),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left(self) -> list[str]:
        """Return the names of temporary files."""
        return sorted(path.name for path in (self.folder / "tmp").iterdir())

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def drill(place: Place, program: str, count: int, seed: int, parallel: int = 2) -> Report:
    """Interrupt a program ``count`` times; ``program`` is "run" or "script"."""
    full_s = {}
    for cold in (True, False):
        started = time.monotonic()
        whole = place.start(program, "whole", cold=cold)
        out, err = whole.communicate(timeout=60)
        if whole.returncode or err:
            raise RuntimeError(f"{program} fails without an interrupt: status {whole.returncode}, {out}{err}")
        full_s[cold] = time.monotonic() - started
        place.start(program, "whole", cold=False).communicate(timeout=60)  # fills the home folder
    report = Report(program, seed)
    numbers = range(count)
    with ThreadPoolExecutor(parallel) as threads:
        for number, end in zip(
            numbers, threads.map(lambda n: _interrupt(place, program, seed, n, full_s), numbers), strict=True
        ):
            report.add(number, end)
    if left := place.left():
        report.verdicts["files left"] += 1
        report.examples.append(f"temporary files: {left}")
    return report


def _interrupt(place: Place, program: str, seed: int, number: int, full_s: dict[bool, float]) -> End:
    draw = random.Random(f"{seed} {number}")
    cold = number % _COLD == 0
    mark = f"{os.getpid()} {seed} {program} {number}"
    moment = draw.random() * full_s[cold] * 1.1
    run = place.start(program, mark, cold=cold)
    time.sleep(moment)
    began, over = _state(run.pid)
    run.send_signal(signal.SIGINT)
    sent = time.monotonic()
    if number % 4 == 3:
        time.sleep(draw.random() * 0.1)
        run.send_signal(signal.SIGINT)
    try:
        out, err = run.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        run.kill()
        out, err = run.communicate()
        return End("hangs", END_S, f"{moment:.3f} s after its start: {out}{err}")
    seconds = time.monotonic() - sent
    text = f"{moment:.3f} s after its start; status {run.returncode}, {seconds:.2f} s later\n{out}{err}"
    until = time.monotonic() + END_S
    while left := _processes(mark):
        if time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return End("leaves processes", seconds, text)
        time.sleep(0.02)
    return End(_judge(program, began, over, run.returncode, out, err, seconds), seconds, text)


def _judge(program: str, began: bool, over: bool, status: int, out: str, err: str, seconds: float) -> str:
    if over and status == 0 and not err:
        return "too late"
    if status == 130 and err == ("interrupted\n" if program == "script" else "poolrt: interrupted\n"):
        return "interrupted"
    if not began:
        return "too early"
    if status in (0, 1) and "KeyboardInterrupt" not in err and not err:
        # The work was done: the interrupt came between the last look and the end of the process.
        return "too late" if seconds < 0.25 and out else "swallowed"
    if program == "script" and status == -signal.SIGINT and err.count("Traceback") <= 1 and "ignored" not in err:
        return "interrupted"  # before the program's `try` or at the interpreter's end, as any program of Python
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if "ignored" in err:
        return "swallowed"
    return "wrong status or text"


def _state(pid: int) -> tuple[bool, bool]:
    """Return whether a process has enabled faulthandler, and whether it has exited."""
    try:
        lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines())
    except OSError:
        return True, True
    caught = int(lines.get("SigCgt", "0"), 16)
    return bool(caught & 1 << (signal.SIGSEGV - 1)), lines["State"].startswith("Z")


def _processes(mark: str) -> list[int]:
    """Return the processes that a run has started, at any depth."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.drills.interrupts", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--count", type=int, default=1000, metavar="N", help="interrupts of each program (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the random moments (default: 1)")
    parser.add_argument("--program", choices=("run", "script", "both"), default="both", help="what is interrupted")
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="runs at a time (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    programs = ("run", "script") if chosen.program == "both" else (chosen.program,)
    place = Place()
    try:
        reports = [drill(place, program, chosen.count, chosen.seed, chosen.parallel) for program in programs]
    finally:
        place.close()
    if chosen.json:
        print(json.dumps({"programs": [report.as_dict() for report in reports]}))
    for report in () if chosen.json else reports:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.most_common())
        print(f"{report.program}: {counts}; the longest end took {report.longest_s:.2f} s")
        print("\n".join(report.examples))
    return int(any(report.broken for report in reports))


if __name__ == "__main__":
    sys.exit(main())
