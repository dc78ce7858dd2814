"""The constants that a worker writes into files of the node: the memory that they share until they are written."""

from __future__ import annotations

from pathlib import Path

from poolrt.workers.processes.constant_store import ConstantStore


def test_constants_share_memory_until_it_is_released_and_large_ones_have_their_own(tmp_path: Path) -> None:
    store = ConstantStore({"folder": str(tmp_path), "capacity_bytes": 1 << 30})
    first, second = store.room(1 << 20), store.room(5 << 20)
    assert first is second
    assert second.nbytes >= 5 << 20
    large = store.room(17 << 20)
    assert large is not second
    assert large.nbytes == 17 << 20
    assert store.room(1) is second  # the large one is not kept
    store.release()
    assert store.room(1) is not second


def test_each_constant_is_written_as_long_as_it_is(tmp_path: Path) -> None:
    store = ConstantStore({"folder": str(tmp_path), "capacity_bytes": 1 << 30})
    contents = {f"{number:064x}": bytes([number]) * (1000 + 700 * number) for number in (5, 2, 9)}

    def keep(name: str, content: bytes) -> None:
        def make() -> memoryview:
            room = store.room(len(content)).view
            room[: len(content)] = content
            return room

        store.keep(name, len(content), make)

    for name, content in contents.items():
        keep(name, content)
    for file in tmp_path.rglob("?" * 64):
        assert file.read_bytes().startswith(contents[file.name] + bytes(-len(contents[file.name]) % 4096))
    assert len([*tmp_path.rglob("?" * 64)]) == len(contents)
