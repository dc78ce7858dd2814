"""Programs as users write them, each with a function ``run``, whose results are the same with Numba and with poolrt.

As a program, `python -m tests.poolrt.numba.user_cases FOLDER` imports the module of each case from a folder, in which a module
``door`` has the decorators, and prints a JSON object: for each case what its function returned.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Final

_HEAD: Final = "import numba, numpy as np\nfrom numba import prange, typed, types\nfrom door import *\n"

CASES: Final = {
    "arguments": """
@njit
def f(x, a=1, b=2.5, c=(1, 2), d=None, e='k'):
    return x + a + b + c[0] + c[1] + len(e) if d is None else x + d
@njit
def g(x, *rest):
    return x + len(rest)
def run():
    return [f(1), f(1, 2), f(1, b=3), f(1, d=4), f(x=1, c=(3, 4)), f(1, e='abc'), g(1), g(1, 2, 3.0)]
""",
    "tuples and records": """
from collections import namedtuple
P = namedtuple('P', 'x y')
T = np.dtype([('a', 'i4'), ('b', 'f8', (3,)), ('n', [('q', 'u1')])], align=True)
@njit
def swapped(p, t):
    return P(p.y + t[0], p.x), (t[1], (t[0], p.x))
@njit
def filled(a):
    total = 0
    for i in range(a.size):
        a[i].b[1] = 4.5
        a[i]['n']['q'] = i
        total += a[i].a + a[i].n.q
    return total
def run():
    a = np.zeros(3, T)
    return [swapped(P(1, 2.0), (3, 'a')), filled(a), a.tolist()]
""",
    "members of a compiled class": """
from numba.experimental import jitclass
@njit
def thrice(x):
    return x * 3
@jitclass([('v', types.float64)])
class C:
    def __init__(self, v):
        self.v = v
    def m(self, k=2):
        return thrice(self.v) * k
    @property
    def p(self):
        return self.v + 1
@njit
def f(c):
    c.v += 1
    return c.m() + c.p
def run():
    c = C(2.0)
    return [c.m(), c.m(3), c.p, f(c), thrice(1.0)]
""",
    "generators": """
@njit
def pairs(a):
    for i in range(a.size):
        yield a[i], i
@njit
def total(a):
    found = 0.0
    for x, i in pairs(a):
        found += x * i
    return found
def run():
    return [list(pairs(np.arange(3.0))), total(np.arange(4.0))]
""",
    "typed containers with texts as keys": """
@njit
def f(l, d):
    l.append(4)
    d['x'] = 7
    return sum([d[k] + len(k) for k in d]) + sum([v for v in l])
@njit
def made():
    d = typed.Dict.empty(types.unicode_type, types.float64[:])
    d['ä'] = np.arange(3.0)
    return d
def run():
    l, d = typed.List([1, 2]), typed.Dict()
    d['q'] = 1
    return [f(l, d), list(l), dict(d), {name: a.tolist() for name, a in made().items()}]
""",
    "Python in compiled code": """
import json
def of_python(x):
    return float(json.loads(json.dumps(x))) * 2
@njit
def f(x):
    with numba.objmode(y='float64', z='unicode_type'):
        y = of_python(x)
        z = 'of ' + str(x)
    return y + 1, z
def run():
    return [f(2.0), f(3.5)]
""",
    "overloads": """
from numba.extending import intrinsic, overload, overload_attribute, overload_method, register_jitable
def clip(x, lo, hi=9):
    raise NotImplementedError
@overload(clip, jit_options={'fastmath': True})
def _clip(x, lo, hi=9):
    if isinstance(x, types.Array):
        return lambda x, lo, hi=9: np.minimum(np.maximum(x, lo), hi)
    return lambda x, lo, hi=9: min(max(x, lo), hi)
@overload_method(types.Array, 'times')
def _times(a, k=2):
    return lambda a, k=2: a.sum() * k
@overload_attribute(types.Array, 'first')
def _first(a):
    return lambda a: a[0]
@register_jitable
def hundred(x):
    return x + 100
@intrinsic
def seven(typing, x):
    return x(x), lambda c, b, s, args: b.add(args[0], c.get_constant(s.return_type, 7))
@njit
def f(a, x):
    return clip(a, 1.0).sum() + clip(x, 2) + a.times() + a.times(k=3) + a.first + hundred(x) + seven(x)
