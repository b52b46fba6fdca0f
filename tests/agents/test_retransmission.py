"""The agent that asks for what no line brought: what it does with answers."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lab.framings import Sent, build
from udpfast.agents.recovery.retransmission import Retransmission
from udpfast.config import parse_feed
from udpfast.shm.answers import AnswersRegion, Wanted, read_tallies
from udpfast.wire.framing import Framing


@contextmanager
def asking(directory: Path) -> Iterator[tuple[Retransmission, AnswersRegion, socket.socket]]:
    """Yield the agent of a feed, the loop's end of its region, and the server that it asks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        config = parse_feed(
            {
                "name": "holes",
                "wire": {"framing": "moldudp64"},
                "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9000"}]},
                "retransmission": {"server": f"127.0.0.1:{server.getsockname()[1]}"},
            }
        )
        with closing(AnswersRegion.create(directory, "retransmission", 0, 1)) as loop:
            loop.region.mark_ready()
            with closing(Retransmission(config, directory)) as agent:
                yield agent, loop, server


def test_answers_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    answer = build("moldudp64", Sent(10, (bytes(1_200),), session=b"0000000042"))
    (unit,) = Framing("moldudp64").units(answer)
    with asking(tmp_path) as (agent, loop, server):
        loop.say([Wanted(unit.session, 10, 10, 11, unit.stream)], answer)
        agent.work(1)
        _, peer = server.recvfrom(100)

        for _ in range(3_000):  # the queue has room for some 860, and 1,024 wait for that
            server.sendto(answer, peer)
            agent.work(1)
        taken = 0
        while came := len(loop.take()):
            taken += came
            agent.work(1)
        tallies = read_tallies(tmp_path, "retransmission")
        assert tallies["answers"] == 3_000
        assert tallies["dropped"] == 3_000 - taken > 0


def test_numbers_that_began_anew_under_the_same_session_are_asked_for_at_once(
    tmp_path: Path,
) -> None:
    header = build("moldudp64", Sent(10, (bytes(8),), session=b"0000000042"))
    (unit,) = Framing("moldudp64").units(header)
    with asking(tmp_path) as (agent, loop, _):
        for numbering in (1, 1, 2):
            loop.say([Wanted(unit.session, 10, 10, 11, unit.stream, numbering)], header)
            agent.work(1)
        assert read_tallies(tmp_path, "retransmission")["requests"] == 2
