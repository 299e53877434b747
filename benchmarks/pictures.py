"""How long pictures of large timelines take: built here, first drawn and redrawn in a headless Chromium.

    python benchmarks/pictures.py

Needs selenium, chromium and its driver, as tests/browser do.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

from conftest import Page, started

from explorer import api
from explorer.config.recipe import AbstractCosts
from explorer.reports import pictures


def main() -> None:
    """Print a line a size."""
    print(f"{'ops':>8} {'build':>8} {'file':>9} {'first draw':>11} {'redraw, all':>12} {'redraw, zoomed':>15}")
    with started() as driver, tempfile.TemporaryDirectory() as folder:
        for devices, microbatches in ((16, 64), (64, 800), (64, 1600), (64, 8000)):
            result = api.evaluate("1f1b", AbstractCosts(), devices, microbatches, engine="longest-path")
            file = Path(folder) / "timeline.html"
            begun = time.perf_counter()
            pictures.timeline(file, result)
            built = time.perf_counter() - begun
            page = Page(driver, file)
            first = float(page.run("return document.documentElement.dataset.firstDraw"))
            times = []
            for share in (1, 0.02):
                page.run("timelines.look(0, timelines.full * arguments[0])", share)
                page.settle()
                times.append(float(page.run("return document.documentElement.dataset.lastDraw")))
            print(
                f"{len(result.schedule):>8} {built:>6.2f} s {file.stat().st_size / 1e6:>6.2f} MB {first:>8.0f} ms "
                f"{times[0]:>9.0f} ms {times[1]:>12.0f} ms"
            )


main()
