"""What a stored primitive computes, in the words of its key: operation, shapes, data types, implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from poolrt.cachestore.inspection import EntryInfo

#: Memories of an operation in the order in which they are shown; others follow.
_ORDER: Final = ("src", "weights", "dst")
#: Characters of a text in the table.
_LONGEST: Final = 48


def described(entry: EntryInfo) -> dict[str, Any]:
    """Return the facts of an entry as JSON values.

    They are those of `EntryInfo.as_dict`, and from its key ``operation``, ``implementation``, ``shapes`` and ``dtypes``: by
    the name of a memory, such as ``src``. Those are None or empty for an entry that is no primitive. A function or kernel of a
    user has ``function`` and ``signature``, an OpenCL program its kernels and its options and device; they are None for others.
    """
    fields = entry.key.fields if entry.key is not None else {}
    operation = fields.get("operation")
    memories = dict(_memories(operation)) if isinstance(operation, dict) else {}
    implementation = fields.get("implementation")
    return {
        **entry.as_dict(),
        "operation": entry.kind,
        "implementation": implementation if isinstance(implementation, str) else None,
        "shapes": {name: list(memory["dims"]) for name, memory in memories.items()},
        "dtypes": {name: memory["dtype"] for name, memory in memories.items()},
        "function": _text(fields, "function") or _kernels(fields),
        "signature": _text(fields, "signature") or _device(fields),
    }


def shapes_text(facts: Mapping[str, Any]) -> str:
    """Return shapes for people: ``1x3x8x8, 4x3x3x3 -> 1x4x6x6``."""
    shapes = {name: "x".join(map(str, dims)) or "scalar" for name, dims in facts["shapes"].items()}
    result = shapes.pop("dst", "")
    return _short(", ".join(shapes.values()) + (f" -> {result}" if result else "")) or "?"


def dtypes_text(facts: Mapping[str, Any]) -> str:
    """Return the data types for people, each once."""
    return " ".join(dict.fromkeys(facts["dtypes"].values())) or "?"


def name_text(name: str | None) -> str:
    """Return a name that a client has chosen for people: without control characters, of bounded length."""
    return _short("".join(letter if letter.isprintable() else "?" for letter in name or "-"))


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def _kernels(fields: Mapping[str, Any]) -> str | None:
    names = fields.get("kernels")
    return ", ".join(map(str, names)) if fields.get("kind") == "opencl" and isinstance(names, tuple) else None


def _device(fields: Mapping[str, Any]) -> str | None:
    device, options = fields.get("device"), fields.get("options")
    if fields.get("kind") != "opencl" or not isinstance(device, dict):
        return None
    words = [*(map(str, options) if isinstance(options, tuple) else ()), f"on {device.get('name', '?')}"]
    return " ".join(words)


def _memories(operation: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    names = [name for name in _ORDER if name in operation] + [name for name in operation if name not in _ORDER]
    for name in names:
        memory = operation[name]
        for number, each in enumerate(memory if isinstance(memory, tuple) else [memory]):
            if isinstance(each, dict) and isinstance(each.get("dims"), tuple) and isinstance(each.get("dtype"), str):
                yield name if each is memory else f"{name}{number}", each


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
