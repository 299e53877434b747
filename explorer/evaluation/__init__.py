"""Evaluating a fixed schedule: its earliest timeline, memory and measures, and an independent checker."""
