"""Measure two lines to a listener, from Python; numpy has an element per probe.

udpfast wire listen 127.0.0.1:7007
python docs/examples/measure_lines.py 127.0.0.1:7007 127.0.0.1:7007
"""

import sys

import numpy as np

from udpfast.probe import Sender


def main(microwave: str, fibre: str) -> None:
    """Send for two seconds, and print how the lines compare."""
    lines = {"microwave": microwave, "fibre": fibre}
    with Sender(lines, rate_per_s=1000, seconds=2, spin=False) as sender:
        result = sender.run()  # Ctrl-C ends it early, with the results so far
    for name, line in result.lines.items():
        trip = line.percentiles("round_trip")
        print(name, f"p50 {trip['p50'] / 1e3:.1f} us, lost {int(line.lost.sum())} on the way out")
    race = result.races[0]  # microwave against fibre, on the way out
    print(f"{race.first} was faster in {np.mean(race.lead_ns > 0):.0%}; {result.offset.sentence()}")
    result.write_arrays("lines.npz")
    result.write_page("lines.html")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
