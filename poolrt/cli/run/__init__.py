"""`poolrt run`: run an ONNX model on a pool of workers."""
