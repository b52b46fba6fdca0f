"""Run every campaign, one behind the other, with seeds of the day.

    udpfast lab nightly
    udpfast lab nightly --only bus --only fuzz --share 0.01

docs/campaigns.md says what each of them tries. What one of them prints is in DIRECTORY, a file
each; a failure ends no other, and its last lines are shown.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from udpfast.cli.options import FiniteRange

from .program import program

__all__ = ["CAMPAIGNS", "Campaign", "commands", "main"]

#: Seeds of one day: no campaign draws more, so that each night tries others.
SEEDS_A_DAY = 10_000_000

#: Lines of a campaign that failed.
LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Campaign:
    """A program of the lab, and how much of it is a night's work.

    Parameters
    ----------
    program : str
    option : str
        Says how much; empty: there is one amount.
    amount : int
    arguments : tuple of str
        Others.
    needs : str
        A folder below `UDPFAST_SHARED`, which it gets as its argument.
    seeks : str
        One that it finds there by itself.
    """

    program: str
    option: str = ""
    amount: int = 0
    arguments: tuple[str, ...] = ()
    needs: str = ""
    seeks: str = ""

    @property
    def name(self) -> str:
        """What its file is called."""
        return "-".join((self.program, *self.arguments, *filter(None, self.needs.split("/"))))


CAMPAIGNS = (
    Campaign("conformance", needs="wire"),
    Campaign("conformance", needs="data/pcap"),
    Campaign("conformance", needs="venues"),
    Campaign("live", needs="data/pcap"),
    Campaign("simulate", "seeds", 1000),
    *(
        Campaign("fuzz", "count", 20_000_000, (kind,))
        for kind in ("datagrams", "payloads", "frames", "venues", "wire", "feed")
    ),
    Campaign("object-corners", "seeds", 10_000),
    Campaign("identity", "seeds", 1000),
    Campaign("dense-markets", "seeds", 1000),
    Campaign("settings-edges", "seeds", 100_000),
    Campaign("sbecheck", "seeds", 10_000),
    Campaign("seamcheck", "seeds", 10_000),
    Campaign("bus", "seeds", 10_000),
    Campaign("bus-composite", "seeds", 3000),
    Campaign("bus-faults"),
    Campaign("ringcheck"),
    Campaign("journalcheck"),
    Campaign("exportcheck", "seeds", 300),
    Campaign("export-runs", "seeds", 50),
    Campaign("streamcheck", "kills", 20),
    Campaign("lives", "seeds", 300),
    Campaign("latejoin", "attaches", 1000, ("--simulate",)),
    Campaign("hostile", "kills", 1000),
    Campaign("group", "seconds", 60, ("--kills", "5")),
    Campaign("relaycheck", "seeds", 300, seeks="venues/books"),
    Campaign("relaychain", "seeds", 40),
    Campaign("parity", "count", 2_000_000),
    Campaign("zmq-stall", "seconds", 60),
)

#: Programs that draw nothing.
WITHOUT_SEED = ("conformance", "live", "zmq-stall")


def commands(
    only: tuple[str, ...], share: float, seed: int, shared: Path
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each campaign; those whose data is not here are left out."""
    for each in CAMPAIGNS:
        if only and each.program not in only:
            continue
        words = [each.program, *each.arguments]
        folder = each.needs or each.seeks
        if folder and not (shared / folder).is_dir():
            click.echo(f"{each.name}: left out, no {shared / folder}")
            continue
        if each.needs:
            words.append(str(shared / each.needs))
        if each.option:
            words += [f"--{each.option}", str(max(1, int(each.amount * share)))]
        if each.program not in WITHOUT_SEED:
            words += ["--seed", str(seed)]
        yield each.name, words


@program
@click.option("--only", multiple=True, help="Campaigns of this program alone.")
@click.option("--share", type=FiniteRange(0), default=1.0, help="Of a night's amounts.")
@click.option("--seed", type=int, help="The first one, default the day's.")
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default="build/nightly"
)
def main(only: tuple[str, ...], share: float, seed: int | None, directory: Path) -> bool:
    """Return whether one of them failed."""
    day = datetime.datetime.now(datetime.UTC).date().toordinal()
    first = seed if seed is not None else day * SEEDS_A_DAY
    shared = Path(os.environ.get("UDPFAST_SHARED") or "../shared").resolve()
    environment = os.environ | {"UDPFAST_SHARED": str(shared)}
    directory.mkdir(parents=True, exist_ok=True)
    failed = False
    for name, words in commands(only, share, first, shared):
        began = time.monotonic()
        path = directory / f"{name}.txt"
        with path.open("w") as output:
            command = [sys.executable, "-m", "udpfast", "lab", *words]
            code = subprocess.run(
                command, stdout=output, stderr=output, check=False, env=environment
            ).returncode
        verdict = f"failed with {code}" if code else "passed"
        click.echo(f"{name}: {verdict} in {time.monotonic() - began:.0f} s, {path}")
        if code:
            failed = True
            click.echo("\n".join(path.read_text(errors="replace").splitlines()[-LINES_SHOWN:]))
    return failed
