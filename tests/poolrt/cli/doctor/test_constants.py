"""`poolrt doctor` on the weights that processes of the node share."""

from __future__ import annotations

from pathlib import Path

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.cli.doctor.constants import finding
from poolrt.cli.doctor.finding import State
from poolrt.settings import Settings


def test_the_finding_has_number_bytes_and_what_is_of_no_use(tmp_path: Path) -> None:
    settings = Settings.load(home=str(tmp_path))
    files = ConstantFiles(**settings.constant_files_arguments())
    mapped = files.find_or_write("ab" * 32, 5000, lambda: memoryview(bytes(5000)))
    found = finding(settings)
    assert (found.state, found.seen) == (State.OK, "1 files, 12.0 KiB of 8.0 GiB, used by 1 processes")
    del mapped
    (path,) = tmp_path.glob("default/constants/*/*")
    path.write_bytes(b"damaged")
    found = finding(settings)
    assert found.state is State.WARN
    assert f"{path}: damaged" in found.seen
    off = finding(Settings.load(home=str(tmp_path), constant_files_bytes=0))
    assert (off.state, off.seen.partition(" (")[0]) == (State.OK, "turned off")
