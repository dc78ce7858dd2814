"""The state that processes of a node share."""

from __future__ import annotations

import shutil
from pathlib import Path

from poolrt.cachestore.node_state import NodeState, NodeStateFile, later_than


def test_a_change_is_seen_by_another_reader(tmp_path: Path) -> None:
    one, other = NodeStateFile(str(tmp_path / "state")), NodeStateFile(str(tmp_path / "state"))
    assert one.read() == other.read() == NodeState()
    one.change(lambda state: state._replace(generation=5, capacity=7))
    assert other.read() == NodeState(generation=5, capacity=7)
    one.close()
    other.close()


def test_the_same_object_is_returned_while_nothing_changes(tmp_path: Path) -> None:
    file = NodeStateFile(str(tmp_path / "state"))
    assert file.read() is file.read()
    file.close()


def test_a_damaged_file_begins_a_new_generation(tmp_path: Path) -> None:
    path = tmp_path / "state"
    file = NodeStateFile(str(path))
    file.change(lambda state: state._replace(generation=5))
    path.write_bytes(b"\0" * 60)
    assert file.read().generation > 5
    assert file.read() == NodeStateFile(str(path)).read()
    file.close()


def test_a_folder_that_was_deleted_comes_back_with_the_next_change(tmp_path: Path) -> None:
    folder = tmp_path / "ns"
    file = NodeStateFile(str(folder / "state"))
    file.read()
    shutil.rmtree(folder)
    file.change(lambda state: state._replace(generation=9))
    assert NodeStateFile(str(folder / "state")).read().generation == 9
    file.close()


def test_numbers_always_grow() -> None:
    ahead = later_than(0) + 10**12
    assert later_than(ahead) == ahead + 1
    assert later_than(0) > 10**15
