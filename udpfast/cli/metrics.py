"""`udpfast metrics`: the facts of this host's feeds for Prometheus, by HTTP."""

from __future__ import annotations

import sys

import click

from udpfast.cli.options import (
    InstanceName,
    listen_address,
    log_level,
    say_stop,
    warn_of_missing,
)
from udpfast.core.endpoint import endpoint_text
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError

__all__ = ["metrics", "need_monitor"]


@click.command(epilog="Example: udpfast metrics --listen 127.0.0.1:9817")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstanceName())
@click.option(
    "--listen",
    metavar="IP:PORT",
    default="127.0.0.1:9817",
    show_default=True,
    help="Address to serve /metrics at; anyone who can reach it can read.",
)
@log_level
def metrics(names: tuple[str, ...], listen: str) -> None:
    """Serve counters, lags and latency of instances NAME to Prometheus.

    Without NAME, serves all instances of this user on this host, live or dead, including those
    started later, and the host: stores of a bus, journals and disks, findings. It only reads shared
    memory and files, and only when Prometheus asks. Runs until SIGINT, SIGTERM or SIGHUP.
    Needs the extra [monitor].
    """
    need_monitor("prometheus_client")
    from prometheus_client import start_http_server

    from udpfast.monitor.metrics import feed_registry

    host, port = listen_address(listen)
    warn_of_missing(names)
    stopping = Stop()
    stopping.listen()
    try:
        server, thread = start_http_server(port, host, feed_registry(names))
    except OSError as error:
        raise ConfigError(
            f"--listen: expected a free port of this host, found {listen}: {error.strerror}"
        ) from None
    click.echo(f"udpfast: http://{endpoint_text(host, server.server_port)}/metrics")
    sys.stdout.flush()
    while not stopping.wait(1.0):
        pass
    say_stop(stopping, "metrics")
    server.shutdown()
    thread.join()


def need_monitor(module: str) -> None:
    """Refuse what needs the extra `[monitor]` where it is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise ConfigError(f"{module} is not installed: pip install 'udpfast[monitor]'")
