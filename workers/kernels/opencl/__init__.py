"""OpenCL kernels: sources, building (creators only) and realizing (workers)."""
