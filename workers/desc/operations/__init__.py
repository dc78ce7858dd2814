"""Operation descriptors: what each operation computes, as hashable data that names no engine and no implementation."""
