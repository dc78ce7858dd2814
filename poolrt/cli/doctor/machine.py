"""The machine: interpreter, processor, memory, shared memory, limits on processes and descriptors."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from poolrt.cli.report import bytes_text
from poolrt.coordinator.configuration import quota
from poolrt.settings import Settings
from poolrt.workers.engines.isa import chosen_instructions

from .finding import Finding, fail, ok, warn

#: File descriptors that a pool needs for sockets, arena, wake-ups and files, with room for many workers.
_MIN_DESCRIPTORS: Final = 256
_CGROUP: Final = Path("/sys/fs/cgroup")


def findings(settings: Settings) -> Iterator[Finding]:
    """Check the machine; writes nothing but one page of anonymous memory."""
    yield _interpreter()
    yield _processor(settings)
    yield _cores(settings)
    yield _memory(settings)
    yield _arena()
    yield _descriptors()
    yield _processes(settings)


def _interpreter() -> Finding:
    seen = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return fail("python", seen, "run on Linux: the pool needs memfd, SEQPACKET sockets and epoll")
    return ok("python", seen)


def _processor(settings: Settings) -> Finding:
    try:
        level, extensions = chosen_instructions("")
    except (RuntimeError, OSError) as error:
        return fail("processor", str(error), "run on an x86-64 host, or use engine opencl")
    seen = "+".join((level, *extensions))
    if settings.max_cpu_isa not in ("", seen):
        seen += f"; kernels are made for {settings.max_cpu_isa} (max_cpu_isa)"
        level = settings.max_cpu_isa.partition("+")[0]
    if level < "x86-64-v3":
        return warn("processor", seen, "kernels run without AVX2 on this processor: several times slower")
    return ok("processor", seen)


def _cores(settings: Settings) -> Finding:
    cores = len(os.sched_getaffinity(0))
    workers, threads = quota(settings, cores)
    seen = f"{cores} usable of {os.cpu_count()}; a pool has {workers} workers of {threads} threads"
    limit = _cpu_quota()
    if limit is not None:
        seen += f", quota of the control group {limit:g}"
    if workers * threads > cores:
        return warn("cores", seen, f"{workers} workers of {threads} threads share {cores} cores: lower one of them")
    if limit is not None and limit < cores:
        return warn("cores", seen, f"set POOLRT_WORKERS to {max(1, int(limit))}: more would be throttled")
    return ok("cores", seen)


def _memory(settings: Settings) -> Finding:
    free = _available_memory()
    if free is None:
        return warn("memory", "unknown: /proc/meminfo has no MemAvailable", "check that /proc is mounted")
    seen = f"{bytes_text(free)} available, arena may grow to {bytes_text(settings.arena_bytes)}"
    if settings.arena_bytes > free:
        return warn("memory", seen, "lower POOLRT_ARENA_BYTES, or keep fewer results at a time")
    return ok("memory", seen)


def _arena() -> Finding:
    try:
        descriptor = os.memfd_create("poolrt-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return fail(
            "shared memory", f"memfd_create: {error.strerror}", "allow memfd_create in the sandbox's system calls"
        )
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE) as page:
            page[0] = 1
    except OSError as error:
        return fail(
            "shared memory", f"mapping a memfd: {error.strerror}", "raise the memory limit of the control group"
        )
    finally:
        os.close(descriptor)
    return ok("shared memory", "memfd with seals")


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = f"{_limit(soft)} (hard limit {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < _MIN_DESCRIPTORS:
        return warn("open files", seen, f"raise it: ulimit -n {_MIN_DESCRIPTORS}")
    return ok("open files", seen)


def _processes(settings: Settings) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [] if soft == resource.RLIM_INFINITY else [soft]
    text = _read(_own_cgroup() / "pids.max")
    if text.isdecimal():
        limits.append(int(text))
    cores = len(os.sched_getaffinity(0))
    # A worker and its threads, the coordinator, the fork server, Redis, and the compilers' own threads.
    needed = 16 + 2 * max(cores, (settings.workers or cores) * (settings.threads or 1))
    seen = f"limit {min(limits)}" if limits else "no limit"
    if limits and min(limits) < needed:
        return warn("processes and threads", seen, f"raise it to {needed} at least, or lower POOLRT_WORKERS")
    return ok("processes and threads", seen)


def _limit(value: int) -> str:
    return "none" if value == resource.RLIM_INFINITY else str(value)


def _own_cgroup() -> Path:
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            return _CGROUP / line[3:].lstrip("/")
    return _CGROUP


def _cpu_quota() -> float | None:
    quota, _, period = _read(_own_cgroup() / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _available_memory() -> int | None:
    free = None
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _read(_own_cgroup() / "memory.max"), _read(_own_cgroup() / "memory.current")
    if free is not None and limit.isdecimal() and used.isdecimal():
        free = min(free, max(0, int(limit) - int(used)))
    return free


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
