"""Settings for all tests: a slow machine is no failure of a property."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
