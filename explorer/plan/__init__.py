"""Choosing parallel degrees, microbatches and a schedule for a model on a number of devices."""
