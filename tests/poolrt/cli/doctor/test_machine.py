"""The machine's findings on this machine, and on settings that ask too much of it."""

from __future__ import annotations

import os
import resource
from dataclasses import replace

from poolrt.cli.doctor.finding import Finding, State
from poolrt.cli.doctor.machine import findings
from poolrt.settings import Settings


def _found(settings: Settings) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(settings)}


def test_every_part_of_the_machine_is_checked_and_none_fails_here() -> None:
    found = _found(Settings())
    expected = {"python", "processor", "cores", "memory", "shared memory", "open files", "processes and threads"}
    assert set(found) == expected
    assert not [finding for finding in found.values() if finding.state is State.FAIL]


def test_more_threads_than_cores_are_a_warning() -> None:
    cores = len(os.sched_getaffinity(0))
    found = _found(replace(Settings(), workers=cores + 1, threads=2))
    assert found["cores"].state is State.WARN
    assert f"{cores + 1} workers of 2 threads share {cores} cores" in found["cores"].advice


def test_an_arena_larger_than_memory_is_a_warning() -> None:
    finding = _found(replace(Settings(), arena_bytes=1 << 60))["memory"]
    assert finding.state is State.WARN
    assert "POOLRT_ARENA_BYTES" in finding.advice


def test_too_few_descriptors_are_a_warning() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        finding = _found(Settings())["open files"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert finding.state is State.WARN
    assert finding.seen.startswith("128 ")


def test_too_few_processes_for_the_workers_asked_for_are_a_warning() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (100, hard))
    try:
        finding = _found(replace(Settings(), workers=64))["processes and threads"]
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    assert finding.state is State.WARN
    assert finding.seen == "limit 100"


def test_the_cores_finding_shows_the_workers_and_threads_of_a_pool() -> None:
    cores = len(os.sched_getaffinity(0))
    assert f"a pool has {cores} workers of 1 threads" in _found(Settings())["cores"].seen
    assert f"a pool has 1 workers of {cores} threads" in _found(replace(Settings(), workers=1))["cores"].seen
