"""Reading and writing schedules; a format a file."""
