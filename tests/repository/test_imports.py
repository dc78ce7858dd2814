"""No import circle among the files of the package, imports within functions counted; only one of two files is let pass."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from tests.workers.own_process import python

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("poolrt", "workers", "cachestore")
MOST_FILES = 2

#: Module -> its file, and whether it is a package.
Modules = dict[str, tuple[Path, bool]]


def modules(root: Path) -> Modules:
    """Return every module of the three floors under the name that it is imported by."""
    found: Modules = {}
    for floor in FLOORS:
        # os.walk does not follow the links, so that each file is met once.
        for place, _, names in os.walk(root / floor):
            for path in (Path(place) / name for name in names if name.endswith(".py")):
                parts = [*(() if floor == "poolrt" else ("poolrt",)), *path.relative_to(root).with_suffix("").parts]
                is_package = parts[-1] == "__init__"
                found[".".join(parts[:-1] if is_package else parts)] = path, is_package
    return found


def homes(package: str) -> Mapping[str, str]:
    """Return the names that a package imports on first use, each with the module that has it."""
    listed: Mapping[str, str] = getattr(import_module(package), "_HOMES", {})
    return {name: f"{package}{home}" for name, home in listed.items() if home.startswith(".")}


def imported(module: str, known: Modules) -> Iterator[str]:
    """Yield each module that a file imports: on top, in functions, through packages, and by `import_module` of a text."""
    path, is_package = known[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if is_package else module.rpartition(".")[0]
    nodes = list(ast.walk(tree))
    typed = {id(inner) for node in nodes if _is_for_types(node) for inner in ast.walk(node)}
    for node in nodes:
        if id(node) in typed:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            exported = homes(base) if known.get(base, (None, False))[1] else {}
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else exported.get(alias.name, base)
        elif text := _text_imported(node):
            yield _absolute(text, package)


def circles(root: Path) -> list[list[str]]:
    """Return the circles of modules that import each other, each as large as can be, the largest first."""
    known = modules(root)
    graph = {module: {name for name in imported(module, known) if name in known and name != module} for module in known}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return sorted(found, key=len, reverse=True)
        except CycleError as error:
            member = error.args[1][0]
            circle = _reached(graph, member) & {name for name in graph if member in _reached(graph, name)}
            found.append(sorted(circle))
            for name in circle:
                graph[name] -= circle


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _absolute(name: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name[level:]])])


def _text_imported(node: ast.AST) -> str:
    """Return the constant text that a call of `import_module` begins with, if it is one."""
    if not isinstance(node, ast.Call) or not _last_name(node.func).endswith("import_module"):
        return ""
    return str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_no_circle_of_imports_has_more_than_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    found = circles(ROOT)
    with capsys.disabled():
        print(f"\nthe largest import circle: {found[0] if found else 'none'}")
    assert [circle for circle in found if len(circle) > MOST_FILES] == []


@pytest.mark.parametrize(
    "line",
    [
        "from .third import C",
        "def late() -> None:\n    from .third import C",
        "from . import third",
        "import poolrt.third",
        "from poolrt import C",
        "from importlib import import_module\nC = import_module('.third', __package__)",
    ],
)
def test_a_circle_is_found_however_it_is_closed(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given three files that import each other in turn, one of them by this line, and a package that exports lazily
    for floor in FLOORS:
        (tmp_path / floor).mkdir()
    files = {"__init__": "", "first": "from .second import B", "second": line, "third": "from .first import A"}
    for name, text in files.items():
        (tmp_path / "poolrt" / f"{name}.py").write_text(f"{text}\n")
    monkeypatch.setattr(import_module("poolrt"), "_HOMES", {"C": ".third"})
    # When the circles are looked for, then it is one; and none where the import is for types only
    assert circles(tmp_path) == [["poolrt.first", "poolrt.second", "poolrt.third"]]
    (tmp_path / "poolrt" / "second.py").write_text("if TYPE_CHECKING:\n    from .third import C\n")
    assert circles(tmp_path) == []


def test_all_dataclasses_are_deferred() -> None:
    own = Path("cachestore/deferred_dataclass.py")
    found = []
    for path, _ in modules(ROOT).values():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "dataclasses" in text else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            taken = "dataclass" in names if getattr(node, "module", "") == "dataclasses" else "dataclasses" in names
            if taken and path.relative_to(ROOT) != own:
                found.append(str(path.relative_to(ROOT)))
    assert not found, "import dataclass from poolrt.cachestore.deferred_dataclass"


def test_packages_list_the_names_that_they_import_on_first_use() -> None:
    """Completion in notebooks and consoles reads the list."""
    found = python(
        "import poolrt\n"
        "for package in (poolrt, poolrt.workers, poolrt.numba, poolrt.onnx, poolrt.opencl):\n"
        "    print(package.__name__, {*package.__all__} - {*dir(package)})"
    )
    assert [line for line in found.splitlines() if not line.endswith(" set()")] == []
