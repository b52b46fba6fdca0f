"""`udpfast tune` and `scripts/tune_host.sh`: findings as a table, changes made and undone."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from udpfast.host import inspect_host
from udpfast.host.boot import boot_line
from udpfast.host.core_list import compress, expand
from udpfast.host.finding import Change
from udpfast.host.setting import set_value
from udpfast.host.tree import HostTree, HostUse
from udpfast.host.undo import Row, UndoFile, UndoFileError

__all__ = ["UNDO_FILE", "help_text", "main"]

UNDO_FILE = Path("/var/lib/udpfast-tune/undo")

_RESULTS = {True: "PASS", False: "FAIL", None: "N/A"}
_VERBS = ("check", "apply", "undo", "boot-line")
_VERBS_HELP = """\
check (default)  one row per knob: PASS, FAIL or N/A (why); changes nothing
apply            set what failed, old -> new; the undo file is written first
undo             put back every value that apply changed
boot-line        print kernel arguments for the boot loader; edits nothing"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line, without the usage.
        said = message.removeprefix("argument ").removeprefix("verb: ")
        self.exit(2, f"{self.prog}: {said}\n")


def main(arguments: Sequence[str] | None = None, program: str = "tune_host.sh") -> NoReturn:
    """Run the command. Exit code: 0 nothing failed, 1 something failed, 2 wrong usage.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.
    program : str
        Name of the program in its messages.
    """
    parser = _parser(program)
    options = parser.parse_args(arguments)
    root, verb, as_json = options.root, options.verb, options.json
    use = HostUse(
        cores=options.rx_cpus,
        strategy_cores=options.strategy_cpus,
        interfaces=options.iface,
        busy_poll=options.busy_poll,
        prefer_busy_poll=options.prefer_busy_poll,
        gro=options.gro,
        fifo=options.fifo,
    )
    tree = HostTree(root, use)
    _refuse_cores(parser, tree)
    if verb == "check":
        _print_table(("name", "want", "have", "result", "reason"), rows := _checked(tree), as_json)
        sys.exit(any(row[3] == "FAIL" for row in rows))
    if verb == "boot-line":
        if not use.named:
            parser.error("boot-line needs --rx-cpus or --strategy-cpus")
        line = boot_line(tree)
        print(json.dumps({"boot_line": line}) if as_json else line)
        sys.exit(0)
    if root == Path("/") and os.geteuid() != 0:
        parser.exit(1, f"{parser.prog}: {verb} changes kernel settings: run it as root\n")
    for name in use.interfaces if verb == "apply" else ():
        # A missing interface cannot be set, and apply prints only what it sets.
        if not (root / "sys/class/net" / name).is_dir():
            parser.error(f"--iface: expected interfaces of this host, found {name!r}")
    try:
        undo_file = UndoFile(options.undo_file, root)
        rows = _applied(tree, undo_file) if verb == "apply" else undo_file.undo()
    except UndoFileError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    _print_table(("setting", "old", "new", "result", "reason"), rows, as_json)
    if verb == "apply" and not as_json and undo_file.path.exists():
        print(f"undo file: {undo_file.path}")
    sys.exit(any(row[3] == "refused" for row in rows))


def _refuse_cores(parser: _Parser, tree: HostTree) -> None:
    """End with what is wrong with the named cores, if something is."""
    use = tree.use
    if not use.named <= tree.online:
        there, found = compress(tree.online) or "none", compress(use.named)
        parser.error(f"expected cores of this host ({there}), found {found!r}")
    if both := {*use.cores} & {*use.strategy_cores}:
        # The tick is wanted on the one kind of core, and not on the other.
        parser.error(
            f"expected each core in one of --rx-cpus and --strategy-cpus, found {compress(both)!r} "
            "in both: a loop that spins needs a core of its own"
        )
    if use.named and use.named == tree.online:
        parser.error(
            "expected at least one core for the rest of the host, found none: name fewer cores"
        )


def help_text(program: str) -> str:
    """Return what `--help` prints."""
    return _parser(program).format_help()


