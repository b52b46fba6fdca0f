"""The example of a book in Cython without the GIL: what it quotes, and when it stops."""

import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np

from tests.client.instance import Instance, small_image
from tests.cython_module import compile_module
from tests.shared import ROOT
from tests.waiting import PATIENCE_S
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import (
    CONNECTION,
    GAP,
    OBJECT_STATE,
    SESSION,
    ConnectionScope,
    ConnectionStatus,
    Kind,
)


class Feed:
    """A feed of one gated object, and the example that follows it once it runs."""

    program: "subprocess.Popen[str]"

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def say(self, kind: Kind, follows: int = 0) -> None:
        """Append STALE, or RECOVERED whose next update follows the message of that number."""
        payload = np.zeros((), OBJECT_STATE)
        payload["object"] = 3 << 16 | 7
        self.instance.append(
            kind, payload.tobytes(), session=1, object_type=3, object_id=7, follows=follows
        )

    def connection(self, status: ConnectionStatus, scope: ConnectionScope) -> None:
        payload = np.zeros((), CONNECTION)
        payload["status"], payload["scope"] = status, scope
        self.instance.append(Kind.CONNECTION, payload.tobytes(), stream=65535)

    def line(self) -> str:
        """Return the next line that the example prints, for what was appended so far."""
        assert self.program.stdout is not None
        self.instance.ring.flush()
        return self.program.stdout.readline().rstrip()


def test_quotes_of_a_book_without_the_gil_end_with_each_doubt_and_begin_again_when_it_does(
    tmp_path: Path, instance: Instance, environment: dict[str, str]
) -> None:
    source = (ROOT / "docs/examples/sound_book.pyx").read_text()
    page = (ROOT / "docs/compiled.md").read_text()
    (block,) = re.findall(r"```cython\n(.*?)```", page, re.DOTALL)
    assert textwrap.indent(block, 8 * " ") in source
    compile_module(tmp_path, "sound_book", source, environment)
    feed = Feed(instance)
    instance.append(Kind.SESSION, np.zeros((), SESSION).tobytes(), session=1)
    feed.say(Kind.RECOVERED)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)])  # its very first update
    instance.ring.flush()
    keeper = ImageKeeper(small_image(), instance.directory)
    keeper.on_start()
    keeper.work(0)
    keeper.publish()
    call = f"sound_book.main({instance.address!r}, 'binance-usdm', 'BTCUSDT')"
    with subprocess.Popen(
        [sys.executable, "-c", f"import sound_book; {call}"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    ) as feed.program:  # fmt: skip
        patience = threading.Timer(PATIENCE_S, feed.program.kill)
        patience.start()
        try:
            follow_doubts(feed, keeper)
        finally:
            patience.cancel()
            feed.program.kill()


def follow_doubts(feed: Feed, keeper: ImageKeeper) -> None:
    instance, program = feed.instance, feed.program
    assert feed.line() == "quote 10 11"  # from the image
    instance.book([(-1.0, 1.0), (10.0, 0.0)], [(0.0, 1.0)], symbol="ETHUSDT", object_id=8)
    instance.book([(9.0, 1.0)], [])  # a level below the best one
    instance.book([(10.5, 1.0)], [])
    assert feed.line() == "quote 10.5 11"

    instance.append(Kind.GAP, np.zeros((), GAP).tobytes(), session=1)
    assert feed.line() == "cancel: GAP"
    feed.say(Kind.RECOVERED, follows=instance.contained[1, 3 << 16 | 7])
    assert feed.line() == "quote 10.5 11"

    feed.say(Kind.STALE)
    assert feed.line() == "cancel: STALE"
    instance.book([(20.0, 1.0)], [(21.0, 1.0)], snapshot=True, stream=1)  # does not end it
    feed.say(Kind.RECOVERED)
    instance.book([(-2.0, 1.0)], [(0.0, 1.0)], snapshot=True, stream=1)
    assert feed.line() == "quote -2 0"

    instance.book([(-2.0, 0.0)], [])
    assert feed.line() == "cancel: BOOK"  # of one side
    instance.book([(-2.0, 1.0)], [])
    assert feed.line() == "quote -2 0"

    feed.connection(ConnectionStatus.DISCONNECTED, ConnectionScope.LINE)  # one of several
    feed.connection(ConnectionStatus.DISCONNECTED, ConnectionScope.LOOP)
    assert feed.line() == "cancel: CONNECTION"
    instance.book([(-1.0, 1.0)], [])
    feed.connection(ConnectionStatus.READY, ConnectionScope.LOOP)
    assert feed.line() == "quote -1 0"

    program.send_signal(signal.SIGSTOP)
    while instance.ring.position <= 3 * instance.ring.capacity_bytes:
        instance.book([(-1.0, 1.0)], [])
    instance.book([(30.0, 1.0)], [(31.0, 1.0)], snapshot=True)
    instance.ring.flush()
    while keeper.work(0):
        pass
    keeper.publish()
    keeper.on_stop()
    program.send_signal(signal.SIGCONT)
    assert feed.line() == "cancel: LAPPED"
    assert feed.line() == "quote 30 31"  # from the image
    instance.close()
    assert program.stdout is not None
    assert program.stdout.read() == "cancel: CONNECTION\n"
    assert program.wait(timeout=PATIENCE_S) == 0
