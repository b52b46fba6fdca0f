"""Faults of a bus with real daemons, sockets and files: cut links, killed daemons, full disks.

    udpfast lab bus-faults --row B3 --times 1000
    udpfast lab bus-faults --list

The daemons are processes of this host, started as `udpfast bus run` starts them, and apps send all
the time. At the end of each row, every accepted message is in the stream exactly once, in the order
of its sender, and all copies have the same SHA-256. `udpfast lab bus` simulates far more faults in
one process.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from udpfast.archive.store import StoreView
from udpfast.cli.options import FiniteRange
from udpfast.client.app import App
from udpfast.log.segment import list_segments
from udpfast.net.ports import free_port

from .bus_behind import leave_behind
from .bus_damage import damage_files
from .bus_disk import SmallDisk, UnavailableError, command
from .bus_feed import fill_feed_disk, fill_recorder_disk, trouble_feed, trouble_recorders
from .bus_link import BadLink, LyingLink
from .bus_trial import HOSTS, SETTINGS, BusTrial, expect
from .children import in_child
from .program import program, repeat

__all__ = ["ROWS", "UnavailableError", "main"]

Row = Callable[[Path, int, int], dict[str, Any]]

#: Address at which host `one` finds S if the link between them is a bad one.
STAND_IN = "127.0.0.9"
#: Pause of apps that are to fill segments and disks quickly.
FAST_S = 0.02
THREE = {**HOSTS, "two": "127.0.0.3"}


def cut_links(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Cut the link to a copy at any byte, also while segments roll; some are slow (B1, B9)."""
    port = free_port()
    link = BadLink(STAND_IN, HOSTS["S"], HOSTS["one"], port, seed)
    try:
        # S asks who has the store from its own address, so that `one` must know that one, too.
        sees = {"one": {"S": STAND_IN, "S-itself": HOSTS["S"]}}
        with BusTrial(folder, seed, sees=sees, port=port) as trial:
            trial.begin()
            seen = 0
            while link.cuts < times:
                trial.until(functools.partial(_cut_again, link, seen), "a cut", trial.look)
                seen = link.cuts
                trial.compare("one")
            link.bad = False
            cuts = link.cuts
            found = trial.finish()
            rolls = len(list_segments(trial.path("one"))) - 1
            return {"cuts": cuts, "rolls": rolls, **found,
                    "reconnects": trial.state("one")["reconnects"]}  # fmt: skip
    finally:
        link.close()


