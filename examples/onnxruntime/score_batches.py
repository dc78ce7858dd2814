"""Score rows in batches: `python score_batches.py MODEL.onnx ROWS.npy SCORES.npy`.

The batches are read from, and the scores written to, the same memory in every run.
"""

import sys

import numpy as np
import onnxruntime as ort

BATCH = 64


def main() -> None:
    model, rows, scores = sys.argv[1:]
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    table = np.load(rows)
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    found = np.empty((len(table), given.shape[1]), np.float32)
    batch = ort.OrtValue.ortvalue_from_shape_and_type([BATCH, table.shape[1]], np.float32)
    result = ort.OrtValue.ortvalue_from_shape_and_type([BATCH, given.shape[1]], np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input(taken.name, batch)
    binding.bind_ortvalue_output(given.name, result)
    for start in range(0, len(table) - len(table) % BATCH, BATCH):
        batch.update_inplace(table[start : start + BATCH])
        session.run_with_iobinding(binding)
        found[start : start + BATCH] = result.numpy()
    rest = len(table) % BATCH
    if rest:
        binding = session.io_binding()
        binding.bind_cpu_input(taken.name, table[-rest:])
        binding.bind_output(given.name)
        session.run_with_iobinding(binding)
        found[-rest:] = binding.copy_outputs_to_cpu()[0]
    np.save(scores, found)


if __name__ == "__main__":
    main()
