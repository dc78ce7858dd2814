"""Options of sessions and runs, with ONNX Runtime's names and defaults. docs/onnx.md lists those that act."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ort_value import OrtValue


class GraphOptimizationLevel(IntEnum):
    """With ``ORT_DISABLE_ALL``, graphs are lowered as they were imported; all other levels are the same."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted, without an effect: the steps of a plan have one order, and each uses all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Accepted, without an effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class SessionOptions:
    """Options of a session, read when it is made. A name that ONNX Runtime does not have raises AttributeError.

    These act: ``intra_op_num_threads`` (in this process; 0: one for each processor that the process may use),
    ``graph_optimization_level``, ``enable_profiling`` with ``profile_file_prefix``, ``log_severity_level``, the overrides
    of free dimensions, `add_initializer`, and the configuration entry ``poolrt.plan_bytes``. Those that ask for a file or a
    library that poolrt cannot make or use (``optimized_model_filepath``, `register_custom_ops_library`) are refused. The
    others are accepted without an effect.
    """

    __slots__ = (
        "_entries",
        "_initializers",
        "_overrides",
        "_overrides_by_denotation",
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "enable_profiling",
        "execution_mode",
        "execution_order",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "optimized_model_filepath",
        "profile_file_prefix",
        "use_deterministic_compute",
        "use_per_session_threads",
    )

    def __init__(self) -> None:
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._entries: dict[str, str] = {}
        self._initializers: dict[str, OrtValue] = {}
        self._overrides: dict[str, int] = {}
        self._overrides_by_denotation: dict[str, int] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep a configuration entry. poolrt reads ``poolrt.plan_bytes`` and ``poolrt.fpmath_mode``; others have no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return a configuration entry. Raises RuntimeError if there is none of the key."""
        return _entry(self._entries, "SessionOptions", key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of all dimensions of a symbol's name."""
        self._overrides[name] = _checked_size(name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the size of all open dimensions that have a denotation, such as ``DATA_BATCH``."""
        self._overrides_by_denotation[denotation] = _checked_size(denotation, size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Use a value in place of the model's initialiser of this name. Its memory must not change."""
        self._initializers[name] = value

    def register_custom_ops_library(self, path: str) -> None:
        """Raise Fail: poolrt cannot call the kernels of a library for ONNX Runtime."""
        from .errors import Fail

        raise Fail(
            f"{path}: poolrt cannot call custom operators of ONNX Runtime; docs/calls.md describes kernels of users"
        )


class RunOptions:
    """Options of a run. ``terminate`` makes runs that have not begun raise Fail; the others have no effect."""

    __slots__ = (
        "_entries",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "only_execute_path_to_fetches",
        "terminate",
    )

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep a configuration entry, which has no effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Return a configuration entry. Raises RuntimeError if there is none of the key."""
        return _entry(self._entries, "RunOptions", key)


def _entry(entries: dict[str, str], owner: str, key: str) -> str:
    if key not in entries:
        raise RuntimeError(f"{owner} does not have configuration with key: {key}")
    return entries[key]


def _checked_size(name: str, size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        from .errors import InvalidArgument

        raise InvalidArgument(f"override of dimension {name!r}: expect a size of at least 1, got {size!r}")
    return size
