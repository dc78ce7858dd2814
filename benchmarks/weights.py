"""The weights of a model like BERT-base: what loading them costs, and what memory they take, beside ONNX Runtime.

The model has 110 million seeded parameters in a file beside it. Every process loads a model of one node first, and the clock
begins after that. Cold: no process of the node has loaded the model. Kernels are always warm. Memory is proportional (PSS)
while all processes live, less that before the model is loaded; one copy is the size of the file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))

from loaded import bert
from measure import alternate, arguments, installed_environment, record, sized

from poolrt.cachestore import CacheStore

ROUNDS: Final = 7
#: The server ends after so many seconds without a client.
IDLE_S: Final = 20.0
SIZES: Final[dict[str, int]] = sized({}, {"layers": 2, "words": 2000})


class Models:
    """A folder with the models and the cache of all processes."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._model = bert.write(self._folder / "bert.onnx", **SIZES)
        self._small = self._folder / "small.onnx"
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "small", ports[:1], ports[1:])
        opset = helper.make_opsetid("", 17)
        onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), self._small)
        self._environment = installed_environment(POOLRT_HOME=f"{folder}/home")
        self._environment.pop("POOLRT_REDIS_URL", None)
        # All processes use the server that begins here; it ends by itself if this program is killed.
        self._store = CacheStore.connect(home=f"{folder}/home", server_idle_s=IDLE_S)
        self._store.ping()

    @property
    def nbytes(self) -> int:
        """The size of one copy of the weights."""
        return self._model.with_suffix(".weights").stat().st_size

    def forget(self) -> None:
        """Remove the rearranged weights of the node."""
        shutil.rmtree(self._folder / "home" / "default" / "constants", ignore_errors=True)

    @contextmanager
    def process(self, name: str) -> Iterator[tuple[dict[str, float], subprocess.Popen[str]]]:
        """Give what a process printed that has loaded the model, and the process."""
        program = Path(__file__).parent / "loaded" / "process.py"
        command = [sys.executable, str(program), name, str(self._model), str(self._small)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        ) as child:
            if child.stdout is None or child.stdin is None:
                raise SystemExit(f"{command} has no pipes")
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"{command} has failed")
            try:
                yield json.loads(line), child
            finally:
                child.stdin.close()

    def load(self, name: str) -> dict[str, float]:
        """Return the times of a process that loads the model."""
        with self.process(name) as (times, _):
            return times

    def memory(self, name: str, count: int) -> float:
        """Return the memory of processes that have all loaded the model, as a multiple of one copy."""
        total = 0
        with ExitStack() as stack:
            children = [stack.enter_context(self.process(name))[1] for _ in range(count)]
            for child in children:
                print("memory", file=child.stdin, flush=True)
                total += int(child.stdout.readline() if child.stdout else "")
        return total / self.nbytes

    def close(self) -> None:
        """Stop the store's server."""
        self._store.down()


def times(models: Models) -> Iterator[str]:
    """Compare what creating a session costs."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": [], "onnxruntime": []}

    def measured(state: str) -> float:
        if state == "cold":
            models.forget()
        found[state].append(models.load("onnxruntime" if state == "onnxruntime" else "poolrt"))
        return found[state][-1]["processor"]

    alternate({state: (lambda state=state: measured(state)) for state in found}, ROUNDS)  # type: ignore[misc]
    for kind in ("processor", "wall"):
        best: dict[str, float] = {state: min(each[kind] for each in rounds) for state, rounds in found.items()}
        for state, goal in (("cold", 1.2), ("warm", 0.5)):
            yield (
                f"{kind} time, {state}: poolrt {best[state]:.3f} s, ONNX Runtime {best['onnxruntime']:.3f} s, "
                f"ratio {best[state] / best['onnxruntime']:.2f} (goal: at most {goal})"
            )


def memory(models: Models) -> Iterator[str]:
    """Compare what memory processes take that have loaded the model."""
    labels = {
        "poolrt": "sessions",
        "executor": "executors",
        "pool": "pools of one worker each",
        "onnxruntime": "ONNX Runtime",
    }
    for name, label in labels.items():
        one, two = (models.memory(name, count) for count in (1, 2))
        goal = "" if name == "onnxruntime" else " (goal: at most 1.15)"
        yield f"copies of the weights in memory, {label}: one process {one:.2f}, two together ratio {two:.2f}{goal}"


def main(parts: list[str]) -> None:
    """Print the parts that were chosen."""
    known: dict[str, Any] = {"times": times, "memory": memory}
    with tempfile.TemporaryDirectory(prefix="poolrt-weights-") as folder:
        models = Models(folder)
        try:
            for name in ("poolrt", "executor", "pool", "onnxruntime"):  # kernels, and pages of the file
                models.load(name)
            lines = [line for part in parts for line in known[part](models)]
        finally:
            models.close()
        size = models.nbytes / 1e6
    record(f"Loading a transformer of {size:.0f} MB of weights, one thread", lines)


if __name__ == "__main__":
    main(arguments(__doc__, ("times", "memory")))
