"""Finding good orders without a solver: list scheduling, and annealing from what is known."""
