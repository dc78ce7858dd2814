"""Plain kernels, one an operation, that take every data type and layout at run time, and the pieces they are made of.

A kernel's first two arguments are its range of items; then come addresses of *records* in the primitive's tables, numbers
of the operation, and last, of type ``voidptr``, the *operands*: the addresses of all memories in the launch's order. All
arithmetic is in float64 and a result is rounded once, to its data type.

- `tensor`: the record of a tensor, and the place of an element
- `data_types`: elements read as float64 and written from float64
- `epilogue`: elements read with scale and zero point, and results written after a chain of post-ops
- `functions`, `gradients`, `binaries`: the functions of eltwise and binary operations
- `window`, `rows`: which elements meet in a window, and which share a mean

``implementations/reference/tables.py`` writes the records. Pieces are `piece` functions: compiled once a level in a process,
however many kernels call them.
"""
