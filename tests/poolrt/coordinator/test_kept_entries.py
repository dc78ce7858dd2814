"""Entries of prebuilt kernels that a node keeps: put together once, and found by those alone that need them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key, results
from poolrt.cachestore.prebuilt import write_prebuilt
from poolrt.coordinator import background
from poolrt.coordinator.background import BackgroundThread
from poolrt.coordinator.instructions import LookedUp, LookUp
from poolrt.coordinator.kept_entries import KeptEntries
from poolrt.graph import lower
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives import prebuilt
from poolrt.workers.primitives.kernel_identity import kernel_identity
from poolrt.workers.primitives.prebuilt import part_key
from tests.poolrt.coordinator.test_background import lowering, outcome_of, outcomes_of, wire_of
from tests.workers.compiled import compiled

_BOUND_S = 60.0
KEYS = [Key({"name": name}) for name in "abc"]


def opened(folder: Path) -> CacheStore:
    return CacheStore.connect(f"unix://{folder}/none.sock", home=str(folder / "home"))


def test_what_was_noted_is_found_with_the_same_keys(tmp_path: Path) -> None:
    a, b, _ = (key.digest for key in KEYS)
    with opened(tmp_path) as store:
        first = KeptEntries(store, KEYS)
        assert (first.find(a), first.has_more) == (None, False)
        first.add(a, b"entry of a")
        assert first.has_more
        first.keep()
    with opened(tmp_path) as store:
        second = KeptEntries(store, KEYS)
        assert [second.find(a), second.find(b), second.has_more] == [b"entry of a", None, False]
        # With others, others are found
        assert KeptEntries(store, KEYS[:2]).find(a) is None
        # And nothing in a store that was cleared
        store.clear()
        assert KeptEntries(store, KEYS).find(a) is None


@pytest.mark.parametrize("data", [b"\xc1", b"\x01", b""])
def test_what_another_program_has_kept_is_not_there(tmp_path: Path, data: bytes) -> None:
    with opened(tmp_path) as store:
        kept = KeptEntries(store, KEYS)
        store.results.put(kept._key, data)
        assert kept.find(KEYS[0].digest) is None


def test_too_much_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        kept = KeptEntries(store, KEYS)
        kept.add(KEYS[0].digest, b"1" * results._LONGEST)
        kept.keep()
        assert KeptEntries(store, KEYS).find(KEYS[0].digest) is None


def test_a_node_puts_the_entries_of_a_graph_together_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    md = MemoryDesc((2, 3), "f32")
    pd = primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target())
    identities = {part_key(kernel_identity(spec, pd.target)).digest: spec for spec in pd.program().kernels}
    path = tmp_path / "kernels.parts"
    write_prebuilt(str(path), {digest: compiled(spec, pd.target) for digest, spec in identities.items()}, {})
    options = {"url": f"unix://{tmp_path}/none.sock", "home": str(tmp_path / "home"), "prebuilt": str(path)}

    def look_up() -> LookedUp:
        with closing(BackgroundThread(options, "", 1)) as thread:
            assert outcome_of(thread, lowering(1, wire_of("relu")))[0] == "on_lowered"
            thread.submit(LookUp(1, [0]))
            ((name, (_, found)),) = outcomes_of(thread, 1)
            assert name == "on_looked_up"
            assert isinstance(found, LookedUp)
            return found

    first = look_up()
    assert [source for _, source in first.found.values()] == ["prebuilt"]

    # Given a process that can put none together, when it looks up the primitives of the same graph
    def fail(*_: Any) -> None:
        raise AssertionError("put together again")

    with monkeypatch.context() as patch:
        patch.setattr(prebuilt, "prebuilt_entry", fail)
        # Then it has the same entries
        assert look_up() == first
        # And none if the package has no file of kernels
        patch.setattr(prebuilt, "prebuilt_entry", lambda *_: None)
        options["prebuilt"] = str(tmp_path / "none.parts")
        assert look_up().found == {}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_node_without_a_lowered_graph_prepares_for_lowering_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_new: bool
) -> None:
    prepared = threading.Event()

    def prepare(kind: str) -> list[None]:
        prepared.set()
        return []

    # Given a thread that waits for an hour before it prepares
    monkeypatch.setattr(background, "_PREPARE_AFTER_S", 3600.0)
    monkeypatch.setattr(lower, "prepare", prepare)
    with opened(tmp_path) as store:
        if not is_new:
            store.results.put(KEYS[0], b"any")
        with closing(BackgroundThread({"url": store.options.url, "home": store.options.home}, "", 1)) as thread:
            # Then it does not wait on a new node
            assert prepared.wait(_BOUND_S if is_new else 0.3) == is_new
            # And a load is served on both
            assert outcome_of(thread, lowering(1, wire_of("relu")))[0] == "on_lowered"
