"""A text encoder behind HTTP: `ENCODER=MODEL.onnx uvicorn encoder_service:app`.

POST /embed takes lists of token numbers, of any number and length, and returns a vector for each.
"""

import os

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(os.environ["ENCODER"], options)
app = FastAPI()


class Texts(BaseModel):
    """Token numbers of each text."""

    tokens: list[list[int]]


@app.post("/embed")
def embed(texts: Texts) -> dict[str, list[list[float]]]:
    """Pad the texts to the longest one and return the model's vector for each."""
    if not texts.tokens or not all(texts.tokens):
        raise HTTPException(422, "expect at least one text, and tokens in each")
    longest = max(map(len, texts.tokens))
    ids = np.array([each + [0] * (longest - len(each)) for each in texts.tokens], np.int64)
    mask = np.array([[1] * len(each) + [0] * (longest - len(each)) for each in texts.tokens], np.int64)
    (vectors,) = session.run(None, {"ids": ids, "mask": mask})
    return {"vectors": vectors.tolist()}
