"""The syntax trees of functions, found in the files that define them; each file is read and parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType

from .operands import Refused


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a function. Raises Refused if its file does not define it, as of a lambda."""
    code = function.__code__
    found = _functions(code.co_filename).get(code.co_firstlineno)
    if found is None or found.name != code.co_name:
        raise Refused(f"{function.__qualname__} is defined by no `def` in {code.co_filename}")
    return found


@lru_cache(maxsize=256)
def _functions(path: str) -> dict[int, ast.FunctionDef]:
    """Return the functions of a file by their first line, which is that of the first decorator."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    return {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): node
        for node in _definitions(tree)
    }


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Return the functions that a module or statement contains; to look at expressions, too, would take five times as long."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            if isinstance(each, ast.FunctionDef):
                yield each
            yield from _definitions(each)
