"""The key of a primitive changes with every source that its kernels are made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt import workers
from poolrt.workers.primitives import key


@pytest.mark.parametrize(
    ("kind", "rooms", "others"),
    [
        ("cpu", ("kernels/native", "primitives"), "primitives/opencl"),
        ("opencl", ("kernels/opencl", "primitives"), "kernels/native"),
    ],
)
def test_every_folder_of_kernels_and_implementations_counts(kind: str, rooms: tuple[str, str], others: str) -> None:
    root = Path(workers.__path__[0])
    files = [file.relative_to(root) for room in rooms for file in (root / room).rglob("*.*")]
    sources = [file for file in files if file.suffix in (".py", ".cl") and not file.is_relative_to(others)]
    assert set(key._SOURCES[kind]) == {(file.parent.as_posix(), file.suffix) for file in sources}
