"""Users' kernels for the CPU: Python functions as native objects in the store, mapped without a compiler."""
