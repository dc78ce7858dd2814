"""Networks that are built through `Graph`, with seeded weights."""
