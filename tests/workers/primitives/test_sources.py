"""The source files of an implementation: every file that its programs and kernels come from is found."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poolrt import workers
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.native.eltwise import NativeEltwise
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, implementations
from poolrt.workers.implementations.program import Program
from poolrt.workers.kernels.opencl import source as opencl_source
from poolrt.workers.kernels.spec import KernelSpec, Value
from poolrt.workers.primitives import sources
from poolrt.workers.primitives.creation import PrimitiveCreator
from poolrt.workers.primitives.sources import generator_files, source_files

ROOT = Path(workers.__path__[0])
FILES = [
    file.relative_to(ROOT).as_posix()
    for room in ("desc", "implementations", "kernels")
    for file in (ROOT / room).rglob("*.py")
]
MODULES = [file for file in (*FILES, "engines/isa.py", "engines/target.py") if not file.endswith("__init__.py")]
TRACED = Path(__file__).with_name("traced_imports.py")


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that are executed."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from statements(node)


@pytest.mark.parametrize("room", sorted({file.partition("/")[0] for file in MODULES}))
def test_the_imports_of_a_file_are_those_of_its_syntax_tree(room: str) -> None:
    for file in [file for file in MODULES if file.startswith(f"{room}/")]:
        assert set(sources._source(file).imports) == imports(file), file


def imports(file: str) -> set[str]:
    """Return the sources that a file imports by its syntax tree; raise AssertionError if it imports others of poolrt's."""
    found: set[str] = set()
    for statement in statements(ast.parse((ROOT / file).read_text())):
        if isinstance(statement, ast.Import):
            assert not any(alias.name.startswith("poolrt") for alias in statement.names), file
            continue
        # Its dataclasses and named tuples are those of the standard library, which is in no key either. The settings' file
        # limits the instructions, and keys have these.
        shared = ("deferred_dataclass", "deferred_namedtuple", "settings_file")
        known = statement.module in {f"poolrt.cachestore.{name}" for name in shared}
        assert statement.level or known or not (statement.module or "").startswith("poolrt"), file
        if statement.level:
            names = ", ".join(alias.name for alias in statement.names)
            found.update(sources._imported(file, "." * statement.level, statement.module or "", names))
    return found


def test_every_file_that_is_imported_is_a_source() -> None:
    done = subprocess.run(
        [sys.executable, TRACED], cwd=ROOT.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 80
    for name, (imported, files) in found.items():
        assert set(imported) <= set(files), name
        # Nothing else but texts, kernels' packages, and the module that lists an implementation
        assert {file for file in set(files) - set(imported) if file.endswith(".py")} <= {
            f"implementations/{engine}/{name.split(':')[1]}.py" for engine in ("native", "opencl")
        }, name


@pytest.mark.parametrize(
    ("generator", "params", "position"), [("softmax", {}, 0), ("reference.softmax", {"operands": 2, "fp64": True}, -1)]
)
def test_an_opencl_kernel_is_put_together_from_its_files(
    monkeypatch: pytest.MonkeyPatch, generator: str, params: dict[str, Value], position: int
) -> None:
    opened = []

    def recording(file: str, **options: Any) -> Any:
        opened.append(Path(file).resolve().relative_to(ROOT.resolve()).as_posix())
        return open(file, **options)

    monkeypatch.setattr(opencl_source, "open", recording, raising=False)
    opencl_source.kernel_source(KernelSpec.of(generator, **params))
    assert tuple(opened) == generator_files("opencl", generator)
    assert set(opened) <= set(source_files("opencl", "softmax", implementations("softmax", "opencl")[position]))


class Computed(NativeEltwise):
    """Computes the name of its kernel."""

    __module__ = NativeEltwise.__module__

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        return Program((KernelSpec.of("".join(("soft", "max"))),), ())


def test_a_kernel_whose_name_is_computed_is_refused() -> None:
    md = MemoryDesc((3, 17), "f32")
    pd = PrimitiveDesc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target(), Computed())
    with pytest.raises(LookupError, match=r"kernel 'softmax' of implementation 'native:eltwise' is not in its key"):
        PrimitiveCreator().create(pd)
