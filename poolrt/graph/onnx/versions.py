"""The versions of operator sets that a model imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .domains import ALIAS, ONNX_DOMAINS


def check_versions(model: Any, known: Mapping[str, tuple[int, int]]) -> None:
    """Raise ModelError for a version of ONNX's operator sets that does not exist, or that the onnx package does not have.

    ``known`` has the least and the greatest version by domain. Other domains have any versions.
    """
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for each in imports:
            domain, version = "" if each.domain in ONNX_DOMAINS else each.domain, each.version
            if domain not in known:
                continue
            least, most = known[domain]
            where = f"opset {version} of {domain or ALIAS}"
            if version < least:
                raise ModelError(f"{where}: expect a version from {least} to {most}")
            if version > most:
                raise ModelError(
                    f"{where}: the installed onnx package has versions up to {most}; install a newer package, or export the "
                    "model with an older opset"
                )
