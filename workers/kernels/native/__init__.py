"""Native CPU kernels: generators, code generation (creators only) and the object loader (workers)."""
