"""Daemons of a bus as processes: a failed one ends every wait."""

import socket
from pathlib import Path

import pytest

from udpfast.cli.bus_hosts import BusHosts
from udpfast.errors import UdpfastError
from udpfast.net.ports import free_port


def test_daemon_that_failed_ends_a_wait_and_its_log_says_why(tmp_path: Path) -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        BusHosts(tmp_path, {"S": "127.0.0.1"}, 'sequencer = "S"\n', port) as hosts,
    ):
        hosts.start("S")
        with pytest.raises(UdpfastError, match="S ended with status 2 in a wait for it") as found:
            hosts.until(lambda: False, "it")
    assert f"expected a free port, found {port} of 127.0.0.1 in use" in str(found.value)