def lie(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Forge, replay and reorder bytes on a link with keys, while the keys are changed (B20)."""
    port = free_port()
    link = LyingLink(STAND_IN, HOSTS["S"], HOSTS["one"], port, seed)
    old, new = (f"{seed:032x}{number:032x}" for number in (1, 2))
    # All hosts take one step before any takes the next.
    steps = ([old], [old, new], [new, old], [new])
    refused = 0
    try:
        sees = {"one": {"S": STAND_IN, "S-itself": HOSTS["S"]}}
        with BusTrial(folder, seed, sees=sees, port=port) as trial:
            for host in HOSTS:
                _use_keys(trial, host, steps[0])
                file = trial.file(host)
                file.write_text(f'key_file = "{host}.key"\n{file.read_text()}')
            trial.begin("S")  # datagrams do not pass through the bad link
            for number, keys in enumerate(steps):
                link.bad = False
                for host in HOSTS if number else ():
                    refused += trial.state(host)["unauthentic"]
                    _use_keys(trial, host, keys)
                    trial.kill(host)
                    trial.start(host)
                    trial.wait_for_stream("one")
                link.bad = True
                while link.cuts < times * (number + 1) // len(steps):
                    seen = link.cuts
                    trial.until(functools.partial(_cut_again, link, seen), "a lie", trial.look)
                    trial.compare("one")
            link.bad = False
            found = trial.finish(forged=True)
            refused += sum(trial.state(host)["unauthentic"] for host in HOSTS)
            expect(refused, "that false bytes are refused")
            return {"lies": link.cuts, "refused": refused, **found}
    finally:
        link.close()


def _use_keys(trial: BusTrial, host: str, keys: list[str]) -> None:
    path = trial.folder / f"{host}.key"
    path.write_text("\n".join(keys))
    path.chmod(0o600)


def _cut_again(link: BadLink, seen: int) -> bool:
    return link.cuts > seen


def kill_daemons(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Kill the source or the copy at any moment, also while it starts, recovers or rolls (B3)."""
    kills = dict.fromkeys(HOSTS, 0)
    with BusTrial(folder, seed) as trial:
        trial.begin()
        while min(kills.values()) < times:
            host = trial.rng.choice([each for each, count in kills.items() if count < times])
            if trial.rng.random() < 0.7:
                trial.wait_for_stream(host)
                time.sleep(trial.rng.random() * 0.2)
            else:
                time.sleep(trial.rng.random())  # the daemon may not be ready yet
            trial.kill(host)
            kills[host] += 1
            with suppress(FileNotFoundError):
                trial.compare("one")
            trial.start(host)
        return {**{f"kills of {host}": count for host, count in kills.items()}, **trial.finish()}


def kill_sequencer(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Kill the sequencer; 10 % is lost, 20 % comes twice, old segments are removed (B11)."""
    bad = ("--lose", "0.1", "--twice", "0.2")
    with BusTrial(folder, seed, f"{SETTINGS}keep_segments = 2\n", options=bad) as trial:
        trial.begin(pause_s=FAST_S)
        for _ in range(times):
            if trial.rng.random() < 0.7:
                trial.wait_for_stream("S")
            time.sleep(trial.rng.random() * 0.3)
            trial.kill("S")
            trial.start("S")
        trial.wait_for_stream("S")
        trial.until(lambda: trial.first("S") > 0, "segments that are removed", trial.look)
        return {"kills": times, **trial.finish()}


def kill_in_chain(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Kill the copy from which another copy copies (`sources`), and the writer as well."""
    settings = SETTINGS.replace('["one"]', '["one", "two"]') + 'sources = {two = "one"}\n'
    with BusTrial(folder, seed, settings, THREE) as trial:
        trial.begin()
        expect(trial.state("two")["writer_host"] == "S", "two to know who writes")
        for number in range(times):
            host = "one" if number % 3 else "S"
            trial.kill(host)
            time.sleep(trial.rng.random() * 0.3)
            trial.start(host)
            trial.go_on()
            trial.compare("two")
        found = trial.finish()
        # Host two still copies from one.
        consumers = trial.state("one")["consumers"]
        expect(consumers["two"]["connected"], "two to copy from one")
        return {"kills": times, **found}


def fill_disk(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Fill the disk of a copy; its daemon continues once there is room again (B7)."""
    with SmallDisk(folder / "one") as disk, BusTrial(folder, seed) as trial:
        trial.begin("S", pause_s=FAST_S)
        before = trial.daemons["one"].pid
        for _ in range(times):
            trial.until(lambda: trial.state("one")["problem"], "a full disk", trial.look)
            expect("No space left" in trial.state("one")["problem"], "the disk to be said full")
            _fill_segment(trial)
            trial.go_on("S")  # the source is not delayed
            expect(trial.state("S")["problem"] == "", "no problem of the source's disk")
            trial.compare("one")
            disk.grow(2)
            trial.until(lambda: not trial.state("one")["problem"], "room on the disk")
            trial.go_on()
        disk.grow(512)
        found = trial.finish()
        expect(trial.daemons["one"].poll() is None and trial.state("one")["pid"] == before,
               "the daemon of the copy to be the same process")  # fmt: skip
        return {"full": times, **found}


def _fill_segment(trial: BusTrial) -> None:
    # Wait until the copy lacks records that do not fit into its last segment.
    trial.until(
        lambda: trial.lives("S").end > trial.lives("one").end + 1000
        and trial.state("S")["consumers"]["one"]["lag_records"] > 0,
        "a copy that lags", trial.look,
    )  # fmt: skip


def stop_daemons(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop either end for 5 s: it is taken for dead, and later there is exactly one link (B8)."""
    with BusTrial(folder, seed) as trial:
        trial.begin()
        for number in range(times):
            host = ("one", "S")[number % 2]
            trial.go_on()
            before = trial.state("one")["reconnects"]
            trial.daemons[host].send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            if host == "one":
                trial.until(lambda: not trial.state("S")["consumers"]["one"]["connected"],
                            "a link that is taken for dead")  # fmt: skip
            else:
                trial.until(functools.partial(_reconnected, trial, before),
                            "a link that is taken for dead")  # fmt: skip
            time.sleep(max(5 - (time.monotonic() - stopped), 0))
            trial.daemons[host].send_signal(signal.SIGCONT)
            trial.wait_for_stream("one")
            trial.go_on()
            trial.until(lambda: _links(trial.port) == 1, "one link, and no other")
        return {"stops": times, **trial.finish()}


def _reconnected(trial: BusTrial, before: int) -> bool:
    return int(trial.state("one")["reconnects"]) > before


def _links(port: int) -> int:
    # Count the established connections to a port of the loopback.
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        count += state == "01" and int(local.partition(":")[2], 16) == port
    return count


def remove_segments(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Remove segments that a copy lacks: it learns exactly what is gone (B9: retention).

    Three settings take turns: no segment is kept for copies; segments are kept, but at most
    `keep_most`; segments are kept for all copies.
    """
    gone = 0
    for number in range(times):
        keeps = ("keep_for = []", "keep_most = 6", "")[number % 3]
        place = folder / str(number)
        place.mkdir()
        gone += _remove_segments(place, seed + number, keeps)
    return {"times": times, "gone": gone}


def _remove_segments(folder: Path, seed: int, keeps: str) -> int:
    with BusTrial(folder, seed, f"{SETTINGS}keep_segments = 2\n{keeps}\n") as trial:
        trial.begin("S", pause_s=FAST_S)
        trial.go_on()
        trial.kill("one")
        # The copy may have more records than it reported before it was killed.
        said = trial.lives("one").end
        least = said + sum(map(len, StoreView(trial.path("one")).records(said, 1 << 62)))
        trial.until(lambda: trial.lives("S").end > least + (9 << 18), "nine segments", trial.look)
        if keeps:
            trial.until(lambda: trial.first("S") > least, "segments that are removed", trial.look)
            trial.talkers["S"].be_quiet()
            trial.until(trial.is_quiet, "all that was sent in the stream")
        trial.start("one")
        if not keeps:
            found = trial.finish()
            expect(found["messages"] and trial.state("S")["removed_lacked"] == 0,
                   "that nothing was removed which the copy lacked")  # fmt: skip
            return 0
        trial.until(lambda: trial.state("one")["stopped"], "a copy that stops")
        first = trial.first("S")
        lacked = trial.state("S")["removed_lacked"]
        expect((lacked > 0) == ("keep_most" in keeps), f"not {lacked} segments that a copy lacked")
        state = trial.state("one")
        expect(state["stopped"] == "gone" and state["said"][-1].endswith(f"GONE, position {first}"),
               f"GONE, {first}; found {state['stopped']}, {state['said'][-1:]}")  # fmt: skip
        expect(state["end"] == least, f"a copy that ends at {least} still, found {state['end']}")
        # A new copy begins at the oldest segment that is kept.
        trial.kill("one")
        shutil.rmtree(trial.path("one"))
        trial.start("one")
        trial.until(lambda: trial.follows("one") and trial.are_equal(), "a new copy")
        trial.checked["one"] = 0  # both continue to remove segments that neither needs
        trial.compare("one")
        trial.talkers["S"].close()
        return 1


def kill_apps(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Kill an app, its daemon or both between accept and send: each message arrives once (B12)."""
    with BusTrial(folder, seed) as trial:
        trial.start_all()
        app = trial.app("one", "app-one", slots=256)
        app.close()
        address = f"store:{trial.path('one')}"
        accepted = 0
        for number in range(times):
            child = in_child(lambda: _send_on(address))
            time.sleep(trial.rng.random() * 0.3)
            if number % 3:
                trial.kill("one")
            if number % 3 != 1:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if number % 3:
                trial.start("one")
            if number % 3 == 1:  # the app did not notice the restart
                trial.wait_for_stream("one")
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            with App(address, "app-one") as app:
                expect(app.counts()["accepted"] >= accepted, "no accepted message to be forgotten")
                accepted = app.counts()["accepted"]
        with App(address, "app-one") as app:
            trial.until(lambda: app.counts()["seen"] == accepted, "all messages in the stream")
        trial.until(trial.are_equal, "equal copies")
        copies = [trial.copy(host) for host in HOSTS]
        expect(copies[0] == copies[1], "the same SHA-256 on both hosts")
        expect(copies[0].in_order and copies[0].messages == accepted,
               f"{accepted} messages, each once, in order; found {copies[0].messages}")  # fmt: skip
        return {"kills": times, "messages": accepted}


def _send_on(address: str) -> None:
    with App(address, "app-one") as app:
        while True:
            app.send(b"%d" % (app.counts()["accepted"] + 1), 7, timeout=3600.0)


def set_aside(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Promote a copy while the writer is frozen: it later sets aside what it alone has."""
    total = {"times": 0, "set aside": 0, "messages": 0}
    for number in range(times):
        place = folder / str(number)
        place.mkdir()
        found = _set_aside(place, seed + number)
        total = {"times": number + 1, "set aside": total["set aside"] + found["set aside"],
                 "messages": total["messages"] + found["messages"]}  # fmt: skip
    return total


def _set_aside(folder: Path, seed: int) -> dict[str, int]:
    settings = SETTINGS.replace('["one"]', '["one", "two"]')
    with BusTrial(folder, seed, settings, THREE) as trial:
        trial.start_all()
        apps = {host: trial.app(host, f"app-{host}") for host in ("S", "one")}
        for app in apps.values():
            for number in range(200):
                app.send(b"%d" % number, 7)
        trial.until(lambda: all(app.counts()["seen"] == 200 for app in apps.values()), "messages")
        trial.until(trial.are_equal, "equal copies")
        common = trial.lives("S").end
        for host in ("one", "two"):
            trial.kill(host)  # a frozen host would find the missed bytes in its sockets
        alone = 50 + seed % 50
        for number in range(alone):
            apps["S"].send(b"alone %d" % number, 7)
        trial.until(lambda: apps["S"].counts()["seen"] == 200 + alone, "messages on S alone")
        trial.daemons["S"].send_signal(signal.SIGSTOP)
        for host in ("one", "two"):
            trial.start(host)
        trial.promote("one")
        apps["one"].send(b"of the new epoch", 7)
        trial.until(lambda: apps["one"].counts()["seen"] == 201, "a message in the new epoch")
        ended = trial.lives("S").end
        trial.daemons["S"].send_signal(signal.SIGCONT)
        trial.until(lambda: trial.state("S")["stopped"], "a writer that finds out")
        state = trial.state("S")
        expect(state["stopped"] == "diverged" and not state["writer"], "a copy that diverged")
        expect(state["end"] == ended, "that the old writer appended nothing more")
        said = next(line for line in reversed(state["said"]) if "differs from its source" in line)
        at = int(said.split(" at position ")[1].partition(":")[0])
        expect(at == common, f"a difference at {common}, found {at}")
        lost = sum(1 for _ in StoreView(trial.path("S")).records(at, ended))
        trial.kill("S")
        trial.start("S", "--quarantine")
        trial.wait_for_stream("S")
        state = trial.state("S")
        expect(state["quarantined"] == lost, f"{lost} records aside, found {state['quarantined']}")
        expect(_aside(trial.path("S"), at) == lost, f"{lost} records in the files aside")
        trial.until(lambda: apps["S"].counts()["seen"] == 200 + alone, "these in the stream again")
        trial.until(trial.are_equal, "equal copies")
        copies = [trial.copy(host) for host in THREE]
        expect(copies[0] == copies[1] == copies[2], "the same SHA-256 on all hosts")
        expect(copies[0].in_order and copies[0].messages == 401 + alone, "all messages, once")
        for app in apps.values():
            app.close()
        return {"set aside": lost, "messages": copies[0].messages}


def stop_in_good_order(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop daemons cleanly and start them again: one, one after another, or all at once."""
    settings = SETTINGS.replace('["one"]', '["one", "two"]')
    with BusTrial(folder, seed, settings, THREE) as trial:
        trial.begin()
        for _ in range(times):
            hosts = trial.rng.sample(list(THREE), trial.rng.randint(1, 3))
            at_once = trial.rng.random() < 0.5
            for group in [hosts] if at_once else [[host] for host in hosts]:
                trial.go_on("S", records=trial.rng.randint(1, 400))
                for host in group:
                    trial.daemons[host].send_signal(signal.SIGTERM)
                for host in group:
                    expect(trial.daemons[host].wait() == 0, f"{host} to end in good order")
                time.sleep(trial.rng.random() * 0.5)
                for host in group:
                    trial.start(host)
                for host in THREE:
                    trial.wait_for_stream(host)
                trial.go_on()
            trial.compare("one")
            trial.compare("two")
        return {"times": times, **trial.finish()}


def move_directories(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Copy the directory of a store to another disk: it is refused until `bus adopt`."""
    with BusTrial(folder, seed) as trial:
        trial.begin("S")
        for number in range(times):
            trial.go_on()
            trial.kill("one")
            path = trial.path("one")
            path.rename(folder / f"before-{number}")
            command("cp", "-a", str(folder / f"before-{number}"), str(path))
            trial.start("one")
            expect(trial.daemons["one"].wait() == 1, "a copied directory to be refused")
            said = (folder / "one.log").read_text().splitlines()[-1]
            expect("found a copy of it" in said and "udpfast bus adopt" in said,
                   f"the command that adopts it, found {said}")  # fmt: skip
            command(sys.executable, "-m", "udpfast", "bus", "adopt", f"store:{path}")
            trial.start("one")
            trial.wait_for_stream("one")
            trial.go_on()
            trial.compare("one")
        return {"moves": times, **trial.finish()}


def restore_backups(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Restore a backup of a directory: after `bus adopt` the host copies what it lacks again."""
    messages = 0
    for at, host in enumerate(HOSTS):
        own = folder / host
        own.mkdir(mode=0o700)
        messages += _restore_backups(own, host, (times + 1 - at) // 2, seed + at)
    return {"backups": times, "messages": messages}


def _restore_backups(folder: Path, host: str, times: int, seed: int) -> int:
    # Apps run on the other host, because the files of this one are replaced.
    (other,) = set(HOSTS) - {host}
    with BusTrial(folder, seed) as trial:
        trial.begin(other)
        for number in range(times):
            path, backup = trial.path(host), folder / f"backup-{number}"
            trial.go_on()
            trial.daemons[host].send_signal(signal.SIGTERM)
            expect(trial.daemons[host].wait() == 0, f"{host} to end in good order")
            command("cp", "-a", str(path), str(backup))
            trial.start(host)
            trial.wait_for_stream(host)
            trial.go_on(records=trial.rng.randint(1, 400))
            trial.kill(host)
            shutil.rmtree(path)
            command("cp", "-a", str(backup), str(path))
            trial.start(host)
            expect(trial.daemons[host].wait() == 1, "a backup to be refused")
            command(sys.executable, "-m", "udpfast", "bus", "adopt", f"store:{path}")
            trial.start(host)
            if host == "S":
                trial.until(lambda: trial.state("S")["waits"], "a writer that waits", trial.look)
                trial.promote("S")
            for each in trial.hosts:
                trial.wait_for_stream(each)
            trial.go_on()
            trial.checked["one"] = 0
            trial.compare("one")
        return trial.finish()["messages"]


def mix_up_hosts(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Start a daemon on the directory of the other host: it is refused and stays unchanged."""
    with BusTrial(folder, seed) as trial:
        trial.begin("S")
        for number in range(times):
            trial.go_on()
            trial.kill("one")
            path, before = trial.path("one"), folder / f"before-{number}"
            path.rename(before)
            command("cp", "-a", str(trial.path("S")), str(path))
            trial.start("one")
            expect(trial.daemons["one"].wait() == 2, "another host's directory to be refused")
            said = (folder / "one.log").read_text().splitlines()[-1]
            expect("expected one's copy of orders, found S's copy of orders" in said,
                   f"whose directory it is, found {said}")  # fmt: skip
            shutil.rmtree(path)
            before.rename(path)
            trial.start("one")
            trial.wait_for_stream("one")
            trial.compare("one")
        return {"times": times, **trial.finish()}


def _aside(store: Path, position: int) -> int:
    # Count the records from a position on in the files that were set aside, read as a store.
    place = store.parent / "aside"
    place.mkdir(mode=0o700)
    for path in store.glob("*.segment.aside-1"):
        shutil.copy(path, place / path.name.removesuffix(".aside-1"))
    view = StoreView(place)
    return sum(1 for _ in view.records(max(position, view.first()[0]), 1 << 62))


#: The function of each row, and how many times it acts by default.
ROWS: dict[str, tuple[Row, int]] = {
    "B1": (cut_links, 1000),
    "B2": (leave_behind, 5),
    "B3": (kill_daemons, 1000),
    "B7": (fill_disk, 20),
    "B8": (stop_daemons, 10),
    "B9": (remove_segments, 9),
    "B11": (kill_sequencer, 1000),
    "B12": (kill_apps, 200),
    "B20": (lie, 1000),
    "chain": (kill_in_chain, 100),
    "aside": (set_aside, 10),
    "order": (stop_in_good_order, 20),
    "moved": (move_directories, 10),
    "backup": (restore_backups, 10),
    "mixed": (mix_up_hosts, 10),
    "damage": (damage_files, 200),
    "feed": (trouble_feed, 20),
    "recorder": (trouble_recorders, 40),
    "feed-disk": (fill_feed_disk, 5),
    "recorder-disk": (fill_recorder_disk, 5),
}


@program
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="Default: all.")
@click.option("--times", type=click.IntRange(1), help="Faults; by default as `--list` says.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--loss",
    type=FiniteRange(0, 50),
    default=0.0,
    help="% of the frames that the loopback loses; needs root.",
)
@click.option("--list", "listed", is_flag=True, help="List all rows.")
def main(rows: tuple[str, ...], times: int | None, seed: int, loss: float, listed: bool) -> int:
    """Run rows of faults; return how many failed."""
    if loss:
        _lose(loss)
    failed = 0
    for row in () if listed else rows or ROWS:
        run, usual = ROWS[row]
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="udpfast-bus-") as folder:
                found = run(Path(folder), times or usual, seed)
        except UnavailableError as reason:
            click.echo(f"{row}: left out: {reason}")
        except Exception as problem:
            failed += 1
            click.echo(f"{row}: {problem!r}")
            click.echo(repeat(__name__, row=row, times=times or usual, seed=seed))
        else:
            words = ", ".join(f"{count:,} {what}" for what, count in found.items())
            click.echo(f"{row}: {words}: ok, {time.monotonic() - began:.0f} s")
    for row, (run, usual) in ROWS.items() if listed else ():
        click.echo(f"{row:13} {usual:5} {(run.__doc__ or '').splitlines()[0]}")
    return failed


def _lose(loss: float) -> None:
    # Run this command again in a network namespace whose loopback loses frames.
    if os.environ.get("UDPFAST_LAB_LOSS"):
        return
    setup = f"ip link set lo up && tc qdisc add dev lo root netem loss {loss:g}%"
    own = ("unshare", "-n", "sh", "-c")
    try:
        command(*own, setup)
    except (OSError, UnavailableError) as reason:
        raise click.ClickException(f"--loss: {reason}") from None
    words = [*own, f'{setup} && exec "$@"', "sh", sys.executable, "-m", "udpfast", "lab",
             "bus-faults", *sys.argv[sys.argv.index("bus-faults") + 1 :]]  # fmt: skip
    os.execvpe(words[0], words, {**os.environ, "UDPFAST_LAB_LOSS": f"{loss:g}"})
