"""How long a sweep of some 10 000 points takes, start-up included, and how much memory.

    python benchmarks/sweep.py [workers]

The grid: 5 schedules on up to 16 devices, up to 128 microbatches, 66 networks. Memory is that of the largest process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = """
schedules = ["gpipe", "1f1b", "interleaved-1f1b", "chimera", "zb-h1"]
devices = [2, 4, 8, 16]
microbatches = {from = 16, to = 128, step = 16}
[costs]
system = "h100-sxm"
latency = ["0.5 us", "2 us", "8 us", "32 us", "128 us", "512 us"]
bandwidth = {from = "1 GB/s", to = "200 GB/s", points = 11}
"""


def main() -> None:
    """Measure and print."""
    workers = ["--workers", sys.argv[1]] if len(sys.argv) > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.toml"
        grid.write_text(GRID)
        for what in ("computed", "known already"):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-m", "explorer", "sweep", str(grid), *workers], check=True)
            print(f"{what}: {time.perf_counter() - begin:.1f} s")
    print(f"memory: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB at most in a process")


if __name__ == "__main__":
    main()
