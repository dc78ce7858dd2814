"""Native kernels: generators, the compiler that creators use and the loader that workers use."""
