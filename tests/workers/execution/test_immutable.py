"""What threads share refuses assignment: keys, descriptors, cached primitives, engines, resources, primitives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.workers import Eltwise, Engine, PostOp
from poolrt.workers.desc import MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.key import primitive_key
from tests.workers import compiled

#: Name -> what threads share of a primitive.
SHARED: Final[dict[str, Callable[[Primitive], object]]] = {
    "primitive": lambda primitive: primitive,
    "engine": lambda primitive: primitive.engine,
    "resource": lambda primitive: primitive.resource,
    "linked launch": lambda primitive: primitive.resource.launches[0],
    "cached primitive": lambda primitive: primitive._cached,
    "entry": lambda primitive: primitive._cached.entry,
    "launch": lambda primitive: primitive._cached.entry.launches[0],
    "primitive descriptor": lambda primitive: primitive.pd,
    "operation descriptor": lambda primitive: primitive.pd.op,
    "memory descriptor": lambda primitive: primitive.pd.op.src,  # type: ignore[attr-defined]
    "attributes": lambda primitive: PrimitiveAttr((PostOp("eltwise", "relu"),)),
    "target": lambda primitive: cpu_target(),
    "program": lambda primitive: primitive.pd.program(),
    "kernel": lambda primitive: KernelSpec.of("concat"),
    "key": lambda primitive: primitive_key(primitive.pd),
}


@pytest.fixture(scope="module")
def primitive(store: CacheStore) -> Primitive:
    """Return a primitive."""
    md = MemoryDesc((64,), "f32")
    return Eltwise.PrimitiveDesc(Engine("cpu"), md, md, "relu").create(compiled.cache(4, store))


@pytest.mark.parametrize("name", SHARED)
def test_what_threads_share_refuses_assignment(primitive: Primitive, name: str) -> None:
    shared = SHARED[name](primitive)
    own = {
        *getattr(shared, "__dict__", {}),
        *(slot for kind in type(shared).__mro__ for slot in getattr(kind, "__slots__", ())),
        *getattr(shared, "_fields", ()),
    } - {"__weakref__", "__dict__"}
    assert own
    for attribute in (*own, "another"):
        before = getattr(shared, attribute, None)
        for change in (partial(setattr, shared, attribute, 1), partial(delattr, shared, attribute)):
            with pytest.raises(
                (AttributeError, TypeError)
            ):  # a frozen dataclass with slots raises the second in Python 3.11
                change()
        assert getattr(shared, attribute, None) is before


def test_an_immutable_key_can_still_be_copied_pickled_and_derived_from() -> None:
    class Derived(Key):
        """A key of another class."""

        __slots__ = ()

    key = Key({"a": (1, 2.5, "x")})
    again = pickle.loads(pickle.dumps(key))  # noqa: S301
    for other in (copy.copy(key), copy.deepcopy(key), again, Derived({"a": [1, 2.5, "x"]})):
        assert (other, other.digest) == (key, key.digest)
        with pytest.raises(AttributeError, match="canonical: cannot be assigned, since threads share a"):
            other.canonical = b""
