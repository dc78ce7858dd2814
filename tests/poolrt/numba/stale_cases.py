"""Functions that depend on another module, and what Numba's own cache makes of a change there.

As a program, `python -m tests.poolrt.numba.stale_cases FOLDER` imports the module of each case from a folder, calls its
function, and prints a JSON object: for each case the result and how many of its functions were compiled.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

#: What Numba's cache does: returns the old result, compiles at each start, or is right.
STALE: Final = "stale"
COMPILES: Final = "compiles"
RIGHT: Final = "right"

_OVERLOAD: Final = "from numba.extending import overload\ndef plain(x):\n    pass\n"
_USES_PLAIN: Final = "from {other} import plain\n@njit\ndef f(x):\n    return plain(x)\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A module with a function ``f``, and another one with a number for ``{}``, which changes from 1 to 1000.

    ``{other}`` is the other module's name. ``shared`` says whether poolrt can describe it, and so keeps the function.
    """

    user: str
    other: str
    numba: str = STALE
    shared: bool = True


CASES: Final = {
    "a callee in another module": Case(
        "from {other} import inner\n@njit\ndef f(x):\n    return inner(x)\n",
        "@njit\ndef inner(x):\n    return x + {}\n",
    ),
    "a callee of a callee, in a module's attribute": Case(
        "import {other} as other\n@njit\ndef f(x):\n    return other.outer(x)\n",
        "@njit\ndef inner(x):\n    return x + {}\n@njit\ndef outer(x):\n    return inner(x)\n",
    ),
    "an imported constant": Case("from {other} import K\n@njit\ndef f(x):\n    return x + K\n", "K = {}\n"),
    "a constant in another module": Case(
        "import {other} as other\n@njit\ndef f(x):\n    return x + other.K\n", "K = {}\n"
    ),
    "an element of an imported array": Case(
        "from {other} import K\n@njit\ndef f(x):\n    return x + K[1]\n", "import numpy\nK = numpy.array([1, {}])\n"
    ),
    "a member of an imported enumeration": Case(
        "from {other} import K\n@njit\ndef f(x):\n    return x + K.A.value\n",
        "import enum\nclass K(enum.IntEnum):\n    A = {}\n",
    ),
    "a default value": Case("from {other} import K\n@njit\ndef f(x, k=K):\n    return x + k\n", "K = {}\n", RIGHT),
    "a constant by its name": Case(
        "import {other} as other\n@njit\ndef f(x):\n    return x + getattr(other, 'K')\n", "K = {}\n"
    ),
    "a constant of a module that is an argument": Case(
        "import {other} as other\n@njit\ndef g(m, x):\n    return m.K + x\n@njit\ndef f(x):\n    return g(other, x)\n",
        "K = {}\n",
    ),
    "a closure over a compiled function": Case(
        "from {other} import inner\ndef make(g):\n    @njit\n    def h(x):\n        return g(x)\n    return h\nf = make(inner)\n",
        "@njit\ndef inner(x):\n    return x + {}\n",
        COMPILES,
    ),
    "a compiled function as an argument": Case(
        "from {other} import inner\n@njit\ndef apply(g, x):\n    return g(x)\ndef f(x):\n    return apply(inner, x)\n",
        "@njit\ndef inner(x):\n    return x + {}\n",
        COMPILES,
    ),
    "a set of texts, under another hash seed": Case(
        "from {other} import K\n@njit\ndef f(x):\n    return len({'a', 'b', 'c', 'd', 'e'}) - 5 + x + K\n", "K = {}\n"
    ),
    "an overload": Case(_USES_PLAIN, f"{_OVERLOAD}@overload(plain)\ndef _plain(x):\n    return lambda x: x + {{}}\n"),
    "an overload with a closure": Case(
        _USES_PLAIN,
        f"{_OVERLOAD}K = {{}}\n@overload(plain)\ndef _plain(x):\n    k = K\n    return lambda x: x + k\n",
    ),
    "an overload of an operator": Case(
        "import {other}\n@njit\ndef f(x):\n    return x + (1, 2) @ (3, 4)\n",
        "import operator\nfrom numba.extending import overload, types\n@overload(operator.matmul)\ndef _matmul(a, b):\n"
        "    if isinstance(a, types.UniTuple):\n        return lambda a, b: {}\n",
    ),
    "a member of a class that an overload reads": Case(
        _USES_PLAIN,
        f"{_OVERLOAD}class C:\n    K = {{}}\n@overload(plain)\ndef _plain(x):\n    k = C.K\n    return lambda x: x + k\n",
    ),
    "a result that an overload's helper keeps": Case(
        _USES_PLAIN,
        f"{_OVERLOAD}import functools\n@functools.cache\ndef k():\n    return {{}}\n@overload(plain)\ndef _plain(x):\n"
        "    found = k()\n    return lambda x: x + found\n",
        shared=False,
    ),
    "an object that an overload reads": Case(
        _USES_PLAIN,
        f"{_OVERLOAD}import types\nC = types.SimpleNamespace(K={{}})\n@overload(plain)\ndef _plain(x):\n    k = C.K\n"
        "    return lambda x: x + k\n",
        shared=False,
    ),
    "a module that an overload imports": Case(
        _USES_PLAIN,
        f"{_OVERLOAD}K = {{}}\n@overload(plain)\ndef _plain(x):\n    import {{other}} as this\n    k = this.K\n"
        "    return lambda x: x + k\n",
        shared=False,
    ),
    "a lowering": Case(
        _USES_PLAIN,
        "from numba.core.typing.templates import AbstractTemplate, infer_global, signature\n"
        "from numba.core.imputils import lower_builtin\nfrom numba.core import types\nfrom llvmlite import ir\n"
        "def plain(x):\n    pass\n@infer_global(plain)\nclass Template(AbstractTemplate):\n    def generic(self, args, kws):\n"
        "        return signature(args[0], args[0])\n@lower_builtin(plain, types.Integer)\n"
        "def low(context, builder, sig, args):\n"
        "    return builder.add(args[0], ir.Constant(args[0].type, {}))\n",
        shared=False,
    ),
}  # fmt: skip


def modules(number: int) -> tuple[str, str]:
    """Return the names of a case's two modules."""
    # One has the name of a module of Python that nothing here imports.
    return f"stale_user_{number}", "wave" if number == 0 else f"stale_other_{number}"


def main(folder: str) -> None:
    """Print what became of each case."""
    sys.path.insert(0, folder)
    compiled: list[str] = []
    compiler: Any = importlib.import_module("numba.core.compiler")
    compiler.compile_extra = _counting(compiler.compile_extra, compiled)
    results = {}
    for number, name in enumerate(CASES):
        before = len(compiled)
        result = importlib.import_module(modules(number)[0]).f(0)
        results[name] = [result, len(compiled) - before]
    print(json.dumps(results))


def _counting(plain: Callable[..., Any], compiled: list[str]) -> Callable[..., Any]:
    def compile_extra(typing_context: Any, target_context: Any, function: Any, *rest: Any, **options: Any) -> Any:
        if function.__module__.startswith(("stale_", "wave")):
            compiled.append(function.__qualname__)
        return plain(typing_context, target_context, function, *rest, **options)

    return compile_extra


if __name__ == "__main__":
    main(sys.argv[1])
