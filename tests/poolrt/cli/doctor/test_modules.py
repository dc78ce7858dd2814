"""`poolrt doctor` on compiled modules."""

from __future__ import annotations

import compileall
import os
import py_compile
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cli.doctor.finding import State
from poolrt.cli.doctor.modules import finding


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of three modules, one of them in a floor that is a link."""
    for name in ("package/__init__.py", "package/room/module.py", "floor/module.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("value = 1\n", encoding="utf-8")
    (tmp_path / "package" / "floor").symlink_to("../floor")
    return tmp_path / "package"


def test_modules_that_no_process_can_compile_for_others_are_a_warning_whose_command_helps(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given modules without compiled files, which importing them makes
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    found = finding(package)
    assert (found.state, found.seen.partition(" yet")[0]) == (State.OK, "3 of 3 are not compiled")
    # When it makes none
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = finding(package)
    # Then the reason is named, and the command of the advice makes them
    assert found.state is State.WARN
    assert found.seen.startswith("3 of 3 are not compiled")
    assert "PYTHONDONTWRITEBYTECODE" in found.seen
    command = shlex.split(found.advice.partition(": ")[2])
    assert command[0] == sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, timeout=60, env=environment)
    found = finding(package)
    assert (found.state, found.seen) == (State.OK, "3, all compiled")


@pytest.mark.parametrize("change", ["text", "time", "damage"])
def test_a_compiled_file_of_an_earlier_module_does_not_count(
    package: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for folder in (package, package / "floor"):
        assert compileall.compile_dir(folder, quiet=2)
    module = package / "room" / "module.py"
    before = module.stat()
    if change == "text":
        module.write_text("value = 11\n", encoding="utf-8")
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "time":
        os.utime(module, (before.st_atime, before.st_mtime - 100))  # an older file, newly installed
    else:
        next(module.parent.glob("__pycache__/*")).write_bytes(b"short")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = finding(package)
    assert (found.state, found.seen.partition(",")[0]) == (State.WARN, "1 of 3 are not compiled")
    # A file that Python compares by digests counts.
    compileall.compile_dir(package, quiet=2, force=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    assert finding(package).state is State.OK
