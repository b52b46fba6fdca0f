"""`udpfast.h` and `udpfast_bus.h` in a program that makes mistakes."""

import subprocess
from pathlib import Path

from tests.client.instance import Instance
from tests.client.test_bus_header import ADDRESS, SANITIZED, STRICT, kept
from tests.client.test_image_header import keeper_of
from tests.client.test_image_join import ALWAYS
from tests.client.test_ring_header import CLOSED, REFUSED
from tests.client.test_store_source import Kept
from tests.shared import ROOT
from tests.test_header import compiler
from udpfast import Kind

__all__ = ["kept"]  # a fixture

OPEN = -39


def test_mistaken_call_returns_what_is_wrong_and_never_crashes(
    tmp_path: Path, instance: Instance, kept: Kept
) -> None:
    target = tmp_path / "misuse"
    words = [
        compiler(),
        "-std=c11",
        *STRICT,
        *SANITIZED,
        "-o",
        target,
        ROOT / "tests/client/header_misuse.c",
    ]
    subprocess.run(words, check=True)
    keeper = keeper_of(instance.directory)
    instance.append(Kind.MESSAGE)
    instance.book([(1.0, 2.0)], [(3.0, 4.0)], snapshot=True)
    instance.ring.flush()
    other = Instance(tmp_path / "other")
    other.append(Kind.MESSAGE)
    other.ring.flush()
    while keeper.work(ALWAYS):
        pass
    keeper.publish()
    words = [target, instance.address, f"store:{kept.folder}", other.address]
    output = subprocess.run(words, capture_output=True, text=True, check=True)
    other.close()
    no_reader = f"{CLOSED} the reader is not open: call udpfast_reader_open first"
    closed = [
        *(f"{what} {no_reader}" for what in ("poll", "next", "wait", "join")),
        "works 0 ", "name 0 ",
        f"image {CLOSED} its reader is not open: call udpfast_reader_open first",
        f"object {CLOSED} the image is not open: call udpfast_image_open first", "value 0 ",
    ]  # fmt: skip
    no_books = f"{CLOSED} the books are not open: call udpfast_books_open first"
    closed_books = [
        f"apply {no_books}", f"join {no_books}", f"join {no_books}", "doubt 0 ", "at 0 ", "find 0 ",
    ]  # fmt: skip
    nothing = [
        f"null {REFUSED} address must be 'ring:NAME' or 'ring:/path', was ''",
        f"null {ADDRESS} address must be 'store:NAME' or 'store:/path', was ''",
        f"null {ADDRESS} name must be 1 to 31 printable bytes of UTF-8 without '/', was ''",
        f"null {ADDRESS} address must be 'store:NAME' or 'store:/path', was ''",
    ]
    again = f"{OPEN} it is open already, or its memory was not zero at first: close it first"
    mixed = (
        f"mix {REFUSED} {other.directory}: the books are of another ring, or of an earlier log: "
        "open a udpfast_books for each ring, and close it with its reader"
    )
    start = "start must be UDPFAST_START_TAIL, _OLDEST or _BEGIN (0 to 2), was"
    how = "how must be UDPFAST_WAIT_SPIN or _SLEEP (0 or 1), was"
    assert output.stdout.splitlines() == [
        *closed, *nothing, f"start {REFUSED} {start} 3", f"start {REFUSED} {start} -1", "open 0 ",
        f"how {REFUSED} {how} 2", f"how {REFUSED} {how} -1",
        f"limit {REFUSED} limit must be at least 1 record, was 0",
        f"limit {REFUSED} limit must be at least 1 record, was -5",
        f"null {REFUSED} records must be room for their addresses, was NULL",
        *[f"null {REFUSED} reader and record must not be NULL"] * 2, f"null {REFUSED} ",
        *["null 0 "] * 3, "soon 0 ", *closed_books, f"reader {again}",
        f"reader {again}", f"books {again}", f"books {again}", "image 0 ", f"image {again}",
        "outbox 0 ", f"outbox {again}", f"outbox {again}", "sent 1 ",
        f"null {REFUSED} payload must not be NULL, as size is 5", "sent 2 ",
        "store 0 ", f"store {again}", f"null {REFUSED} record must not be NULL",
        f"join {REFUSED} books and orders must be two sets, or one of them NULL: were the same set",
        "at 0 ", "at 0 ", "books 1 ", "mix 0 ", "stale 0 ",
        mixed, "stale 0 ", mixed, mixed, "stale 0 ", "later 0 ", "stale 1 ",
        *[f"never {no_reader}"] * 2, *closed_books, *closed,
        f"store {CLOSED} the store is not open: call udpfast_store_open first", "sender 0 ",
    ]  # fmt: skip
