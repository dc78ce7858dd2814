"""`InferenceSession`: a model that runs on inputs of any sizes, with the interface of ONNX Runtime's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.settings import Settings
from poolrt.spelling import describe_type, hint
from poolrt.workers.desc.attributes import FPMATH_MODES
from poolrt.workers.memory.array_room import copy_with_room, readable_in_place

from .binding import IOBinding
from .errors import Fail, InvalidArgument, InvalidGraph
from .feeds import check_feed, check_sizes
from .logs import level_of
from .maps import make_maps
from .options import GraphOptimizationLevel, RunOptions, SessionOptions
from .ort_value import OrtValue
from .plans import LocalPlans, Plans, PoolPlans, count_threads
from .profiling import Profile
from .providers import check_providers, get_available_providers
from .random_streams import seed_of_process
from .session_model import SessionModel
from .signature import ModelMetadata, NodeArg, Port, tensor_type
from .stages import Stages
from .strings import number_of_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.pool import Pool
    from poolrt.workers.primitives.provider import PrimitiveProvider
    from poolrt.workers.streams.stream import Stream

#: The entry of the session's options that sets `Settings.plan_bytes`.
PLAN_BYTES: Final = "poolrt.plan_bytes"
#: The entry that sets `Graph.fpmath_mode`.
FPMATH_MODE: Final = "poolrt.fpmath_mode"
#: Bytes of an array whose copy may be in vain.
_SMALL: Final = 1 << 16


class InferenceSession:
    """A model, read once, with a plan for each set of sizes of its inputs.

    A plan is made when its sizes first come. Plans share the weights, and are kept in least recently used order within
    ``plan_bytes``. Any number of threads may run a session; threads that need the same new plan wait for one that makes it.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        *,
        pool: Pool | None = None,
        engine: str = "cpu",
        stream: Stream | None = None,
        plan_bytes: int | str | None = None,
        fpmath_mode: str | None = None,
        cache: PrimitiveProvider | None = None,
        **others: Any,
    ) -> None:
        """Read a model: a path, bytes, or an ``onnx.ModelProto``. If it leaves no size open, its plan is made now.

        With ``pool``, it runs on this pool's workers, else in this process: on ``engine``, on a ``stream`` of yours instead,
        with primitives of ``cache`` (default: that of the process). ``plan_bytes`` bounds the plans and their weights, in bytes
        (default: the setting of this name; on a pool, the weights of every plan count). ``fpmath_mode`` is that of
        `poolrt.Graph`: "bf16" allows products of float32 to be computed in bfloat16 (default: the entry "poolrt.fpmath_mode"
        of the options, or else "strict"). Providers other than
        CPUExecutionProvider are ignored with a warning, and so are other keywords of ONNX Runtime.
        Raises NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented (which names all missing operators),
        InvalidArgument for wrong options, and TypeError for a model of another type.
        """
        self._options = _checked_options(sess_options)
        self._level = level_of(2 if self._options.log_severity_level < 0 else self._options.log_severity_level)
        check_providers(providers, provider_options)
        for name in others:
            if name not in ("enable_fallback", "disabled_optimizers", "read_config_from_model"):
                raise TypeError(f"InferenceSession: unexpected keyword {name!r}")
        given = plan_bytes if plan_bytes is not None else self._options._entries.get(PLAN_BYTES)
        settings = Settings.load(plan_bytes=given)
        mode = fpmath_mode if fpmath_mode is not None else self._options._entries.get(FPMATH_MODE, "strict")
        if mode not in FPMATH_MODES:
            raise InvalidArgument(f"fpmath_mode: unknown {mode!r}; known: {', '.join(FPMATH_MODES)}")
        self._profile = Profile(self._options)
        with self._profile.measure("model_loading"):
            self._model = SessionModel(path_or_bytes, self._options, settings, engine, mode)
            self._model.store_constants()
            self._ports = {port.name: port for port in self._model.outputs}
            self._plans: Plans
            if pool is not None:
                if stream is not None or cache is not None or engine != "cpu":
                    raise InvalidArgument("pool: stream, cache and engine are for sessions in this process")
                self._plans = PoolPlans(self._model, pool, settings.plan_bytes)
            else:
                threads = count_threads(self._options.intra_op_num_threads)
                optimize = self._options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL
                bound = settings.plan_bytes
                shared = settings.constant_files_arguments()
                files = ConstantFiles(**shared) if shared else None
                self._plans = LocalPlans(self._model, engine, stream, threads, optimize, bound, cache, files)
            self._stages = Stages(self._model, self._plans, self._level <= 20, seed_of_process())
            # An output without a declared type has that of its plan.
            declared = [port for port in self._model.outputs if port.type not in ("", tensor_type(0))]
            numbers = dict.fromkeys(self._model.texts, np.dtype(np.int64))
            kinds = {port.name: numbers.get(port.name, port.dtype) for port in declared}
            plain = all(kind is not None and kind.kind in "biuf" for kind in kinds.values())
            #: The types of outputs if a run may be repeated as it was: it is no stage of a run, and nothing is measured.
            self._kinds = kinds if plain and not (self._model.has_strings or self._profile.is_on) else None
            shapes = self._model.fixed_shapes()
            if shapes is not None:
                self._prepare(shapes)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run on inputs by name and return the outputs in the order of ``output_names``, all for None or no names.

        Inputs are arrays of the model's types; lists and numbers are converted. Outputs are new arrays; bfloat16 is the type of
        the ml_dtypes package. Those of ``ZipMap`` are lists with a dict of numbers by label for each row. Raises InvalidArgument
        for a wrong name, data type, rank or size, and for a symbol that two inputs give different sizes; InvalidGraph and
        NotImplemented where the model cannot be computed for these sizes.
        """
        names = self._ports if output_names is None else self._checked_names(output_names)
        _check_run(run_options)
        outputs = self._repeat(input_feed) or self._run(check_feed(self._model.inputs, input_feed), {})
        return self._in_order(names, outputs)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run as `run` does, and return the outputs as values. Raises InvalidArgument for an output of maps, too."""
        names = self._checked_names(output_names)
        self._require_tensors(names)
        return [
            self._value(*pair) for pair in zip(names, self.run(names, input_dict_ort_values, run_options), strict=True)
        ]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread of its own, which then calls ``callback(results, user_data, error)``; no error is ``""``.

        Raises InvalidArgument for wrong names and inputs at once.
        """
        names = self._checked_names(output_names)
        _check_run(run_options)
        arrays = check_feed(self._model.inputs, input_feed)

        def perform() -> None:
            try:
                results = self._in_order(names, self._run(arrays, {}))
            except Exception as error:  # noqa: BLE001 - the callback is where the caller learns of it
                callback([], user_data, f"{type(error).__name__}: {error}")
            else:
                callback(results, user_data, "")

        threading.Thread(target=perform, name="poolrt-run_async", daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Return an empty binding of inputs and outputs for `run_with_iobinding`."""
        return IOBinding(self, self._model.inputs, self._model.outputs)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on bound inputs; outputs are written to where they are bound.

        Raises ValueError for the binding of another session, InvalidArgument as `run` does, for a binding without outputs, and
        for memory that has not an output's type and shape.
        """
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        _check_run(run_options)
        iobinding._run(lambda feed, into: self._run(check_feed(self._model.inputs, feed), into))

    def prepare(self, shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]]) -> None:
        """Make the plans for sizes that are known ahead of runs: the shape of each input by name, or a list of these.

        Raises as `run` does.
        """
        names = [port.name for port in self._model.inputs]
        for each in [shapes] if isinstance(shapes, Mapping) else shapes:
            if set(each) != set(names):
                raise InvalidArgument(
                    f"shapes: expect one for each of {', '.join(names)}, got {', '.join(each) or 'none'}"
                )
            check_sizes(self._model.inputs, each)
            self._prepare({name: tuple(each[name]) for name in names})

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that every run needs: not the initialisers that are listed as inputs."""
        return [port.node_arg() for port in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, with the shapes that the model declares."""
        return [port.node_arg() for port in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the initialisers that are listed as inputs; in poolrt, only `SessionOptions.add_initializer` changes them."""
        return [port.node_arg() for port in self._model.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the model's description of itself."""
        return self._model.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the names of the providers in use."""
        return get_available_providers()

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider in use: there are none."""
        return {name: {} for name in get_available_providers()}

    def set_providers(
        self, providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None, provider_options: Any = None
    ) -> None:
        """Check names of providers as the constructor does; the session stays as it is."""
        check_providers(providers, provider_options)

    def enable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    def end_profiling(self) -> str:
        """Write the profile that the options ask for, and return the name of its file; else return ``""``."""
        return self._profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """Return the time at which the session began, in nanoseconds since 1970."""
        return self._profile.start_ns

    def _prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if any(0 in dims for dims in shapes.values()):
            return
        self._stages.prepare(shapes)

    def _run(self, arrays: dict[str, NDArray[Any]], into: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with self._profile.measure("model_run"):
            outputs = self._with_texts(self._stages.run(arrays, into))
            return {port.name: _typed(outputs[port.name], port) for port in self._model.outputs}

    def _repeat(self, feed: object) -> Mapping[str, NDArray[Any]] | None:
        """Return the outputs if this run is like the last one: then all that is checked of inputs was right."""
        if self._kinds is None or type(feed) is not dict:
            return None
        # A copy: another thread may put other arrays into the feed, and what kernels read must live until they have ended.
        feed = feed.copy()
        outputs = self._plans.repeat(feed)
        if outputs is None:
            copies = {name: copy_with_room(each) for name, each in feed.items() if _needs_copy(each)}
            outputs = self._plans.repeat({**feed, **copies}) if copies else None
        if outputs is not None:
            for name, kind in self._kinds.items():
                if outputs[name].dtype is not kind:
                    return None
            return self._with_texts(outputs) if self._model.texts else outputs
        return None

    def _with_texts(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return outputs with the texts of those that are numbers of texts."""
        found = dict(outputs)
        for name, texts in self._model.texts.items():
            numbers = outputs[name]
            try:
                found[name] = texts.take(numbers.reshape(-1)).reshape(numbers.shape)
            except IndexError:
                # Where a model chooses a text that there is not, as a Gather of them.
                inside = (numbers >= -texts.size) & (numbers < texts.size)
                found[name] = np.append(texts, "").take(np.where(inside, numbers % max(texts.size, 1), texts.size))
        return found

    def _checked_names(self, names: Sequence[str] | None) -> list[str]:
        if isinstance(names, str):
            raise TypeError(f"output_names: expect a list of names, got the text {names!r}; write [{names!r}]")
        for name in names or ():
            if name not in self._ports:
                text = f"Invalid output name:{name}; the model has {', '.join(self._ports)}"
                raise InvalidArgument(f"{text}{hint(str(name), self._ports)}")
        return list(names or self._ports)

    def _in_order(self, names: Iterable[str], outputs: Mapping[str, NDArray[Any]]) -> list[Any]:
        labels = self._model.maps
        if not labels:
            return [outputs[name] for name in names]
        return [make_maps(name, outputs[name], labels[name]) if name in labels else outputs[name] for name in names]

    def _require_tensors(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._model.maps:
                raise InvalidArgument(f"output {name} is of type {self._ports[name].type}, which only lists have: run")

    def _value(self, name: str, array: NDArray[Any]) -> OrtValue:
        return OrtValue(array, self._ports[name].element_type or None)


def _needs_copy(value: object) -> bool:
    """Return whether a value is a small array that kernels cannot read where it is: a copy takes less time than other ways.

    It has strides, or ends at the end of a page: so does one of 64 arrays.
    """
    if type(value) is not np.ndarray or value.nbytes > _SMALL or value.dtype.hasobject:
        return False
    return not readable_in_place(value)


def _typed(array: NDArray[Any], port: Port) -> NDArray[Any]:
    """Return an output in the type that the model declares: bfloat16 for the uint16 of its bits. Raises InvalidGraph."""
    wanted = port.dtype if port.element_type else None
    if wanted is None or array.dtype == wanted:
        return array
    if wanted.name == "bfloat16" and array.dtype == np.uint16:
        return array.view(wanted)
    found = tensor_type(number_of_array(array))
    raise InvalidGraph(f"output {port.name}: nodes compute a {found}, and the model declares {port.type}")


def _checked_options(options: SessionOptions | None) -> SessionOptions:
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise TypeError(f"sess_options: expect poolrt.onnx.SessionOptions, got {describe_type(options)}")
    for name in ("intra_op_num_threads", "inter_op_num_threads"):
        count = getattr(options, name)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidArgument(f"{name}: expect a number of threads, or 0, got {count!r}")
    if options.optimized_model_filepath:
        raise Fail(f"optimized_model_filepath: poolrt writes no model files, got {options.optimized_model_filepath!r}")
    return options


def _check_run(options: RunOptions | None) -> None:
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise TypeError(f"run_options: expect poolrt.onnx.RunOptions, got {describe_type(options)}")
    if options.terminate:
        raise Fail("Exiting due to terminate flag being set to true.")
