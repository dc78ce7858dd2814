"""`poolrt.onnx.backend` passes a selection of the tests that ONNX has for backends."""

from __future__ import annotations

import re
import unittest
import warnings
from typing import Any, Final

import numpy as np
import onnx.backend.test
import pytest
from onnx import helper

from poolrt.onnx import InvalidArgument
from poolrt.onnx.backend import PoolrtBackend, PoolrtBackendRep, is_compatible, run_node, supports_device
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Of each family of operators some, and networks with and without open sizes.
_SELECTED: Final = re.compile(
    "test_("
    "add|add_bcast|sub|mul_example|div|relu|leakyrelu|sigmoid|tanh|clip|gelu_default_1|hardswish|prelu_example|"
    "matmul_2d|matmul_3d|matmul_4d|gemm_all_attributes|gemm_transposeB|einsum_batch_matmul|"
    "conv_with_strides_padding|basic_conv_with_padding|convtranspose|maxpool_2d_default|averagepool_2d_pads|"
    "globalaveragepool|batchnorm_example|layer_normalization_2d_axis1|softmax_axis_1|logsoftmax_axis_1|"
    "reduce_mean_keepdims_random|reduce_sum_do_not_keepdims_random|argmax_keepdims_random|cumsum_1d|top_k|"
    "gather_0|gather_elements_0|gathernd_example_int32|scatter_elements_with_axis|slice|concat_2d_axis_1|"
    "split_equal_parts_1d_opset18|reshape_reordered_all_dims|transpose_all_permutations_4|squeeze|unsqueeze_axis_1|"
    "expand_dim_changed|tile|constant_pad|edge_pad|where_example|equal|and2d|not_2d|cast_FLOAT_to_DOUBLE|"
    "quantizelinear|dequantizelinear|lstm_defaults|gru_defaults|resize_upsample_scales_nearest|"
    "operator_mm|Linear|Conv2d_padding|BatchNorm2d_eval"
    ")_cpu"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_selected_tests_of_onnx_pass(cache: PrimitiveProvider) -> None:
    class _Backend(PoolrtBackend):
        """The backend, with the primitive cache of the tests."""

        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PoolrtBackendRep:
            return super().prepare(model, device, **{"cache": cache, **kwargs})

    with warnings.catch_warnings():
        # Generating the cases overflows and divides by zero on purpose here and there.
        warnings.simplefilter("ignore")
        cases = onnx.backend.test.BackendTest(_Backend, __name__).test_cases
    suite = unittest.TestSuite(case(name) for case in cases.values() for name in dir(case) if _SELECTED.fullmatch(name))
    result = unittest.TestResult()
    suite.run(result)
    assert [f"{test}: {text}" for test, text in (*result.failures, *result.errors, *result.skipped)] == []
    assert result.testsRun == 63


def test_a_node_runs_on_arrays(cache: PrimitiveProvider) -> None:
    node = helper.make_node("Add", ["x", "y"], ["s"])
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    outputs = run_node(node, [x, y], cache=cache)
    np.testing.assert_array_equal(outputs.s, x + y)  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="device: expect 'CPU', got 'CUDA'"):
        run_node(node, [x, y], "CUDA")
    assert [supports_device(each) for each in ("CPU", "CPU:0", "CUDA", "CPU:1")] == [True, True, False, False]
    missing = helper.make_graph([helper.make_node("NoSuchOperator", [], ["y"])], "g", [], [])
    assert not is_compatible(helper.make_model(missing))
