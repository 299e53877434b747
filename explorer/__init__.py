"""Evaluate, compare and search pipeline-parallel training schedules, exactly."""

__version__ = "0.1.0"
