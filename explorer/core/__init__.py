"""The vocabulary: ops, placements, schedules, problems, timelines, exact time, errors."""
