"""The command line of a check that runs by seeds."""

import argparse
import time
import traceback
from collections.abc import Callable

__all__ = ["check_seeds"]


def check_seeds(
    module: str,
    description: str,
    check_seed: Callable[[int], str],
    seeds: int,
    arguments: list[str] | None,
) -> int:
    """Run the seeds that a command line asks for; 0 if every one passes.

    Parameters
    ----------
    module : str
        Below `udpfast.lab`: a seed that fails is printed as the command that repeats it.
    description : str
        One line, for `--help`.
    check_seed : callable
        Runs one seed; returns what is wrong, or nothing.
    seeds : int
        So many without `--seeds`.
    arguments : list of str or None
        None: those of the process.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            found = check_seed(seed)
        except Exception:
            found = traceback.format_exc()
        if found:
            failed += 1
            command = f"python -m udpfast.lab.{module} --seeds 1 --seed {seed}"
            print(f"{command}: {found}", flush=True)
    print(f"{options.seeds} seeds from {options.seed}, {failed} failed")
    return 1 if failed else 0
