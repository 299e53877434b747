"""The one CP-SAT model, and what is solved with it."""
