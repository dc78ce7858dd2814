"""The shared tier: the protocol with Redis, its circuit breaker, and the embedded server."""
