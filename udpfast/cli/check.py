"""`udpfast check`: what a feed's file sets, and what on this host would stop or slow it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import asdict, replace

from udpfast.cli.group import feed_files, is_group, load_feeds, plan_group
from udpfast.config import FeedConfig, Setting, as_written, describe
from udpfast.host import Finding, HostUse, inspect_host
from udpfast.monitor.findings import describe_judged, inspect_feed, inspect_together, use_of_all
from udpfast.monitor.memory import FeedMemory, feed_memory, with_memory

__all__ = ["check", "print_findings"]


@click.command(epilog="\b\nExamples:\n  udpfast check feed.toml\n  udpfast check feeds/ --faults")
@click.argument("paths", metavar="[FEED.TOML | DIRECTORY]...", nargs=-1)
@click.option(
    "--all",
    "with_rest",
    is_flag=True,
    help="Also list every setting and the checks that passed.",
)
@click.option(
    "--faults",
    "faults_only",
    is_flag=True,
    help="List only what keeps a feed from running as its file asks.",
)
@click.option(
    "--host",
    "host_file",
    metavar="HOST.TOML",
    help="Settings that several feeds share, as for `udpfast run`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def check(
    paths: tuple[str, ...],
    with_rest: bool,
    faults_only: bool,
    host_file: str | None,
    as_json: bool,
) -> None:
    """List what on this host would stop or slow down the feed of FEED.TOML.

    Then list the memory that it takes, and the settings that the file makes or, with --all, every
    setting and its reason. Several files, or a DIRECTORY of them, are judged together, with the
    DIRECTORY's host.toml: their memory is added up, each feed has the core that it would be given.
    Without a file, check only the host. Exit code 1 if a feed cannot run as its file asks, 2 if a
    file is wrong, so that `udpfast run` would exit with 2; findings that only cost time, or
    datagrams under load, do not change the exit code.
    """
    if with_rest and faults_only:
        raise click.UsageError("--all and --faults exclude each other")
    if host_file is not None and not paths:
        raise click.UsageError("--host wants the files of the feeds")
    if is_group(paths, host_file):
        plan = plan_group(paths, host_file)
        configs, cores = plan.configs, plan.cores
    else:
        configs, cores = load_feeds(feed_files(paths)), {}
    placed = {name: _placed(config, cores.get(name)) for name, config in configs.items()}
    use = with_memory(use_of_all(list(placed.values())), placed.values())
    findings = [*inspect_host(use=use), *_feed_findings(placed)]
    if faults_only:
        findings = [finding for finding in findings if finding.fault and finding.ok is False]
    settings = {name: list(describe(as_written(config))) for name, config in configs.items()}
    memory = {name: feed_memory(config) for name, config in configs.items()}
    if as_json:
        click.echo(json.dumps(_as_json(settings, findings, memory)))
    elif faults_only:
        _print_faults(findings)
    else:
        print_findings(findings, use, with_rest)
        if configs:
            click.echo(describe_judged(list(configs.values())))
        _print_memory(memory)
        for name, rows in settings.items():
            _print_settings(f" of {name}" if len(settings) > 1 else "", rows, with_rest)
        if not with_rest:
            _print_left_out(settings, findings)
    sys.exit(any(finding.fault and finding.ok is False for finding in findings))


def _placed(config: FeedConfig, core: int | None) -> FeedConfig:
    # With the core that the plan of its group gives it.
    if core is None:
        return config
    return replace(config, agent=replace(config.agent, core=core))


def _print_faults(faults: Sequence[Finding]) -> None:
    width = max((len(fault.name) for fault in faults), default=0)
    for fault in faults:
        click.echo(f"{fault.name:<{width}}  {fault.have}, want {fault.want}")
        click.echo(f"    {fault.effect}")
    click.echo(_faults(faults))


def _faults(faults: Sequence[Finding]) -> str:
    return "1 fault" if len(faults) == 1 else f"{len(faults)} faults"


def _feed_findings(configs: dict[str, FeedConfig]) -> list[Finding]:
    # Each finding of several feeds says whose it is; what is installed on the host is said once.
    if len(configs) <= 1:
        return inspect_feed(next(iter(configs.values()), None))
    found: dict[Finding, None] = {}
    for name, config in configs.items():
        for finding in inspect_feed(config):
            of_host = finding.name.startswith("bypass")
            found[finding if of_host else finding._replace(name=f"{name} {finding.name}")] = None
    return [*found, *inspect_together(configs)]


def _as_json(
    settings: dict[str, list[Setting]],
    findings: Sequence[Finding],
    memory: dict[str, FeedMemory],
) -> dict[str, Any]:
    shown = ("name", "want", "have", "ok", "fault", "effect", "reason")
    values = {
        name: {setting.key: setting.value for setting in rows} for name, rows in settings.items()
    }
    return {
        "settings": values if len(values) > 1 else next(iter(values.values()), {}),
        "host": [{name: getattr(finding, name) for name in shown} for finding in findings],
        "memory": {name: asdict(each) for name, each in memory.items()},
    }


def _print_memory(memory: dict[str, FeedMemory]) -> None:
    if not memory:
        return
    click.echo("\nmemory:")
    width = max(map(len, memory))
    all_shared = all_private = 0  # of what is shown, so that the parts add up
    for name, each in memory.items():
        files = sorted(each.files.items(), key=lambda file: -file[1])
        listed = ", ".join(f"{file} {_mib(size)}" for file, size in files)
        shared, private = sum(_mib(size) for _, size in files), _mib(each.private)
        all_shared += shared
        all_private += private
        click.echo(
            f"  {name:<{width}}  {shared} MiB shared ({listed}), "
            f"{private} besides (books {_mib(each.books)})"
        )
    if len(memory) > 1:
        click.echo(f"  all {len(memory)}: {all_shared} MiB shared, {all_private} besides")


def _mib(size_bytes: int) -> int:
    return -(-size_bytes >> 20)


def _print_left_out(settings: dict[str, list[Setting]], findings: Sequence[Finding]) -> None:
    fine = sum(finding.ok is not False for finding in findings)
    defaults = sum(setting.is_default for rows in settings.values() for setting in rows)
    more = f" and {defaults} settings at their defaults" if settings else ""
    click.echo(f"\n--all also shows {fine} findings that are fine or not judged{more}")


def _print_settings(whose: str, settings: list[Setting], with_rest: bool) -> None:
    shown = [setting for setting in settings if with_rest or not setting.is_default]
    if not shown:
        return
    click.echo(f"\nsettings{whose}:")
    width = max(len(setting.key) for setting in shown)
    for setting in shown:
        origin = "default" if setting.is_default else "set"
        click.echo(
            f"  {setting.key:<{width}} = {json.dumps(setting.value):<22} "
            f"# {origin}: {setting.reason}"
        )


def print_findings(findings: Sequence[Finding], use: HostUse, with_rest: bool = True) -> None:
    """Write whether there are faults, these, and what could be better: effects, and what to do.

    Parameters
    ----------
    findings : sequence of Finding
    use : HostUse
        For the command that sets what can be set.
    with_rest : bool
        Write what is fine, and what cannot be judged, too.
    """
    width = max(len(finding.name) for finding in findings)
    wrong = [finding for finding in findings if finding.ok is False]
    faults = [finding for finding in wrong if finding.fault]
    better = [finding for finding in wrong if not finding.fault]
    if not wrong:
        click.echo(f"nothing is wrong: {len(findings)} findings")
    elif not faults:
        click.echo("0 faults: nothing keeps a feed from running as its file asks")
    else:
        click.echo(f"{_faults(faults)}: a feed cannot run as its file asks")
    for part in (faults, better):
        if part is better and better:
            click.echo(f"could be better, for speed and bursts ({len(better)} of {len(findings)}):")
        for finding in part:
            click.echo(f"  {finding.name:<{width}}  {finding.have}, want {finding.want}")
            click.echo(f"      {finding.effect}")
    if with_rest:
        _print_rest(findings, width)
    if any(finding.changes for finding in wrong):
        click.echo(
            f"this command, run as root, sets what can be set at run time:\n  {_apply_command(use)}"
        )


def _print_rest(findings: Sequence[Finding], width: int) -> None:
    click.echo("fine:")
    for finding in findings:
        if finding.ok:
            click.echo(f"  {finding.name:<{width}}  {finding.have}")
    click.echo("not judged:")
    for finding in findings:
        if finding.ok is None:
            reason = finding.reason or finding.want
            click.echo(f"  {finding.name:<{width}}  {finding.have}: {reason}")


def _apply_command(use: HostUse) -> str:
    """Return the command that sets for a feed what can be set at run time."""
    words = ["udpfast tune apply"]
    if use.cores:
        words.append(f"--rx-cpus {','.join(map(str, use.cores))}")
    if use.interfaces:
        words.append(f"--iface {','.join(use.interfaces)}")
    flags = {
        "--busy-poll": use.busy_poll,
        "--prefer-busy-poll": use.prefer_busy_poll,
        "--gro": use.gro,
        "--fifo": use.fifo,
    }
    return " ".join([*words, *(flag for flag, wanted in flags.items() if wanted)])
