"""Plain functions in worker processes, as a client calls them: pickles, rings of calls, results."""
