"""The installed libraries: version of each, and whether poolrt supports it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from .finding import Finding, fail, ok, warn

_PIN = re.compile(r"(>=|<)\s*([0-9.]+)")


def findings() -> Iterator[Finding]:
    """Compare the installed libraries with the requirements in poolrt's own metadata."""
    try:
        requirements = metadata.requires("poolrt") or []
    except metadata.PackageNotFoundError:
        yield fail("poolrt", "not installed as a package", "install it: pip install -e . in the repository")
        return
    yield ok("poolrt", metadata.version("poolrt"))
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        match = re.match(r"[A-Za-z0-9_-]+", text)
        if match is None or ("extra" in marker and match[0] != "onnx"):
            continue
        yield judge(match[0], _installed(match[0]), text.strip(), optional="extra" in marker)


def judge(name: str, version: str | None, requirement: str, *, optional: bool) -> Finding:
    """Compare an installed version (None: not installed) with a requirement such as ``numpy<3,>=2.0``."""
    if version is None:
        if optional:
            return warn(name, "not installed", f"to run ONNX models: pip install 'poolrt[{name}]'")
        return fail(name, "not installed", f"pip install '{requirement}'")
    have = _numbers(version)
    for relation, bound in _PIN.findall(requirement):
        limit = _numbers(bound)
        if (relation == ">=" and have < limit) or (relation == "<" and have >= limit):
            return warn(name, version, f"poolrt supports {requirement}")
    return ok(name, version)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, int, int]:
    """Return the release part of a version, short ones filled with zeros."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release[0].split(".")] if release else []
    major, minor, micro = (*parts, 0, 0, 0)[:3]
    return major, minor, micro
