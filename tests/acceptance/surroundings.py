"""A user's surroundings of their own for a test: a home, a cache, a temporary folder, and sight of all that runs there."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

#: A variable by which every process that was started in these surroundings is found again.
MARK = "SURROUNDINGS_OF_A_TEST"
#: Bound, in seconds, on any one program.
PROGRAM_S = 110.0
#: Processor time by which a worker has surely begun to run a network, in seconds.
AT_WORK_S = 0.15
#: Seconds between two looks.
_LOOK_S = 0.005


class Process(NamedTuple):
    """A living process and its command line."""

    pid: int
    command: str


class Surroundings:
    """A folder that programs of a test see as home, cache and temporary folder; `close` stops the embedded server.

    ``environ`` holds variables that all of them get.
    """

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.temporary = folder / "tmp"
        self._environ = environ
        for place in (folder / "home", self.temporary):
            place.mkdir(parents=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables that a program gets: none of poolrt's but those chosen here, and no prebuilt kernels."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        own = {"HOME": str(self.folder / "home"), "POOLRT_HOME": str(self.cache), "TMPDIR": str(self.temporary)}
        own["POOLRT_PREBUILT"] = "none"  # whether a developer has made the file or not
        return env | own | {MARK: str(self.folder)} | self._environ | more

    def start(self, *words: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start ``poolrt`` with some words."""
        command = [sys.executable, "-m", "poolrt", *map(str, words)]
        pipe = subprocess.PIPE
        env = self.environment(**more)
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def call(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run ``poolrt`` with some words to its end."""
        with self.start(*words, **more) as program:
            try:
                out, err = program.communicate(timeout=PROGRAM_S)
            except BaseException:
                program.kill()
                raise
        return subprocess.CompletedProcess(program.args, program.returncode, out, err)

    def json(self, *words: str | Path, **more: str) -> dict[str, Any]:
        """Run ``poolrt ... --json``, which must succeed, and return its object."""
        return json_of(self.call(*words, "--json", **more))

    def processes(self) -> list[Process]:
        """Return everything that runs here: by its environment, or, like the server, by its command line."""
        mark, place = f"{MARK}={self.folder}".encode(), os.fsencode(self.folder) + b"/"
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                ours = place in command or mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if ours and command and int(entry.name) != os.getpid():  # a zombie has no command line
                found.append(Process(int(entry.name), command.replace(b"\0", b" ").decode()))
        return found

    def strangers(self) -> list[Process]:
        """Return what runs here besides the embedded server and its idle watch."""
        return [p for p in self.processes() if "redis-server" not in p.command and "idle_watch" not in p.command]

    def at_work(self, client: int) -> list[int]:
        """Return the workers of a client that run a network: of the children of its coordinator's fork server."""
        workers = [p.pid for p in self.strangers() if parent(parent(parent(p.pid))) == client]
        return [pid for pid in workers if cpu_seconds(pid) >= AT_WORK_S]

    def arenas(self) -> set[int]:
        """Return the inodes of the arenas that processes here hold."""
        return {inode for process in self.processes() for inode in held_arenas(process.pid)}

    def sockets(self) -> list[str]:
        """Return the unix sockets with a name in this folder, except the embedded server's."""
        names = [line.split()[-1] for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()]
        return [name for name in names if name.startswith(f"{self.folder}/") and not name.endswith("/redis.sock")]

    def assert_nothing_is_left(self, seconds: float = 1.0) -> None:
        """Fail unless, within some time, nothing is here but the cache and its server."""
        wait_until(lambda: not self.strangers(), seconds, lambda: f"still running: {self.strangers()}")
        assert not (sockets := self.sockets()), f"sockets are left: {sockets}"
        assert not (files := [str(path) for path in self.temporary.rglob("*")]), f"files are left: {files}"

    def close(self) -> None:
        """Stop the embedded server and fail if anything is left."""
        down = self.call("cache", "down")
        assert down.returncode in (0, 2), down.stderr  # 2: the server at a URL is not ours to stop
        self.assert_nothing_is_left()
        wait_until(lambda: not self.processes(), 5.0, lambda: f"still running: {self.processes()}")


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON object of a program that must have succeeded."""
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def wait_until(condition: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """Return as soon as a condition holds; fail with what ``otherwise`` says where a look that begins too late finds it false.

    How long a look takes, such as one at all processes of a busy machine, is no fault of those that are looked at. What this
    process oversleeps is added to the time: they are held up, too.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline
        if condition():
            return
        assert not late, otherwise()
        begin = time.monotonic()
        time.sleep(_LOOK_S)
        deadline += _overslept(begin)


def _overslept(begin: float) -> float:
    """Return by how much a sleep of `_LOOK_S` that has just ended was late, 0 if by as little as on an idle machine."""
    late = time.monotonic() - begin - _LOOK_S
    return late if late > _LOOK_S else 0.0


def watch(pids: Iterable[int]) -> dict[int, int]:
    """Return descriptors by which the ends of processes are seen, by process id; of one that has gone there is none."""
    found = {}
    for pid in pids:
        try:
            found[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
    return found


def survivors(watched: dict[int, int], deadline: float) -> list[int]:
    """Wait for the ends of watched processes; return those that live past a time of the monotonic clock.

    The kernel reports the ends, without a look at what else runs on the machine. What this process oversleeps is added to the
    time. The descriptors are closed.
    """
    living = dict(watched)
    while True:
        late = time.monotonic() > deadline
        begin = time.monotonic()
        ended, _, _ = select.select(living.values(), [], [], _LOOK_S)
        deadline += _overslept(begin)
        living = {pid: descriptor for pid, descriptor in living.items() if descriptor not in ended}
        if late or not living:
            break
    for descriptor in watched.values():
        os.close(descriptor)
    return list(living)


def held_arenas(pid: int) -> set[int]:
    """Return the inodes of the arenas that a process holds or maps."""
    found = set()
    try:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            if len(fields) > 5 and "memfd:poolrt-arena" in fields[5]:
                found.add(int(fields[4]))
        descriptors = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return found  # it has ended
    for descriptor in descriptors:
        try:
            if "memfd:poolrt-arena" in os.readlink(descriptor):
                found.add(os.stat(descriptor).st_ino)
        except OSError:
            continue  # it has been closed meanwhile
    return found


def arena_holders(inodes: set[int]) -> list[int]:
    """Return the processes, of anybody, that hold or map one of these arenas."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if held_arenas(pid) & inodes]


def parent(pid: int) -> int:
    """Return the parent of a process, 0 where it has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, 0 where it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
