"""Mutations of ONNX files, the same for the same number: damaged bytes, and fields with other values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from .model_seeds import seeds

_Random = random.Random
_INTEGERS: Final = (
    0, 1, 2, 3, -1, -2, 7, 16, 63, 64, 65, 127, 255, 1000, 4096, 65536, 30_000, 10**6, 2**24, 2**27, 2**28 + 1, 2**31 - 1,
    -(2**31), 2**32, 2**40, 2**61, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
_TEXTS: Final = (
    "",
    "x",
    "y",
    "\n",
    "a\x00b",
    "ü",
    "../../etc/passwd",
    "axis",
    "value",
    "Constant",
    "Concat",
    "Reshape",
)
_CPP: Final = FieldDescriptor


def mutate(number: int) -> bytes:
    """Return a seed with one to four mutations."""
    rng = _Random(number)
    content = rng.choice(seeds())
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        content = _of_fields(content, rng) if rng.random() < 0.9 else rng.choice(_OF_BYTES)(content, rng)
    return content


def _flip(content: bytes, rng: _Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 32)) if content else 0):
        damaged[_place(content, rng)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _overwrite(content: bytes, rng: _Random) -> bytes:
    damaged = bytearray(content)
    if content:
        damaged[_place(content, rng)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(damaged)


def _cut(content: bytes, rng: _Random) -> bytes:
    return content[: _place(content, rng)]


def _remove(content: bytes, rng: _Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at + rng.randrange(1, 40) :]


def _repeat(content: bytes, rng: _Random) -> bytes:
    at, size = _place(content, rng), rng.randrange(1, 200)
    return content[:at] + content[at : at + size] * rng.choice((2, 2, 3, 50)) + content[at + size :]


def _splice(content: bytes, rng: _Random) -> bytes:
    other = rng.choice(seeds())
    at, start = _place(content, rng), _place(other, rng)
    return content[:at] + other[start : start + rng.randrange(1, 300)] + content[at:]


_OF_BYTES: Final[tuple[Callable[[bytes, _Random], bytes], ...]] = (_flip, _overwrite, _cut, _remove, _repeat, _splice)


def _place(content: bytes, rng: _Random) -> int:
    return rng.randrange(len(content)) if content else 0


def _of_fields(content: bytes, rng: _Random) -> bytes:
    """Change one field anywhere in the message; bytes that are no message any more are changed as bytes."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        messages = _messages(model)
        for _ in range(rng.choice((1, 1, 2))):
            _change(rng.choice(messages), messages, rng)
        return bytes(model.SerializeToString())
    except (ValueError, TypeError, DecodeError, EncodeError):
        return _flip(content, rng)


def _messages(root: Message) -> list[Message]:
    found, left = [], [root]
    while left:
        message = left.pop()
        found.append(message)
        for field, value in message.ListFields():
            if field.cpp_type == _CPP.CPPTYPE_MESSAGE:
                left += list(value) if field.is_repeated else [value]
    return found


def _change(message: Message, messages: list[Message], rng: _Random) -> None:
    present = [field for field, _ in message.ListFields()]
    fields = present if present and rng.random() < 0.8 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_list(getattr(message, field.name), field, messages, rng)
    elif field.cpp_type == _CPP.CPPTYPE_MESSAGE:
        same = [each for each in messages if each.DESCRIPTOR is field.message_type]
        if same:
            getattr(message, field.name).CopyFrom(_copy(rng.choice(same)))
    else:
        setattr(message, field.name, _value(field, messages, rng))


def _change_list(items: Any, field: Any, messages: list[Message], rng: _Random) -> None:
    action = rng.randrange(5)
    if action == 0 and items:
        del items[rng.randrange(len(items))]
    elif action == 1 and items:
        items.extend([items[rng.randrange(len(items))]] * rng.choice((1, 1, 2, 70)))
    elif action == 2 and len(items) > 1:
        kept = [_copy(each) if isinstance(each, Message) else each for each in items]
        rng.shuffle(kept)
        del items[:]
        items.extend(kept)
    elif field.cpp_type == _CPP.CPPTYPE_MESSAGE:
        same = [each for each in messages if each.DESCRIPTOR is field.message_type]
        items.extend([_copy(rng.choice(same))] if same else [])
    elif items and rng.random() < 0.8:
        items[rng.randrange(len(items))] = _value(field, messages, rng)
    else:
        items.append(_value(field, messages, rng))


def _copy(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _value(field: Any, messages: list[Message], rng: _Random) -> Any:
    match field.cpp_type:
        case _CPP.CPPTYPE_INT32:
            return rng.choice([each for each in _INTEGERS if -(2**31) <= each < 2**31])
        case _CPP.CPPTYPE_INT64:
            return rng.choice(_INTEGERS)
        case _CPP.CPPTYPE_UINT32 | _CPP.CPPTYPE_UINT64 | _CPP.CPPTYPE_BOOL:
            return rng.choice((0, 1))
        case _CPP.CPPTYPE_FLOAT | _CPP.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case _CPP.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
    # Text and bytes: what another field contains, so that names refer to something.
    texts = [value for message in messages for each, value in message.ListFields() if isinstance(value, str) and each]
    text = rng.choice((*_TEXTS, *texts, *texts)) * rng.choice((1, 1, 1, 1, 300))
    if field.type == _CPP.TYPE_BYTES:
        return rng.choice((text.encode(), rng.randbytes(rng.choice((0, 1, 3, 4, 8, 4096)))))
    return text
