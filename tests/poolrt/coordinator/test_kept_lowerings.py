"""Lowered graphs that a node keeps: equal to what lowering gives, and found only if all that it depends on is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from poolrt import Graph
from poolrt.cachestore import CacheStore
from poolrt.coordinator import kept_lowerings, source_stamp
from poolrt.coordinator.kept_lowerings import KeptLowerings
from poolrt.coordinator.lowering import LoweringRequest, lower_here
from poolrt.coordinator.source_stamp import stamp_sources
from poolrt.graph.packed import pack_graph

REQUEST = LoweringRequest("small", {}, "", 1, with_texts=False)


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore.connect(f"unix://{tmp_path}/none.sock", home=str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no source file count as one that has just changed."""
    monkeypatch.setattr(source_stamp, "_BEGUN", time.time() + 10)


def graph() -> bytes:
    g = Graph("small")
    x = g.input("x", (2, 3, 16, 16))
    weights = np.linspace(-1, 1, 8 * 3 * 9, dtype=np.float32).reshape(8, 3, 3, 3)
    g.output("y", g.softmax(g.eltwise(g.convolution(x, weights, padding=1), "relu"), axis=1))
    return pack_graph(g.to_wire()[0])


def test_what_is_kept_is_what_lowering_gives(store: CacheStore) -> None:
    with store:
        kept = KeptLowerings(lambda: store)
        key = kept.key(REQUEST, b"1")
        assert key is not None
        assert kept.find(key) is None
        lowered = lower_here(REQUEST, graph())
        assert len(lowered.keys) > 2
        assert lowered.graph.constants
        kept.keep(key, lowered)
        assert KeptLowerings(lambda: store).find(key) == lowered


def test_every_setting_is_in_the_key(store: CacheStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store:
        kept = KeptLowerings(lambda: store)
        key = kept.key(REQUEST, b"1")
        assert key == KeptLowerings(lambda: store).key(replace(REQUEST, name="another"), b"1")
        others = [
            kept.key(REQUEST, b"2"),
            kept.key(replace(REQUEST, threads=2), b"1"),
            kept.key(replace(REQUEST, max_isa="x86-64-v3"), b"1"),
            kept.key(replace(REQUEST, functions=False), b"1"),
        ]
        monkeypatch.setattr(kept_lowerings, "toolchain", lambda _: {"llvmlite": "9.9.9"})
        others.append(kept.key(REQUEST, b"1"))
        assert None not in others
        assert len({key, *others}) == 6
        # Texts are for people who look at them
        assert kept.key(replace(REQUEST, with_texts=True), b"1") is None


def test_a_graph_is_not_kept_if_a_source_changes_while_it_is_lowered(
    store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store:
        first = KeptLowerings(lambda: store)
        key = first.key(REQUEST, b"1")
        assert key is not None
        # Given a source that changes while a graph is lowered
        with monkeypatch.context() as patch:
            patch.setattr(kept_lowerings, "stamp_sources", lambda: stamp_sources()._replace(digest=b"another"))
            first.keep(key, lower_here(REQUEST, graph()))
        # Then it is not kept
        assert first.find(key) is None


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package with two rooms, which stamps are of."""
    folder = tmp_path / "package"
    (folder / "desc" / "inner").mkdir(parents=True)
    (folder / "plans").mkdir()
    for name in ("desc/a.py", "desc/inner/b.py", "desc/inner/kernel.cl", "plans/c.py", "plans/notes.txt"):
        (folder / name).write_text("1")
    package = SimpleNamespace(__file__=str(folder / "__init__.py"))
    monkeypatch.setattr(source_stamp, "_ROOMS", ((package, ("desc", "plans")),))
    return folder


@pytest.mark.parametrize("name", ["desc/a.py", "desc/inner/b.py", "desc/inner/kernel.cl", "plans/c.py"])
def test_a_stamp_changes_with_each_source_even_if_size_and_time_stay(sources: Path, name: str) -> None:
    before = stamp_sources()
    assert before == stamp_sources()
    path = sources / name
    status = path.stat()
    path.write_text("2")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stamp_sources().digest != before.digest


def test_a_stamp_changes_with_added_and_removed_sources_only(sources: Path) -> None:
    before = stamp_sources().digest
    (sources / "plans" / "notes.txt").write_text("another")
    (sources / "plans" / "__pycache__").mkdir()
    assert stamp_sources().digest == before
    (sources / "desc" / "d.py").write_text("")
    added = stamp_sources().digest
    (sources / "plans" / "c.py").unlink()
    assert len({before, added, stamp_sources().digest}) == 3


def test_sources_that_have_just_changed_or_are_in_no_folder_have_nothing_kept(
    sources: Path, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store:
        assert KeptLowerings(lambda: store).key(REQUEST, b"1") is not None
        monkeypatch.setattr(source_stamp, "_BEGUN", time.time())
        assert KeptLowerings(lambda: store).key(REQUEST, b"1") is None
        shutil.rmtree(sources)
        assert KeptLowerings(lambda: store).key(REQUEST, b"1") is None


_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_kept_lowerings import REQUEST, graph, lower_here

data, before = graph(), {*sys.modules}
lower_here(REQUEST, data)
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("poolrt.") and name not in before))
"""


def test_a_stamp_has_all_modules_that_lowering_imports() -> None:
    run = [sys.executable, "-c", _IMPORTS, str(Path(__file__).parent)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    imported = [os.path.realpath(path) for path in done.stdout.split()]
    rooms = [
        os.path.realpath(Path(str(package.__file__)).parent / room)
        for package, names in source_stamp._ROOMS
        for room in names
    ]
    assert len(imported) > 20
    assert not [path for path in imported if not path.startswith(tuple(rooms))]
