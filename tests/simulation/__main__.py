"""`python -m tests.simulation --seeds 10000 --start 0`"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.world import run_seed, simulated


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--stop-after", type=int, default=5, help="violations to print in full")
    options = parser.parse_args()
    began = time.perf_counter()
    bad: list[int] = []
    with simulated():
        for done, seed in enumerate(range(options.start, options.start + options.seeds), 1):
            try:
                run_seed(seed)
            except Exception as error:
                bad.append(seed)
                print(f"violation at seed {seed}: {str(error)[:200]}", flush=True)
                if len(bad) <= options.stop_after:
                    traceback.print_exc(limit=-6)
            if done % 500 == 0:
                seconds = time.perf_counter() - began
                print(f"{done} seeds, {len(bad)} violations, {seconds:.1f} s", flush=True)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds from {options.start}: {len(bad)} violations in {seconds:.1f} s")
    if bad:
        print("seeds:", *bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
