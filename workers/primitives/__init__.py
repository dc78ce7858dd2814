"""Operations: their implementations, best first, and the cached form of a primitive."""
