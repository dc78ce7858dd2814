"""Kernels: generators of native code and OpenCL sources, and what turns their binaries into callables."""
