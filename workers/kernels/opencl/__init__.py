"""OpenCL kernels: sources, how a creator builds them, how a worker realizes what was built."""
