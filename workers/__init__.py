"""The compute floor: descriptors, engines, primitives, kernels and the worker process."""
