"""Entries of prebuilt kernels: equal to what a creator makes, and only from kernels of the same sources and toolchain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.prebuilt import write_prebuilt
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr, Softmax
from poolrt.workers.desc.op_desc import OpDesc
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.primitives.kernel_identity import kernel_identity
from poolrt.workers.primitives.key import SCHEMA
from poolrt.workers.primitives.prebuilt import part_key, prebuilt_entry
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.primitives.sources import generator_digest
from poolrt.workers.primitives.toolchain import toolchain
from tests.workers.compiled import compiled, creator
from tests.workers.levels import another_level, of_level

MakeStore = Callable[[dict[str, bytes] | None], CacheStore]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """Return a maker of stores without Redis, with parts or without a file of them."""

    def make(parts: dict[str, bytes] | None) -> CacheStore:
        path = tmp_path / "kernels.parts"
        if parts is not None:
            write_prebuilt(str(path), parts, {})
        return CacheStore.connect(f"unix://{tmp_path}/none.sock", home=str(tmp_path / "home"), prebuilt=str(path))

    return make


def _relu(columns: int = 40, target: Target | None = None) -> PrimitiveDesc:
    md = MemoryDesc((3, columns), "f32")
    return _described(Eltwise(md, md, "relu"), target)


def _softmax() -> PrimitiveDesc:
    md = MemoryDesc((3, 40), "f32")
    return _described(Softmax(md, md, 1), None)


def _described(op: OpDesc, target: Target | None) -> PrimitiveDesc:
    return primitive_desc(op, PrimitiveAttr(), target or cpu_target())


def _parts(pd: PrimitiveDesc) -> dict[str, bytes]:
    return {
        part_key(kernel_identity(spec, pd.target)).digest: compiled(spec, pd.target) for spec in pd.program().kernels
    }


def test_an_entry_is_the_one_that_a_creator_makes_for_every_shape(make_store: MakeStore) -> None:
    with make_store(_parts(_relu())) as store:
        for columns in (1, 40, 1000):
            entry = prebuilt_entry(store, _relu(columns))
            assert entry == creator().create(_relu(columns))
        assert prebuilt_entry(store, _softmax()) is None


def test_without_a_file_there_is_no_entry(make_store: MakeStore) -> None:
    with make_store(None) as store:
        assert prebuilt_entry(store, _relu()) is None


def test_a_provider_creates_nothing_that_is_prebuilt(make_store: MakeStore) -> None:
    created = []

    def create(pd: PrimitiveDesc) -> bytes:
        created.append(pd)
        return creator().create(pd)

    with make_store(_parts(_relu())) as store:
        provider = PrimitiveProvider(8, store, create)
        assert [provider.fetch(pd)[1] for pd in (_relu(), _softmax(), _relu())] == ["prebuilt", "created", "memory"]
        assert [pd.op.kind for pd in created] == ["softmax"]
        assert store.stats()["hits"]["prebuilt"] == 1


@pytest.mark.parametrize("field", ["", "schema", "source", "toolchain", "target"])
def test_kernels_of_other_sources_compilers_or_instructions_are_never_found(make_store: MakeStore, field: str) -> None:
    # Given the kernels of a package, as they are here but for one field of their identity
    pd = _relu()
    other = another_level(pd.target)
    changed = {"schema": SCHEMA - 1, "source": "0" * 64, "toolchain": {"numba": "0.1"}, "target": other.fields()}
    parts = {}
    for spec in pd.program().kernels:
        here: dict[str, object] = {"schema": SCHEMA, "source": generator_digest("cpu", spec.generator)}
        here |= {"toolchain": toolchain("cpu"), "target": pd.target.on_threads(0).fields()}
        here |= {name: value for name, value in changed.items() if name == field}
        identity = hashlib.sha256(Key(here).canonical + Key(spec.fields()).canonical).digest()
        parts[part_key(identity).digest] = compiled(spec, pd.target)
    # Then they are in the file, and no entry is made of them
    with make_store(parts) as store:
        assert store.prebuilt.is_there()
        assert (prebuilt_entry(store, pd) is not None) is (field == "")


def test_kernels_of_a_stronger_processor_are_not_used_for_a_weaker_one(make_store: MakeStore) -> None:
    with make_store(_parts(_relu(target=of_level("x86-64-v3")))) as store:
        assert prebuilt_entry(store, _relu(target=of_level("x86-64-v2"))) is None
        assert prebuilt_entry(store, _relu(target=of_level("x86-64-v3"))) is not None
