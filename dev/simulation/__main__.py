"""`python -m dev.simulation`: simulate a fleet of agents, and write one HTML page.

The exit status is 1 if a segment of any run was not committed.
"""

import argparse
import os
import sys
from pathlib import Path

from dev.simulation.page import page, sampling
from dev.simulation.run import run_all
from dev.simulation.scenarios import SCENARIOS, SHORT


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m dev.simulation", description="Simulate a fleet of agents.")
    known = {**SCENARIOS, "short": SHORT}
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(known)}; default: all but short")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("build/simulation.html"))
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at once (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(known):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    wanted = [known[name] for name in options.scenarios or SCENARIOS]
    runs = []
    for each in run_all(wanted, options.seed, options.processes):
        figures = each.figures
        print(
            f"{figures.scenario.title}: {figures.segments:,} segments, {figures.uncommitted:,} not committed, "
            f"{figures.total():,.0f} requests; recovery {figures.recovery_seconds:.0f} s, takeover at most "
            f"{figures.takeover_seconds[2]:.1f} s; {each.cpu_seconds:.0f} CPU s in {each.wall_seconds:.0f} s; "
            f"digest {figures.digest}\n  {sampling(figures)}",
            flush=True,
        )
        runs.append(each)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(runs))
    print(f"The page is {options.output}.")
    return 1 if any(each.figures.uncommitted for each in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
