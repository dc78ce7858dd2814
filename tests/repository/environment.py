"""Which variables of the environment a piece of code looks up, read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

#: A name that is not a constant of the code: any variable.
ANY = "*"
_LOOKUPS = frozenset({"get", "pop", "setdefault", "__getitem__"})
#: Methods that only write, or hand everything on to another process.
_HARMLESS = frozenset({"update", "clear", "copy"})


Texts = frozenset[str]


def constants(tree: ast.Module) -> dict[str, Texts]:
    """Return the texts, one or a tuple of them, that a module gives names to."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and (texts := _texts(node.value)):
                    found[target.id] = texts
    return found


def _texts(node: ast.expr | None) -> Texts:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return frozenset(texts if len(texts) == len(parts) else ())


class _Reader:
    """Follows ``os``, ``os.environ`` and ``os.getenv`` through imports and assignments of one module."""

    def __init__(self, tree: ast.Module, known: Mapping[str, Texts]) -> None:
        self._known = {**known, **constants(tree)}
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._nodes = list(ast.walk(tree))
        self._modules, self._environs, self._getters = set[str](), set[str](), set[str]()
        self._import()
        while self._assign():
            pass

    def _import(self) -> None:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                self._modules |= {alias.asname or "os" for alias in node.names if alias.name == "os"}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name = alias.asname or alias.name
                    if node.module == "os":
                        self._environs |= {name} if alias.name in ("environ", "environb") else set()
                        self._getters |= {name} if alias.name in ("getenv", "getenvb") else set()
                    self._known[name] = self._known.get(alias.name, frozenset((ANY,)))
            elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                self._known[node.target.id] = self._names(node.iter)

    def _assign(self) -> bool:
        """Note names that are assigned the environment or its getter; return whether there are new ones."""
        before = len(self._environs) + len(self._getters)
        for node in self._nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {name for target in targets if (name := _last_name(target))}
                self._environs |= names if self._is_environ(node.value) else set()
                self._getters |= names if self._is_getter(node.value) else set()
        return len(self._environs) + len(self._getters) > before

    def _is_environ(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self._environs:
                return True
            case ast.Attribute(value=ast.Name(id=module), attr="environ" | "environb"):
                return module in self._modules
            case ast.IfExp():
                return self._is_environ(node.body) or self._is_environ(node.orelse)
            case ast.BoolOp():
                return any(map(self._is_environ, node.values))
            case ast.NamedExpr():
                return self._is_environ(node.value)
        return False

    def _is_getter(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self._getters:
                return True
            case ast.Attribute(value=ast.Name(id=module), attr="getenv" | "getenvb"):
                return module in self._modules
            case ast.Attribute(value=value, attr=method):
                return method in _LOOKUPS and self._is_environ(value)
        return False

    def _names(self, node: ast.expr | None) -> Texts:
        """Return what an expression can be: a text, a constant by its name, a variable of a loop over constants."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            return frozenset((node.value if isinstance(node.value, str) else node.value.decode(),))
        return self._known.get(_last_name(node), frozenset((ANY,)))

    def lookups(self) -> Iterator[str]:
        """Yield the name of each variable that is looked up, `ANY` for one that the code computes."""
        for node in self._nodes:
            parent = self._parents.get(node)
            if isinstance(node, ast.Call) and self._is_getter(node.func):
                yield from self._names(node.args[0] if node.args else None)
            elif (
                not isinstance(node, ast.expr)
                or not self._is_environ(node)
                or isinstance(getattr(node, "ctx", None), ast.Store)
            ):
                continue
            elif isinstance(parent, ast.Subscript) and parent.value is node:
                if isinstance(parent.ctx, ast.Load):
                    yield from self._names(parent.slice)
            elif isinstance(parent, ast.Compare):
                yield from self._names(parent.left)
            elif not self._is_followed(node, parent):
                yield ANY

    def _is_followed(self, node: ast.AST, parent: ast.AST | None) -> bool:
        """Return whether a use of the whole environment looks nothing up, or is followed where it leads."""
        match parent:
            case ast.Attribute(attr=method):
                return method in _LOOKUPS | _HARMLESS
            case ast.Dict(keys=keys, values=values):
                return any(key is None and value is node for key, value in zip(keys, values, strict=True))
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.BoolOp() | ast.IfExp():
                return True
        return False


def _last_name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def lookups(code: str, known: Mapping[str, Texts] | None = None) -> set[str]:
    """Return the variables that a module looks up; ``known`` are constants of other modules, by name."""
    # Every name of `os` for the environment has this in it.
    if "env" not in code:
        return set()
    return set(_Reader(ast.parse(code), known or {}).lookups())
