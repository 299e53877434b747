"""Settings of all tests."""

import os

from hypothesis import settings

# Timing is the benchmarks' matter. On a push the same examples are drawn every time, so what fails there fails here;
# elsewhere every run draws others.
settings.register_profile("explorer", deadline=None)
settings.register_profile("push", deadline=None, derandomize=True)
settings.load_profile("push" if os.environ.get("CI") else "explorer")
