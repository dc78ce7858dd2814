"""The differences between two keys as text; those of users' functions in the words of their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from poolrt.cli.cache.values import short_text

#: Kinds of keys that describe a user's function with all that it reaches.
_FUNCTIONS: Final = ("numba", "kernel", "kernel of graphs")
#: Fields of functions that repeat what `signature` says.
_REPEATED: Final = "types"
#: Values that stand for the whole content of an array or of a long text: their last item is its digest.
_DIGESTED: Final = {"array": "an array", "long": "a long text"}


def reasons(here: Mapping[str, Any], there: Mapping[str, Any], differences: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the differences of a key from another one, a text each. The values of ``differences`` are (here, there)."""
    if here.get("kind") == "opencl":
        return [_of_program(path, values) for path, values in differences.items()]
    if here.get("kind") not in _FUNCTIONS:
        return [_plain(path, values) for path, values in differences.items()]
    found = dict.fromkeys(_of_functions(here, there))
    for path, values in differences.items():
        field, _, name = path.partition(".")
        field = field.partition("[")[0]
        if field in ("callees", "code", "constants", "defaults") or (field == _REPEATED and "signature" in differences):
            continue
        if field == "flags" and f"options.{name}" in differences:
            continue  # the compiler's flag for the same option
        found[_plain(path, values)] = None
    return list(found)


def _of_functions(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences of a function and of all that it reaches."""
    own, others = ({name: key.get(name) for name in ("code", "constants", "defaults")} for key in (here, there))
    yield from _of_function("", own, others)
    callees, before = here.get("callees") or {}, there.get("callees") or {}
    for name in sorted({*callees, *before}):
        if name not in before:
            yield f"callee {name}: new"
        elif name not in callees:
            yield f"callee {name}: no longer reached"
        else:
            yield from _of_function(name, callees[name], before[name])


def _of_function(callee: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    if here.get("code") != there.get("code"):
        yield f"callee {callee}: its code" if callee else "its own code"
    of = f" of callee {callee}" if callee else ""
    if here.get("defaults") != there.get("defaults"):
        yield f"defaults{of}: {_text(there.get('defaults'))}, here {_text(here.get('defaults'))}"
    if here.get("options") != there.get("options"):
        yield f"options{of}: {_text(there.get('options'))}, here {_text(here.get('options'))}"
    constants, before = here.get("constants") or {}, there.get("constants") or {}
    for name in sorted({*constants, *before}):
        if name not in before or name not in constants:
            yield f"name {name}{of}: {'new' if name in constants else 'no longer used'}"
        elif constants[name] != before[name] or type(constants[name]) is not type(before[name]):
            yield f"constant {name}{of}: {_change(constants[name], before[name])}"


def _change(here: Any, there: Any) -> str:
    """Return a constant's change: the values, or only the words for a content whose digest the key has."""
    for mark, words in _DIGESTED.items():
        if isinstance(here, tuple) and isinstance(there, tuple) and here[:1] == there[:1] == (mark,):
            return f"{words} of other content" if here[:-1] == there[:-1] else f"{words} of other type, shape or layout"
    return f"{_text(there)}, here {_text(here)}"


def _of_program(path: str, values: tuple[Any, Any]) -> str:
    if path == "source":
        return "its source"
    if path.startswith("includes."):
        return f"the included file {path.removeprefix('includes.').partition(' in ')[0].partition('[')[0]}"
    return _plain(path, values)


def _plain(path: str, values: tuple[Any, Any]) -> str:
    here, there = values
    return f"{path}: {_text(there)}, here {_text(here)}"


def _text(value: Any) -> str:
    from poolrt.cachestore import ABSENT

    if value is ABSENT:
        return "absent"
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        kind = value[0]
        if kind in ("function", "named", "compiled") and len(value) > 1:
            return f"{kind} {value[-1] if kind != 'named' else value[2]}"
        if kind in ("list", "tuple", "set", "frozenset"):
            return f"{kind} {short_text(value[1:])}"
    return short_text(value)
