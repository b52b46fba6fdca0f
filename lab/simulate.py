"""Run rows of faults against the feed, from seeds, at any size.

    udpfast lab simulate --row T-L1 --seed 17 --datagrams 1000000
    udpfast lab simulate --list

Each row drives the real engine and object gate with what a network does to a publisher whose
every state is known, and checks that verdicts add up to datagrams (NL0), that delivered seqnos
and gaps partition what was seen (NL1), and that every object equals the publisher's again once
the faults stop (NL2). A row that fails prints the one command that repeats it.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from .follower import Wrong
from .forged_rows import forged
from .line_rows import complementary_loss, disagreeing_lines, dying_line, race
from .loss_rows import (
    Found,
    burst_loss,
    duplicates,
    snapshot_loss,
    tail_loss,
    uniform_loss,
    wrap,
)
from .object_rows import differential, last_seqno_recovery, late_snapshots
from .order_rows import (
    criteria,
    fragments,
    hostile_fragments,
    onixs_example,
    reorder,
)
from .program import program, repeat
from .proof_rows import PROVEN, proofs
from .restart_rows import same_id_corners
from .session_rows import (
    flaps,
    inactivity,
    replay,
    restarts,
    same_session,
    skewed_restarts,
)
from .thin_rows import thin_lines
from .venue_rows import FAULTS, VENUES, venue

__all__ = ["ROWS", "cases", "main"]

_MS = 1_000_000

Row = Callable[..., Found]

#: What each row runs, and with which numbers: (function, [arguments of each case]).
ROWS: dict[str, tuple[Row, list[dict[str, Any]]]] = {
    "T-L1": (uniform_loss, [{"loss": loss} for loss in (0, 0.0001, 0.001, 0.01, 0.05, 0.1, 0.3)]),
    "T-L2": (
        burst_loss,
        [
            {"loss": loss, "burst_mean": mean}
            for loss in (0.01, 0.05)
            for mean in (10, 100, 1_000, 10_000)
        ],
    ),
    "T-L3": (tail_loss, [{}]),
    "T-L4": (snapshot_loss, [{"loss": loss} for loss in (0.1, 0.5, 0.9)]),
    "T-L5": (
        thin_lines,
        [
            {"framing": framing, "loss": loss}
            for framing in ("roq", "moldudp64")
            for loss in (0.0, 0.001, 0.01, 0.05)
        ],
    ),
    "T-O1": (
        reorder,
        [{"depth": depth} for depth in (*range(1, 18), 256, 4_096, 8_191, 8_192, 8_193)],
    ),
    "T-O2": (onixs_example, [{"on_gap": policy} for policy in ("keep_all", "latest_run")]),
    "T-O3": (
        criteria,
        [
            {"wait_ms": wait, "interval": interval}
            for wait in (1, 5, 20, 100)
            for interval in (1, 2, 5, 6, 7, 16, 100, 1_000, 8_192)
        ],
    ),
    "T-D1": (
        duplicates,
        [{"part": 0.01}, {"part": 0.1}, {"part": 0.5}, {"part": 0.01, "delay_ns": 1_000 * _MS}],
    ),
    "T-D2": (replay, [{"how": how} for how in ("same_session", "retired", "unlisted")]),
    "T-W1": (wrap, [{"start": start} for start in ((1 << 32) - 100, (1 << 32) - 1, 0)]),
    "T-F1": (fragments, [{}, {"loss": 0.0}]),
    "T-F2": (hostile_fragments, [{}]),
    "T-S1": (restarts, [{}]),
    "T-S2": (skewed_restarts, [{"skew_ns": skew} for skew in (_MS // 10, _MS, 5 * _MS, 50 * _MS)]),
    "T-S3": (
        same_session,
        [
            {"old_seqno": seqno}
            for seqno in (1_000, 1_000_000, (1 << 30) - 1, (1 << 30) + 1, 1 << 31)
        ],
    ),
    "T-S4": (flaps, [{"own_source": True}, {"own_source": False}]),
    "T-N1": (same_id_corners, [{"restart": True}, {"restart": False}]),
    "T-N2": (forged, [{}]),
    "T-A1": (
        complementary_loss,
        [
            {"loss_a": loss, "skew_ns": skew}
            for loss in (0.01, 0.1)
            for skew in (0, 5 * _MS // 2, 5 * _MS, 50 * _MS)
        ],
    ),
    "T-A2": (dying_line, [{}]),
    "T-A3": (disagreeing_lines, [{}]),
    "T-A4": (race, [{}]),
    "T-R1": (late_snapshots, [{"delay_ns": delay * _MS} for delay in (0, 1, 20, 1_000, 5_000)]),
    "T-R2": (last_seqno_recovery, [{"hit": hit} for hit in (0, 1, 10, 500)]),
    "T-R3": (differential, [{}]),
    "T-I1": (inactivity, [{}]),
    "T-V1": (venue, [{"framing": name, "fault": fault} for name in VENUES for fault in FAULTS]),
    "T-V4": (proofs, [{"framing": framing, "what": what} for framing, what in PROVEN]),
}


def cases(row: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Return each case of a row: the function, and its arguments beside seed and datagrams."""
    function, arguments = ROWS[row]
    return ((function, case) for case in arguments)


@program
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="Default: all.")
@click.option("--case", "only", type=int, help="Only this case of each row, from 0.")
@click.option("--seed", type=int, default=1, show_default=True, help="The first one.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--datagrams", type=click.IntRange(1), default=10_000, help="About so many a case.")
@click.option("--list", "listed", is_flag=True, help="Print the rows and their cases.")
def main(
    rows: tuple[str, ...], only: int | None, seed: int, seeds: int, datagrams: int, listed: bool
) -> int:
    """Run rows; return how many runs found something."""
    failed = 0
    for row in rows or ROWS:
        for number, (function, case) in enumerate(cases(row)):
            if only not in (None, number):
                continue
            if listed:
                click.echo(f"{row} {number} {function.__name__} {json.dumps(case)}")
                continue
            for each in range(seed, seed + seeds):
                failed += not _run(row, number, function, case, each, datagrams)
    return failed


def _run(
    row: str, number: int, function: Row, case: dict[str, Any], seed: int, datagrams: int
) -> bool:
    begun = time.perf_counter()
    try:
        found = function(seed, datagrams, **case)
    except Wrong as wrong:
        click.echo(f"{row} {case}: {wrong}")
        click.echo(repeat(__name__, row=row, case=number, seed=seed, datagrams=datagrams))
        return False
    took = round(time.perf_counter() - begun, 2)
    click.echo(f"{row} {json.dumps({**case, 'seed': seed, 'seconds': took, **found})}")
    return True
