"""Syntax trees: a function is found wherever a module defines it."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from poolrt.workers.kernels.native.compiler.operands import Refused
from poolrt.workers.kernels.native.compiler.source_text import tree_of


def _identity(function: Any) -> Any:
    return function


def _defined() -> dict[str, Any]:
    """Return functions that are defined in all kinds of statements."""
    found: dict[str, Any] = {}
    for _ in range(1):

        def in_for() -> None:
            pass

        found["in_for"] = in_for
    else:

        @_identity
        def in_else() -> None:
            pass

        found["in_else"] = in_else
    try:
        raise ValueError
    except ValueError:

        def in_except() -> None:
            pass

        found["in_except"] = in_except
    finally:

        def in_finally() -> None:
            pass

        found["in_finally"] = in_finally
    match len(found):
        case 4:

            def in_case() -> None:
                def in_function() -> None:
                    pass

                found["in_function"] = in_function

            in_case()
            found["in_case"] = in_case
    with pytest.raises(KeyError):

        def in_with() -> None:
            pass

        found["in_with"] = in_with
        raise KeyError

    class Holder:
        def in_class(self) -> None:
            pass

    found["in_class"] = Holder.in_class
    while "in_while" not in found:
        if found:

            def in_while() -> None:
                pass

            found["in_while"] = in_while
    return found


def test_a_function_is_found_in_any_statement() -> None:
    functions: dict[str, FunctionType] = _defined()
    assert len(functions) == 9
    assert {name: tree_of(function).name for name, function in functions.items()} == {name: name for name in functions}


def test_a_function_without_a_def_is_refused() -> None:
    unnamed: Any = lambda: None  # noqa: E731
    with pytest.raises(Refused, match="is defined by no `def` in"):
        tree_of(unnamed)
