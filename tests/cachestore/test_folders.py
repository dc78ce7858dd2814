"""Folders: parents too, for their owner only, and an end where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore.folders import make_folder


def test_missing_parents_are_made_too_and_all_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    make_folder(str(folder))
    make_folder(str(folder))
    assert [place.stat().st_mode & 0o777 for place in (folder, *folder.parents[:2])] == [0o700] * 3


@pytest.mark.parametrize("place", ["/proc/nothing", "/proc/nothing/here", ""])
def test_a_place_that_takes_no_folders_is_an_error(place: str) -> None:
    with pytest.raises(OSError):
        make_folder(place)


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(str(tmp_path / "file" / "folder"))
