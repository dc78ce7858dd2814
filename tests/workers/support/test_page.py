"""The page of what is supported is the one that would be written now, and what it says of other machines is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .page import COMMAND, PAGE, page, plain_alone, reasons
from .problems import cells
from .table import TARGETS, offered


def test_the_page_lists_what_primitive_descriptors_offer_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"docs/primitives.md is not up to date: {COMMAND}"


def test_each_operation_whose_f32_is_plain_alone_has_a_reason_and_none_is_on_the_processor() -> None:
    alone = plain_alone()
    assert {*alone} == {*reasons()}
    assert not any(engine == "cpu" for engine, _ in alone)
    gradients = [props for key, props in alone.items() if reasons()[key].startswith("only gradients")]
    assert gradients
    assert all(prop.startswith("backward") for props in gradients for prop in props)


@pytest.mark.slow
def test_weaker_processors_lack_nothing_but_what_needs_their_extensions() -> None:
    weakest = replace(TARGETS["cpu"], device=(("isa", "x86-64"),))
    for cell in cells():
        best = offered(cell, TARGETS["cpu"])
        assert offered(cell, weakest) == tuple(name for name in best if not name.endswith(("_vnni", "_bf16", "_amx")))


@pytest.mark.slow
def test_a_device_without_double_precision_lacks_the_types_that_need_it() -> None:
    double = TARGETS["opencl"]
    single = replace(double, device=tuple((k, "False" if k == "fp64" else v) for k, v in double.device))
    for cell in cells():
        expected = () if cell.dtype in ("f64", "s64", "u64") else offered(cell, double)
        assert offered(cell, single) == expected, cell