def _parser(program: str) -> _Parser:
    parser = _Parser(
        prog=program,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"{program} [check | apply | undo | boot-line] [options]",
        description="Compare this host with what a low-latency receiver needs, and change what "
        f"can be changed at run time.\n\n{_VERBS_HELP}",
        epilog=f"Examples:\n  {program}\n  {program} check --rx-cpus 2,3 --iface eth1\n"
        f"  sudo {program} apply --rx-cpus 2,3 --iface eth1\n  sudo {program} undo\n\n"
        "Exit code: 0 nothing failed, 1 something failed, 2 wrong usage. "
        "docs/tuning.md explains each setting.",
    )
    parser.add_argument("verb", nargs="?", type=_verb, default="check", help=argparse.SUPPRESS)
    for option, kind, default, text in (
        (
            "--rx-cpus",
            _cores,
            (),
            "cores that receive (agent.core of each feed), for example 2 or 2,4-5",
        ),
        ("--strategy-cpus", _cores, (), "cores on which strategies spin"),
        (
            "--iface",
            _interfaces,
            (),
            "network interfaces of the feeds, for example eth1 or eth1,eth2",
        ),
        (
            "--undo-file",
            _file,
            UNDO_FILE,
            f"default {UNDO_FILE}; only root may be able to write its directory",
        ),
        ("--root", Path, Path("/"), "read proc, sys and dev below this directory (for tests)"),
    ):
        metavar = "LIST" if default == () else "PATH"
        parser.add_argument(option, type=kind, default=default, metavar=metavar, help=text)
    for flag, text in (
        ("--busy-poll", "the feeds' sockets poll the NIC themselves (receive.busy_poll_us)"),
        (
            "--prefer-busy-poll",
            "and keep the NIC's interrupts off meanwhile (receive.prefer_busy_poll)",
        ),
        ("--gro", "the feeds' sockets receive runs of datagrams (receive.gro)"),
        ("--fifo", "the feeds' loops spin with SCHED_FIFO (agent.fifo_priority)"),
        ("--json", "machine-readable output"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    return parser


def _verb(text: str) -> str:
    if text not in _VERBS:
        is_file = text.endswith(".toml") or "/" in text
        raise argparse.ArgumentTypeError(
            f"expected check, apply, undo or boot-line, found {text!r}"
            + (f"; what a feed's file asks of this host: udpfast check {text}" if is_file else "")
        )
    return text


def _cores(text: str) -> tuple[int, ...]:
    # No leading zeros, which some read as octal, and no range from high to low.
    number = "(?:0|[1-9][0-9]{0,3})"
    if re.fullmatch(rf"{number}(-{number})?(,{number}(-{number})?)*", text):
        ranges = [part.partition("-") for part in text.split(",")]
        if all(int(first) <= int(last or first) for first, _, last in ranges):
            return tuple(sorted(expand(text)))
    raise argparse.ArgumentTypeError(f"expected cores such as 2 or 2,4-5, found {text!r}")


def _interfaces(text: str) -> tuple[str, ...]:
    if not re.fullmatch("[^,/]+(,[^,/]+)*", text):
        raise argparse.ArgumentTypeError(
            f"expected interfaces such as eth1 or eth1,eth2, found {text!r}"
        )
    return tuple(text.split(","))


def _file(text: str) -> Path:
    path = Path(text)
    if ".." in path.parts or not path.name or text.endswith("/"):
        raise argparse.ArgumentTypeError(f"expected a file's path without '..', found {text!r}")
    return path


def _checked(tree: HostTree) -> list[Row]:
    return [
        (finding.name, finding.want, finding.have, _RESULTS[finding.ok], finding.reason)
        for finding in inspect_host(tree.root, tree.use)
    ]


def _planned(tree: HostTree) -> list[Change]:
    findings = inspect_host(tree.root, tree.use)
    return list(dict.fromkeys(change for finding in findings for change in finding.changes))


def _applied(tree: HostTree, undo_file: UndoFile) -> list[Row]:
    changes = _planned(tree)
    if not changes:
        return []
    undo_file.remember(changes)
    refused = {change: set_value(tree.root, change) for change in changes}
    # Inspect again: a change that is still planned did not take effect, whatever the kernel said.
    untaken = {change.target: f"reads {change.old} now" for change in _planned(tree)}
    rows: list[Row] = []
    for change, error in refused.items():
        reason = error or untaken.get(change.target, "")
        result = "refused" if reason else "done"
        rows.append((change.target, change.old, change.new, result, reason))
    return rows


def _print_table(columns: Row, rows: Sequence[Row], as_json: bool) -> None:
    # Some settings contain newlines and tabs.
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    if as_json:
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in cells]
        print("[" + ",".join(f"\n  {line}" for line in lines) + "\n]")
        return
    for a, b, c, d, reason in ([*columns[:4], ""], *cells):
        print(f"{a:<30} {b:<38} {c:<26} {d}" + (f" ({reason})" if reason else ""))
