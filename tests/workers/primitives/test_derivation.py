"""Primitives derived from kernels of others: the same entries as created ones, with nothing compiled, stored or leased."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr
from poolrt.workers.desc.operations.eltwise import Eltwise
from poolrt.workers.desc.operations.matmul import Matmul
from poolrt.workers.desc.operations.softmax import Softmax
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.kernels.spec import KernelSpec, Value
from poolrt.workers.primitives.derivation import KernelTable
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.kernel_identity import kernel_identity
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.stream import Stream
from tests.workers import compiled
from tests.workers.levels import another_level


def relu(*dims: int, algorithm: str = "relu") -> PrimitiveDesc:
    md = MemoryDesc(dims, "f32")
    return primitive_desc(Eltwise(md, md, algorithm), PrimitiveAttr(), cpu_target())


def product(rows: int, depth: int = 24, columns: int = 40) -> PrimitiveDesc:
    left, right, dst = (MemoryDesc(dims, "f32") for dims in ((rows, depth), (depth, columns), (rows, columns)))
    return primitive_desc(Matmul(left, right, None, dst), PrimitiveAttr(), cpu_target())


def softmax(*dims: int) -> PrimitiveDesc:
    md = MemoryDesc(dims, "f32")
    return primitive_desc(Softmax(md, md, len(dims) - 1), PrimitiveAttr(), cpu_target())


@pytest.fixture
def provider(store: CacheStore, tmp_path: Path) -> Iterator[PrimitiveProvider]:
    """Return a provider whose store is empty."""
    with CacheStore.connect(home=store.options.home, namespace=tmp_path.name) as empty:
        yield compiled.cache(16, empty)


@pytest.mark.parametrize(
    ("known", "other"),
    [(relu(40), relu(3, 17)), (product(40), product(54, 7, 33)), (softmax(3, 40), softmax(5, 2, 70))],
    ids=["eltwise", "matmul", "softmax"],
)
def test_a_derived_entry_is_the_one_that_a_creator_makes(
    known: PrimitiveDesc, other: PrimitiveDesc, provider: PrimitiveProvider
) -> None:
    creator, table = compiled.creator(), KernelTable(0)
    assert table.derive(other, provider.store) is None
    _, held = table.share(parse_entry(creator.create(known)))
    assert table.derive(other, provider.store) == creator.create(other)
    del held
    assert table.derive(other, provider.store) is None  # no primitive has the kernels any more


def test_other_sizes_create_store_and_lease_nothing_and_are_right(provider: PrimitiveProvider) -> None:
    assert provider.fetch(product(200))[1] == "created"
    stored, random = provider.store.stats(), np.random.default_rng()
    engine = Engine("cpu")
    stream = Stream(engine)
    for rows in (183, 196, 201):
        pd = product(rows)
        primitive = Primitive(pd, engine, provider)
        assert primitive.source == "derived"
        memories = {arg: Memory(pd.memories()[arg], engine) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST)}
        factors = [random.standard_normal(memories[arg].desc.dims) for arg in (Arg.SRC, Arg.WEIGHTS)]
        for arg, factor in zip((Arg.SRC, Arg.WEIGHTS), factors, strict=True):
            memories[arg].numpy()[:] = factor
        primitive.execute(stream, memories)
        stream.wait()
        np.testing.assert_allclose(memories[Arg.DST].numpy(), factors[0] @ factors[1], rtol=1e-4, atol=1e-4)
        assert provider.fetch(pd)[1] == "memory"
    assert (provider.creations(), provider.stats()["misses"], provider.stats()["derived"]) == (1, 4, 3)
    after = provider.store.stats()
    assert [after[name] for name in ("entries", "creations", "misses", "waits")] == [
        stored[name] for name in ("entries", "creations", "misses", "waits")
    ]


def test_kernels_outlive_the_primitives_that_were_created_with_them(provider: PrimitiveProvider) -> None:
    provider.set_capacity(2)
    pds = [relu(3), softmax(3, 40), relu(4), softmax(5, 2, 70)]
    assert [provider.fetch(pd)[1] for pd in pds] == ["created", "created", "derived", "derived"]
    # A capacity of 0 keeps no kernels either; what was created is in the node's files
    provider.set_capacity(0)
    gc.collect()
    assert [provider.fetch(relu(size))[1] for size in (3, 6)] == ["files", "created"]


def test_a_new_process_derives_other_sizes_from_the_files_of_the_node(provider: PrimitiveProvider) -> None:
    provider.fetch(relu(3))
    provider.fetch(product(200))
    again = compiled.cache(16, provider.store)
    assert [again.fetch(pd)[1] for pd in (relu(5), product(201), softmax(3, 40))] == ["derived", "derived", "created"]
    assert (again.creations(), provider.store.stats()["creations"]) == (1, 3)
    # Entries that come later are read too
    assert provider.fetch(softmax(5, 2, 70))[1] == "derived"


def test_kernels_share_an_identity_if_all_that_makes_their_code_is_equal() -> None:
    target = cpu_target()

    def identity(value: Value) -> bytes:
        return kernel_identity(KernelSpec.of("eltwise", value=value), target)

    # Values that are equal in Python and make other code
    assert len({identity(value) for value in (0, 0.0, -0.0, False, "0", (0,), None)}) == 7
    spec = KernelSpec.of("eltwise", algorithm="relu")
    others = KernelSpec.of("softmax", algorithm="relu"), KernelSpec.of("eltwise", algorithm="tanh")
    known = {kernel_identity(each, target) for each in (spec, *others)} | {kernel_identity(spec, another_level(target))}
    assert len(known) == 4
    assert kernel_identity(spec, target.on_threads(7)) == kernel_identity(spec, target)
