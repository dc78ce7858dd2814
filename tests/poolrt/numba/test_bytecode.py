"""What bytecode uses, beside `dis`."""

from __future__ import annotations

import dis
import sys
from pathlib import Path
from types import CodeType

import pytest

from poolrt.numba import bytecode


def codes(code: CodeType) -> list[CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += codes(constant)
    return found


@pytest.mark.skipif(sys.version_info[:2] not in bytecode._KNOWN, reason="dis reads the bytecode of this Python itself")
@pytest.mark.parametrize("module", ["argparse", "dataclasses", "decimal", "statistics", "tarfile", "typing"])
def test_instructions_are_those_of_dis(module: str) -> None:
    name = f"_py{module}" if module == "decimal" else module
    path = Path(dis.__file__).with_name(f"{name}.py")
    many = codes(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    assert len(many) > 20
    for code in many:
        expected = [each for each in dis.get_instructions(code) if each.opname not in bytecode._SKIPPED]
        found = list(bytecode.instructions(code))
        assert [name for name, _ in found] == [each.opname for each in expected]
        for (name, value), each in zip(found, expected, strict=True):
            if name in ("BINARY_OP", "COMPARE_OP"):
                assert value == each.argrepr
            elif name in (*bytecode._GLOBALS, *bytecode._CELLS, "IMPORT_NAME"):
                assert value == each.argval
            else:
                assert value == ""
