"""The finding about prebuilt kernels: off, none, usable, of another toolchain, damaged."""

from __future__ import annotations

from pathlib import Path

from poolrt.cachestore.prebuilt import write_prebuilt
from poolrt.cli.doctor.finding import Finding, State
from poolrt.cli.doctor.prebuilt import finding
from poolrt.settings import Settings
from poolrt.workers.primitives.toolchain import toolchain


def _finding(choice: Path | str) -> Finding:
    return finding(Settings.load(environ={}, prebuilt=str(choice)))


def test_the_finding_says_whether_the_kernels_can_be_used_here(tmp_path: Path) -> None:
    path = tmp_path / "kernels.parts"
    assert "turned off" in _finding("none").seen
    missing = _finding(path)
    assert (missing.state, missing.seen) == (State.WARN, f"{path} does not exist")
    write_prebuilt(str(path), {"0" * 64: b"part"}, {**toolchain("cpu"), "levels": "x86-64-v3"})
    usable = _finding(path)
    assert usable.state is State.OK
    assert usable.seen.startswith("1 for x86-64-v3, ")
    write_prebuilt(str(path), {"0" * 64: b"part"}, {**toolchain("cpu"), "numba": "0.1"})
    other = _finding(path)
    assert other.state is State.WARN
    assert "numba 0.1" in other.seen
    assert "poolrt cache prebuild" in other.advice
    path.write_bytes(path.read_bytes()[:60])
    damaged = _finding(path)
    assert damaged.state is State.WARN
    assert "damaged or not complete" in damaged.seen
