"""How a realized primitive runs: its binding to memory on each engine kind, and the resources that belong to an engine."""
