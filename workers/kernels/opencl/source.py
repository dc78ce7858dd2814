"""The source text of a kernel: its parameters as macros, the prelude, and the file that the spec names.

The kernel in ``<generator>.cl`` is called like the file. A parameter ``x`` becomes the macro ``X``: integers and truth
values as numbers, floats as exact hexadecimal literals, text unchanged. Three parameters have a meaning of their own:

``local`` the work-group size that the kernel is launched with · ``grids`` which grid classes, ``small`` unless given ·
``post_ops`` the chain, ``("eltwise", algorithm, alpha, beta)`` or ``("binary", algorithm)`` each, at most one binary

Reference kernels have other macros, see `reference_macros`, and other shared texts.
"""

from __future__ import annotations

import base64
import math
import os
import re
from typing import Any, Final

from ..spec import KernelSpec, Value
from .reference_macros import reference_macros

#: Lines are joined before directives are read. Spaces and comments may be before the word; each end of a comment counts, which
#: refuses some texts more.
_SPLICE: Final = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")
_INCLUDE: Final = re.compile(r"(?:#|%:|\?\?=|\*/)[ \t\v\f]*(?:include|import|embed)|__has_(?:include|embed)")
#: The kernel that calls one of a user: the user's text comes first, so that the compiler's log has its lines.
USER_CALL: Final = "poolrt_call"
_LOCAL: Final = re.compile(r"\b(?:__)?local\b")
_RESERVED: Final = frozenset({"local", "grids", "post_ops"})
#: Texts in front of each reference kernel's own.
_PIECES: Final = tuple(f"reference.{name}" for name in ("tensors", "functions", "epilogue", "windows", "rows"))


def kernel_source(spec: KernelSpec) -> str:
    """Return the whole text that is compiled for a kernel; it includes nothing else."""
    params: dict[str, Any] = dict(spec.params)
    if spec.generator == USER_CALL:
        names = ("function", "parameters", "arguments")
        macros = [f"#define POOLRT_{name.upper()} {params[name]}" for name in names]
        source = user_source(spec)
        refuse_includes(source)
        # The word may be in an option that defines a macro.
        has_locals = _LOCAL.search(f"{source} {params['options']}") is not None
        text = _own_locals(source, params["function"]) if has_locals else [source]
        return "\n".join([*text, *macros, *map(_text, text_names(spec.generator))])
    if spec.generator.startswith("reference."):
        macros = reference_macros(params)
    else:
        macros = [f"#define {name.upper()} {literal(value)}" for name, value in params.items() if name not in _RESERVED]
        macros += _chain(params.get("post_ops", ()))
    return "\n".join([*macros, *map(_text, text_names(spec.generator))])


def user_source(spec: KernelSpec) -> str:
    """Return the text of a user's kernel."""
    params: dict[str, Any] = dict(spec.params)
    return base64.b85decode("".join(params["code"])).decode()


def _own_locals(source: str, function: str) -> list[str]:
    """Return a user's text so that PoCL gives each work-group ``__local`` variables of its own in a kernel that is called.

    PoCL finds them by the name of the kernel that is launched, a dot, and the variable; elsewhere they would be shared by all
    threads, and results wrong. OpenCL leaves this case to implementations. So the kernel gets such a name where it is declared
    first, which is where its name is first followed by a parenthesis, as the preprocessor sees it: a macro does it, and removes
    itself. A kernel that it does not find is refused by `build`.
    """
    declared = f"{function}(__VA_ARGS__)"
    once = f'_Pragma("pop_macro(\\"{function}\\")")'
    return [
        "#ifdef POCL_DEVICE_ADDRESS_BITS",
        f'#pragma push_macro("{function}")',
        f'#define {function}(...) {once} {declared} __asm("{USER_CALL}.{function}"); __kernel void {declared}',
        "#endif",
        "#line 1",
        source,
        "#ifdef POCL_DEVICE_ADDRESS_BITS",
        f'#pragma pop_macro("{function}")',
        "#endif",
    ]


def refuse_includes(source: str) -> None:
    """Raise ValueError if a text includes files, whose content no key has."""
    if _INCLUDE.search(_SPLICE.sub("", source)):
        raise ValueError("the source includes files: give the whole text")


def text_names(generator: str) -> tuple[str, ...]:
    """Return the texts that a kernel is compiled from, in order: shared ones, then its own. A folder ends with a dot."""
    if generator == USER_CALL:
        return (generator,)
    return *(_PIECES if generator.startswith("reference.") else ("prelude",)), generator


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name.replace('.', '/')}.cl"), encoding="ascii") as file:
        return file.read()


def literal(value: Value) -> str:
    """Return a parameter's value as OpenCL C text. Raises TypeError for values that have no such form."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        return ("-" if value < 0 else "") + "INFINITY" if math.isinf(value) else f"{value.hex()}f"
    if isinstance(value, (int, str)):
        return str(value)
    raise TypeError(f"a kernel parameter must be a number or text, got {value!r}")


def _chain(steps: Value) -> list[str]:
    calls = []
    if not isinstance(steps, tuple):
        raise TypeError(f"post_ops must be a tuple, got {steps!r}")
    for step in steps:
        if not isinstance(step, tuple):
            raise TypeError(f"a post-op must be a tuple, got {step!r}")
        kind, algorithm, *constants = step
        extra = ["other"] if kind == "binary" else [literal(c) for c in constants]
        calls.append(f"x = {kind}_{algorithm}({', '.join(['x', *extra])});")
    binary = sum(isinstance(step, tuple) and step[0] == "binary" for step in steps)
    return [f"#define POST_BINARY {binary}", f"#define POST_OPS(x, other) {' '.join(calls)}"]
