"""The versions of operator sets that a model imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import ModelError

#: The second name of the domain of ONNX's own operators, which is empty.
_ALIAS: Final = "ai.onnx"


def check_versions(model: Any, known: Mapping[str, tuple[int, int]]) -> None:
    """Raise ModelError for a version of ONNX's operator sets that does not exist, or that the onnx package does not have.

    ``known`` has the least and the greatest version by domain. Other domains have any versions.
    """
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for each in imports:
            domain, version = "" if each.domain == _ALIAS else each.domain, each.version
            if domain not in known:
                continue
            least, most = known[domain]
            where = f"opset {version} of {domain or _ALIAS}"
            if version < least:
                raise ModelError(f"{where}: expect a version from {least} to {most}")
            if version > most:
                raise ModelError(
                    f"{where}: the installed onnx package has versions up to {most}; install a newer package, or export the "
                    "model with an older opset"
                )
