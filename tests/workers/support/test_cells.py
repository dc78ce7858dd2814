"""Every cell of the table is computed by each of its implementations, on odd shapes in all layouts; none is left out."""

from __future__ import annotations

import pytest

from poolrt.workers.desc import OPERATIONS, PROP_KINDS
from poolrt.workers.implementations.primitive_desc import implementations

from .descriptors import MAKERS, TYPES
from .problems import Cell, cells
from .table import TARGETS, offered
from .verification import Verification

ROWS = [(kind, prop) for kind, (props, _) in MAKERS.items() for prop in props]


@pytest.mark.parametrize(("kind", "prop"), ROWS)
def test_every_implementation_of_a_cell_computes_the_definition(
    verification: Verification, kind: str, prop: str
) -> None:
    for cell in (Cell(kind, prop, dtype) for dtype in TYPES):
        assert verification.verify(cell) == set(offered(cell, verification.target)), cell


def test_every_operation_and_propagation_kind_has_cells() -> None:
    assert MAKERS.keys() == OPERATIONS.keys()
    for props, make in MAKERS.values():
        for prop in PROP_KINDS:
            if props != ("forward",) and prop not in props:
                with pytest.raises(ValueError, match="prop"):
                    make(prop, "f32")


@pytest.mark.parametrize("engine", ["cpu", pytest.param("opencl", marks=pytest.mark.slow)])
def test_every_implementation_is_in_the_table(engine: str) -> None:
    for kind in OPERATIONS:
        found = {name for cell in cells() if cell.kind == kind for name in offered(cell, TARGETS[engine])}
        # Reorders between engines, divisions that a post-op rounds, sums of bytes, depthwise bytes by columns, Winograd's
        # products and those of bytes and of weights of 4 bits on AVX2 have tests of their own.
        listed = {implementation.name for implementation in implementations(kind, engine)} - {
            "native:quantised_division",
            "native:byte_sums",
            "native:depthwise_integer_vnni",
            "native:integer_winograd",
            "native:packed_bytes",
            "native:matmul_nbits_bytes",
        }
        assert found == {name for name in listed if not name.endswith(":cross_engine")}
