"""Classify images of any size: `python classify.py MODEL.onnx IMAGE.npy...` prints the best classes of each as JSON.

An image is an array of bytes (height, width, channels).
"""

import json
import sys

import numpy as np
import onnxruntime as ort


def main() -> None:
    model, *images = sys.argv[1:]
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    for path in images:
        image = np.load(path).astype(np.float32) / 255
        (scores,) = session.run(["scores"], {taken.name: image.transpose(2, 0, 1)[np.newaxis]})
        best = np.argsort(-scores[0], kind="stable")[:3]
        print(json.dumps({str(number): round(float(scores[0, number]), 4) for number in best}))


if __name__ == "__main__":
    main()
