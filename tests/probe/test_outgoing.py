"""The sender's loop against a listener by hand: what it makes of echoes."""

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.waiting import PATIENCE_S
from udpfast.net.sender import DatagramSender
from udpfast.probe.control import HEADER, ProbeKind
from udpfast.probe.outgoing import Outgoing
from udpfast.probe.sender import COLUMNS


def answered(
    echoes: Sequence[tuple[int, int, int, int]], probes: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return samples and counts of a line whose probes had these echoes.

    Each is given by its probe's number, cookie, epoch and arrival.
    """
    samples = {name: np.full(probes, 0, kind) for name, kind in COLUMNS.items()}
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        peer.settimeout(PATIENCE_S)
        peer.bind(("127.0.0.1", 0))
        own = stack.enter_context(
            contextlib.closing(DatagramSender(f"127.0.0.1:{peer.getsockname()[1]}"))
        )
        loop = Outgoing(
            [own], [samples], np.zeros(probes, np.int64), nonce=7, size_bytes=64, stamped=False,
            departs=[False],
        )  # fmt: skip
        thread = threading.Thread(target=loop.run, args=(int(PATIENCE_S * 1e9), False))
        thread.start()
        heard = [peer.recvfrom(100) for _ in range(probes)]
        for index, cookie, epoch, arrival in echoes:
            kind, *rest = HEADER.unpack(heard[index][0])[1:]
            assert kind == ProbeKind.PROBE
            line, _, nonce, _, _, sent_ns, *_ = rest
            echo = (0x31574655, ProbeKind.ECHO, line, epoch, nonce, cookie, index, sent_ns)
            peer.sendto(HEADER.pack(*echo, 1, 2, arrival), heard[index][1])
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return samples, loop.counts(0)


def test_echo_of_a_probe_that_is_back_is_counted_once_whichever_way_doubled_it() -> None:
    # The first probe arrived twice, and its second echo came twice; the second's came twice.
    echoes = [(0, 3, 1, 1), (0, 3, 1, 2), (0, 3, 1, 2), (1, 3, 1, 3), (1, 3, 1, 3), (2, 3, 1, 4)]
    _, counts = answered(echoes, 3)
    assert (counts["echoes"], counts["repeated"], counts["back_duplicates"]) == (3, 3, 1)


@pytest.mark.parametrize("other", [(4, 1), (3, 2)])  # started anew; gave up and is back
def test_places_of_arrival_go_on_at_the_next_listener(other: tuple[int, int]) -> None:
    # One of the first listener's echoes is late: it has its place there all the same.
    echoes = [(0, 3, 1, 1), (1, 3, 1, 3), (4, *other, 1), (2, 3, 1, 2), (5, *other, 3)]
    samples, _ = answered([*echoes, (3, *other, 2)], 6)
    assert samples["out_order"].tolist() == [1, 3, 2, 5, 4, 6]
