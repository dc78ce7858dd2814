"""Explanations: the entries nearest to a missed key, and their differences."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.cachestore import ABSENT, CacheStore, CreationFailed, Key
from poolrt.cachestore.entry import EntryMeta
from poolrt.cachestore.explain import Explainer, Known

from .conftest import StoreMaker


def conv(n: int = 1, **other: Any) -> dict[str, Any]:
    """Return the fields of a key."""
    return {
        "primitive": "convolution",
        "operation": {"src": (n, 64, 56, 56), "groups": 1},
        "target": {"isa": "x86-64-v3"},
        "toolchain": {"numba": "0.67.1", "llvmlite": "0.48"},
        **other,
    }


OTHER_TOOLS = {"numba": "0.68.1", "llvmlite": "0.48"}


def known(fields: dict[str, Any], created: float = 100.0, creator: str = "a host", seconds: float = 1.0) -> Known:
    """Return an entry of a key with these fields."""
    key = Key(fields)
    return Known(key.digest, key, EntryMeta(1, created, seconds, creator, "some tools"))


def test_the_nearest_differs_in_the_fewest_fields() -> None:
    entries = [
        known(conv(toolchain={"numba": "0.66", "llvmlite": "0.47"})),
        known(conv(toolchain=OTHER_TOOLS), creator="another host", seconds=2.5),
        known(conv(2, toolchain=OTHER_TOOLS)),
        known({**conv(), "primitive": "softmax"}),
        known({"n": 1}),
    ]
    found = Explainer(entries).explain(Key(conv()))
    assert (found.kind, found.compared, found.stored, found.missed) == ("convolution", 3, None, None)
    nearest = found.near[0]
    assert nearest.differences == {"toolchain.numba": ("0.67.1", "0.68.1")}
    assert (nearest.creator, nearest.toolchain, nearest.seconds, nearest.created) == (
        *("another host", "some tools", 2.5, 100.0),
    )
    assert [len(near.differences) for near in found.near] == [1, 2, 2]


def test_of_equally_near_ones_the_same_thing_made_otherwise_comes_first_and_then_the_latest() -> None:
    other_shape, other_isa = known(conv(2), created=300.0), known(conv(target={"isa": "x86-64-v4"}), created=100.0)
    older = known(conv(toolchain=OTHER_TOOLS), created=50.0)
    found = Explainer([other_shape, older, other_isa]).explain(Key(conv()))
    assert [near.digest for near in found.near] == [other_isa.digest, older.digest, other_shape.digest]


def test_what_came_later_explains_no_miss() -> None:
    early, late = known(conv(2, toolchain=OTHER_TOOLS), created=100.0), known(conv(2), created=200.0)
    explainer = Explainer([early, late])
    assert [near.digest for near in explainer.explain(Key(conv()), missed=150.0).near] == [early.digest]
    assert [near.digest for near in explainer.explain(Key(conv())).near] == [late.digest, early.digest]
    assert explainer.explain(Key(conv()), missed=50.0).near == ()


def test_an_entry_is_compared_with_what_was_there_before_it_was_created() -> None:
    early, late = known(conv(2), created=100.0), known(conv(3), created=200.0)
    itself = known(conv(), created=150.0, seconds=10.0)
    found = Explainer([early, late, itself]).explain(itself.key)
    assert found.stored == itself
    assert found.missed == 140.0
    assert [near.digest for near in found.near] == [early.digest]


def test_fields_that_only_one_side_has_are_named() -> None:
    found = Explainer([known({"primitive": "a", "old": 1, "same": 0})]).explain(
        Key({"primitive": "a", "new": (1, 2), "same": 0})
    )
    assert found.near[0].differences == {"new": ((1, 2), ABSENT), "old": (ABSENT, 1)}


FIELDS = st.fixed_dictionaries(
    {"primitive": st.just("x")},
    optional={
        name: st.one_of(st.integers(0, 2), st.booleans(), st.lists(st.integers(0, 2), max_size=3).map(tuple))
        for name in "abcd"
    },
)


@given(FIELDS, st.lists(FIELDS, max_size=12, unique_by=lambda fields: Key(fields).digest))
def test_no_entry_is_nearer_than_those_in_the_explanation(fields: dict[str, Any], others: list[dict[str, Any]]) -> None:
    key = Key(fields)
    entries = [known(other, created=float(number)) for number, other in enumerate(others)]
    distances = sorted(len(key.diff(entry.key)) for entry in entries if entry.key != key)
    found = Explainer(entries).explain(key, missed=1000.0)
    assert found.compared == len(distances)
    assert [len(near.differences) for near in found.near] == distances[:5]


def test_many_entries_are_compared_quickly() -> None:
    entries = [known(conv(number, toolchain=OTHER_TOOLS)) for number in range(2, 1002)]
    explainer = Explainer(entries)
    begin = time.monotonic()
    assert explainer.explain(Key(conv(500))).near[0].differences == {"toolchain.numba": ("0.67.1", "0.68.1")}
    assert time.monotonic() - begin < 2.0


@pytest.mark.parametrize("url", [{}, {"url": "unix:///no-server"}], ids=["redis", "away"])
def test_a_store_explains_what_it_missed(make_store: StoreMaker, url: dict[str, Any]) -> None:
    # Given entries of one version of the tools
    with make_store(**url) as store:
        for n in (1, 2, 3):
            store.get_or_create(Key(conv(n)), lambda: b"x")
    # When another version asks for the same, and one of them is created and one fails
    newer = [Key(conv(n, toolchain=OTHER_TOOLS)) for n in (1, 2, 3)]
    with make_store(**url) as store:
        assert store.get_many(newer) == [None] * 3
        store.get_or_create(newer[0], lambda: b"y")
        with pytest.raises(CreationFailed):
            store.get_or_create(newer[1], failing)
    # Then each miss is explained by the entry of the same thing, though nearer ones have come since
    with make_store(**url) as store:
        missed = [miss.key for miss in store.misses()]
        assert sorted(missed[3:], key=lambda key: key.digest) == sorted(newer, key=lambda key: key.digest)
        for n, (key, found) in enumerate(zip(newer, store.explain(*newer), strict=True), 1):
            assert found.key == key
            assert found.compared == 3
            assert found.near[0].digest == Key(conv(n)).digest
            assert found.near[0].differences == {"toolchain.numba": ("0.68.1", "0.67.1")}
            assert (found.stored is not None) == (n == 1)
        assert store.stats()["misses"] == 3 + 3 + 2


def failing() -> bytes:
    """Fail."""
    raise ValueError("no")


def test_entries_of_another_host_explain_too(make_store: StoreMaker, tmp_path: Path) -> None:
    with make_store() as store:
        store.get_or_create(Key(conv()), lambda: b"x")
    key_file = f"{store.options.home}/signing.key"
    with make_store(home=str(tmp_path / "other"), key_file=key_file) as other:
        key = Key(conv(target={"isa": "x86-64-v4"}))
        assert other.get(key) is None
        (found,) = other.explain(key)
        assert found.near[0].differences == {"target.isa": ("x86-64-v4", "x86-64-v3")}
        # and files that Redis does not have
        make_store(home=str(tmp_path / "other"), key_file=key_file, url="unix:///no-server").get_or_create(
            Key(conv(2)), lambda: b"x"
        )
        (found,) = other.explain(Key(conv(3)))
        assert found.compared == 2


def test_a_read_only_store_explains_and_notes_nothing(make_store: StoreMaker) -> None:
    with make_store() as store:
        store.get_or_create(Key(conv()), lambda: b"x")
        before = store.misses()
    with make_store(read_only=True) as reader:
        assert reader.get(Key(conv(2))) is None
        (found,) = reader.explain(Key(conv(2)))
        assert found.near[0].digest == Key(conv()).digest
        assert reader.misses() == before


def test_without_near_entries_there_are_none_in_the_explanation(make_store: StoreMaker) -> None:
    store: CacheStore = make_store()
    (found,) = store.explain(Key(conv()))
    assert (found.near, found.compared, found.stored) == ((), 0, None)
