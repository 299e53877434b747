"""Many problems at once: grids, a store that survives anything, workers, and maps of who wins where."""
