"""`poolrt cache`: look into the shared kernel cache, bound it, clear it."""
