"""The schedules of the field, one short file each. Importing this package registers them all."""

from schedules.one_f_one_b import one_f_one_b
from schedules.registry import NamedSchedule, every, find, named

__all__ = ["NamedSchedule", "every", "find", "named", "one_f_one_b"]
