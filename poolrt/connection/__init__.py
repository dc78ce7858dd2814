"""A client's connection to a coordinator: sessions, requests, futures, and the start of a coordinator."""
