"""What the bytecode of a function uses: names, signs, imports. Imports no compiler."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, Final

#: Sign -> the function of the module `operator` that Numba calls for it.
_SIGNS: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift", "[]": "getitem",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
#: Instruction -> the same.
_INSTRUCTIONS: Final = {
    "BINARY_SUBSCR": "getitem", "BINARY_SLICE": "getitem", "STORE_SUBSCR": "setitem", "STORE_SLICE": "setitem",
    "DELETE_SUBSCR": "delitem", "CONTAINS_OP": "contains", "IS_OP": "is_", "UNARY_NEGATIVE": "neg",
    "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert", "UNARY_NOT": "not_", "CALL_INTRINSIC_1": "pos",
}  # fmt: skip
_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_CELLS: Final = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD")
#: Instructions that do nothing by themselves.
_SKIPPED: Final = ("EXTENDED_ARG", "CACHE", "NOP", "PUSH_NULL")
#: Versions of Python whose arguments of these instructions `_fast_instructions` knows; `dis` takes six times as long.
_KNOWN: Final = ((3, 11), (3, 12), (3, 13))


class Uses:
    """What a function uses, with the functions that are defined in it. No dataclass: a warm start imports none."""

    __slots__ = ("globals", "imports", "names", "operators", "passed_on", "strings")

    def __init__(self) -> None:
        #: Globals.
        self.globals: set[str] = set()
        #: Names of globals and of attributes.
        self.names: set[str] = set()
        #: Globals and names of closures whose value is used otherwise than by its attributes: assigned, or an argument.
        self.passed_on: set[str] = set()
        #: Identifiers among the texts of constants, such as the name in a call of `getattr`.
        self.strings: set[str] = set()
        #: Functions of the module `operator` that stand behind signs.
        self.operators: set[str] = set()
        #: Modules that it imports.
        self.imports: set[str] = set()


def uses(code: CodeType) -> Uses:
    """Return what the bytecode of a function uses."""
    found = Uses()
    for each in _codes(code):
        found.names.update(each.co_names)
        found.strings.update(_identifiers(each.co_consts))
        loaded = None
        for name, value in instructions(each):
            if loaded is not None and name not in _ATTRIBUTES:
                found.passed_on.add(loaded)
            loaded = None
            if name in _GLOBALS:
                found.globals.add(value)
                loaded = value
            elif name in _CELLS:
                loaded = value
            elif name == "IMPORT_NAME":
                found.imports.add(value)
            elif name == "BINARY_OP":
                if value not in _SIGNS:
                    sign = value.removesuffix("=")
                    found.operators.add(f"i{_SIGNS.get(sign, '').rstrip('_')}")
                    value = sign
                found.operators.add(_SIGNS.get(value, ""))
            elif name == "COMPARE_OP":
                found.operators.add(_SIGNS.get(value.removeprefix("bool(").removesuffix(")"), ""))
            elif name in _INSTRUCTIONS:
                found.operators.add(_INSTRUCTIONS[name])
    return found


def instructions(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield the instructions of some bytecode, each with the name or the sign that it is about, if it is."""
    if sys.version_info[:2] in _KNOWN:
        yield from _fast_instructions(code)
        return
    for instruction in dis.get_instructions(code):
        if instruction.opname not in _SKIPPED:
            yield instruction.opname, _meant(instruction)


def _fast_instructions(code: CodeType) -> Iterator[tuple[str, str]]:
    names, cells = code.co_names, None
    units, high = code.co_code, 0
    for operation, low in zip(units[::2], units[1::2], strict=True):
        kind = _KINDS.get(operation)
        if kind is None:
            high = 0
            yield _NAMES[operation], ""
            continue
        argument, high = high | low, 0
        if kind == "extended":
            high = argument << 8
        elif kind == "name":
            yield _NAMES[operation], names[argument]
        elif kind == "global":
            yield _NAMES[operation], names[argument >> 1]
        elif kind == "cell":
            if cells is None:
                places = dict.fromkeys((*code.co_varnames, *code.co_cellvars))  # an argument may be a cell
                cells = (*places, *code.co_freevars)
            yield _NAMES[operation], cells[argument]
        elif kind == "sign":
            yield _NAMES[operation], _sign(operation, argument)


@lru_cache(maxsize=256)
def _sign(operation: int, argument: int) -> str:
    (instruction,) = dis.get_instructions(_sign.__wrapped__.__code__.replace(co_code=bytes((operation, argument))))
    return _meant(instruction)


def _meant(instruction: dis.Instruction) -> str:
    """Return the name or the sign that an instruction is about."""
    if instruction.opname in ("BINARY_OP", "COMPARE_OP"):
        return instruction.argrepr
    return instruction.argval if isinstance(instruction.argval, str) else ""


#: Name of each instruction by its number.
_NAMES: Final = dis.opname
#: Number of an instruction -> what its argument is; of all others it does not matter.
_KINDS: Final = {
    dis.opmap[name]: kind
    for kind, these in (
        ("extended", ("EXTENDED_ARG",)),
        ("skipped", _SKIPPED[1:]),
        ("name", ("LOAD_NAME", "IMPORT_NAME")),
        ("global", ("LOAD_GLOBAL",)),
        ("cell", _CELLS),
        ("sign", ("BINARY_OP", "COMPARE_OP")),
    )
    for name in these
    if name in dis.opmap
}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _identifiers(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.isidentifier():
            yield value
    elif isinstance(value, (tuple, frozenset)):
        for item in value:
            yield from _identifiers(item)