def run():
    return [f(np.arange(12.0), 20), f(np.arange(3.0), 1)]
""",
    "parallel loops": """
@njit(parallel=True)
def f(a, k=2):
    total, b = 0.0, np.empty_like(a)
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j] * k
        total += a[i].sum()
    return total, b, (a + b).max()
def run():
    a = np.arange(24.0).reshape(6, 4)
    return [str(f(a)), str(f(a, k=3))]
""",
    "callbacks": """
import ctypes
@njit
def twice(x):
    return x * 2
@cfunc('float64(float64, int64)')
def c(x, n):
    return twice(x) + n
@cfunc(types.void(types.CPointer(types.double), types.intc))
def add(p, n):
    a = numba.carray(p, (n,))
    for i in range(n):
        a[i] += 1
@njit
def call(function, x):
    return function(x, 3)
def run():
    a = np.arange(3.0)
    add.ctypes(a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), 3)
    return [c.ctypes(2.0, 3), call(c, 1.5), a.tolist()]
""",
    "ufuncs in a class": """
class A:
    @staticmethod
    @vectorize
    def lazy(x, y):
        return x * y + 1
    @vectorize(['f8(f8)', 'f4(f4)'])
    def eager(x):
        return x * 2
    @guvectorize(['(f8[:], f8[:], f8[:])'], '(n),()->(n)')
    def general(x, y, r):
        for i in range(x.size):
            r[i] = x[i] + y[0]
@vectorize(['i8(i8, i8)', 'f8(f8, f8)'], identity=0)
def added(x, y):
    return x + y
def run():
    a = np.arange(3.0)
    found = [A.lazy(a, 2), A.eager(a.astype('f4')), A.general(a, 1.0), added.accumulate(a), added.outer(a, a)]
    return [A.lazy(2, 3), added.reduce(np.arange(5)), *(each.tolist() for each in found)]
""",
    "lambdas and closures": """
f = njit(lambda x: x + 1)
g = njit(lambda x: x + 2)
several = [njit(lambda x, k=k: x * k) for k in (2, 3)]
def made(k, function):
    @njit
    def h(x):
        square = lambda y: y * y + x
        return function(square(x)) - k
    return h
def run():
    return [f(1), g(1), [each(5) for each in several], made(1, f)(5), made(1, g)(5), made(2, g)(5)]
""",
    "a package": """
import user_package
from user_package import part
@njit
def f(x):
    return user_package.outer(x) + user_package.part.inner(x) + part.K
def run():
    return [user_package.outer(1), user_package.eager(1), f(2), part.Holder.m(1)]
""",
    "errors": """
class Own(ValueError):
    def __init__(self, a, b=1):
        super().__init__(a, b)
@njit
def f(x):
    if x == 1:
        raise Own('one')
    if x == 2:
        return 1 // (x - 2)
    assert x != 3, 'three'
    return x
@njit
def unknown(x):
    return x.nothing
def run():
    found = []
    for function, x in [(f, 0), (f, 1), (f, 2), (f, 3), (unknown, 1), (unknown, 1)]:
        try:
            found.append(function(x))
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    return found
""",
}
#: Path -> text of the package of one case.
PACKAGE: Final = {
    "user_package/__init__.py": """
from door import *
from . import late
from .part import K, inner
@njit
def outer(x):
    return inner(x) + K + late.L
@njit('int64(int64)')
def eager(x):
    return x + K
""",
    "user_package/late.py": "L = 1000\n",
    "user_package/part/__init__.py": """
from door import *
K = 7
@njit
def inner(x):
    return x * K
class Holder:
    @staticmethod
    @njit
    def m(x):
        return x + K
""",
}


def texts() -> dict[str, str]:
    """Return the texts of all modules by their paths."""
    return {f"user_case_{number}.py": _HEAD + text for number, text in enumerate(CASES.values())} | PACKAGE


def main(folder: str) -> None:
    """Print what became of each case."""
    sys.path.insert(0, folder)
    found = {name: repr(importlib.import_module(f"user_case_{number}").run()) for number, name in enumerate(CASES)}
    counts = sys.modules["poolrt.numba"].stats() if "poolrt.numba" in sys.modules else {}
    print(json.dumps({"results": found, "counts": counts}))


if __name__ == "__main__":
    main(sys.argv[1])
