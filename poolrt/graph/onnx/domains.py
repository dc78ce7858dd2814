"""The domains of ONNX operators, and the versions of them that a model imports."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

#: The second name of the domain of ONNX's own operators.
ALIAS: Final = "ai.onnx"
#: Both names of that domain.
ONNX_DOMAINS: Final = ("", ALIAS)
#: The domain of operators on tables, whose results have a row for each row of the first operand.
ML_DOMAIN: Final = "ai.onnx.ml"
#: The domain of operators that ONNX Runtime's tools write.
MICROSOFT_DOMAIN: Final = "com.microsoft"


def imported_version(imports: Iterable[Any], domains: Container[str] = ONNX_DOMAINS, default: int = 1) -> int:
    """Return the greatest version of domains among OperatorSetIdProtos, ``default`` if none is of these domains."""
    return max((int(each.version) for each in imports if each.domain in domains), default=default)
