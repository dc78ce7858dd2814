"""Descriptions of exceptions: the exception again in a process that has the class, a text elsewhere, nothing from other bytes."""

from __future__ import annotations

import ctypes

import pytest

from poolrt.workers.engines.raised import Raised, describe_raised, parse_raised, raised_at


class Own(Exception):
    def __init__(self, limit: int, text: str) -> None:
        super().__init__(limit, text)
        self.limit = limit


class Picky(Exception):
    def __init__(self) -> None:
        raise KeyError("never made")


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (ValueError, (), "ValueError"),
        (ValueError, ("negative",), "ValueError: negative"),
        (IndexError, ("a\0b ✓ \n", 3), r"IndexError: ('a\x00b ✓ \n', 3)"),
        (Own, (3, "x"), "Own: (3, 'x')"),
        (OverflowError, (1.5, None, True, float("inf")), "OverflowError: (1.5, None, True, inf)"),
        (ValueError, (1 << 80, (1, 2), "x" * 5000), None),
    ],
)
def test_an_exception_is_itself_again(kind: type[Exception], arguments: tuple[object, ...], text: str | None) -> None:
    described = describe_raised(kind, arguments)
    line = described.text().encode()
    assert b"\0" not in line
    room = ctypes.create_string_buffer(line)
    found = raised_at(ctypes.addressof(room))
    assert found is not None
    assert found == described
    made = found.exception()
    assert type(made) is kind
    if text is None:
        assert made.args == (str(1 << 80), "(1, 2)", "x" * 1000)
    else:
        assert (made.args, str(described)) == (arguments, text)


@pytest.mark.parametrize(
    "raised",
    [
        Raised("gone", "Own", ("x",)),
        Raised("builtins", "Gone", ("x",)),
        Raised("builtins", "print", ("x",)),
        Raised("builtins", "int", ("x",)),
        Raised("builtins", "SystemExit", ("x",)),
        Raised("builtins", "KeyboardInterrupt", ("x",)),
        Raised(__name__, "Picky", ("x",)),
        Raised(__name__, "Own", ("x",)),
    ],
)
def test_what_is_no_exception_class_of_this_process_is_a_runtime_error_that_names_it(raised: Raised) -> None:
    made = raised.exception()
    assert type(made) is RuntimeError
    assert str(made) == f"{raised.name}: x"


@pytest.mark.parametrize("text", ["", "x", "poolrt raised ", "poolrt raised 5", "poolrt raised [1, 2, 3]"])
def test_other_texts_describe_nothing(text: str) -> None:
    assert parse_raised(text) is None
    room = ctypes.create_string_buffer(text.encode())
    assert raised_at(ctypes.addressof(room)) is None
    assert parse_raised(f'poolrt raised ["a", "b", [{"[" * 5000}]') is None
    assert parse_raised('poolrt raised ["a", "b", [{}]]') is None
    assert raised_at(None) is None
