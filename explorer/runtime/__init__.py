"""Schedules and the real world: running them through PyTorch's own runtime, and costs from traces of runs.

The only package that imports torch, and only in the processes that it starts.
"""
