"""Drivers that come in wheels are named to the loader beside those of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.workers.engines.opencl_drivers import CHOICES, announce_drivers


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Return an environment with Intel's driver."""
    library = tmp_path / "env" / "lib" / "libintelocl.so"
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path / "env"


def test_a_driver_in_the_environment_joins_those_of_the_system(prefix: Path, tmp_path: Path) -> None:
    system = tmp_path / "system"
    system.mkdir()
    (system / "gpu.icd").write_text("libgpu.so\n")
    variables: dict[str, str] = {}
    assert announce_drivers(tmp_path / "vendors", prefix, system, variables)
    named = {file.name: file.read_text() for file in Path(variables["OCL_ICD_VENDORS"]).iterdir()}
    assert named == {"gpu.icd": "libgpu.so\n", "wheel-intel-cpu.icd": f"{prefix}/lib/libintelocl.so\n"}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_users_choice_of_drivers_stands(prefix: Path, tmp_path: Path, choice: str) -> None:
    variables = {choice: "/somewhere"}
    assert not announce_drivers(tmp_path / "vendors", prefix, tmp_path / "none", variables)
    assert variables == {choice: "/somewhere"}
    assert not (tmp_path / "vendors").exists()


def test_without_such_a_wheel_nothing_is_touched(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    assert not announce_drivers(tmp_path / "vendors", tmp_path, tmp_path, variables)
    assert not variables
