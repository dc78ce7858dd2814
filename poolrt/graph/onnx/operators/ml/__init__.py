"""The operators of the domain ``ai.onnx.ml``, which converters of scikit-learn, LightGBM and XGBoost write, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...call import Operator
from . import features, linear, maps, tree_ensembles, vectors

OPERATORS: Final[Mapping[str, Operator]] = {
    **features.OPERATORS,
    **linear.OPERATORS,
    **maps.OPERATORS,
    **tree_ensembles.OPERATORS,
    **vectors.OPERATORS,
}
