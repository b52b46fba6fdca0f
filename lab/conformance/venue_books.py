"""Captures of venues by a feed: what traded, and which books a reader has at the end.

The state at the beginning of these captures is not known. So a book is sound in the end where the
expectation knows all of it, has what that says, and is in doubt everywhere else.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from lab.conformance import Report, nyse
from lab.conformance.books import SINGLE, Followed, Line, Name, follow, text, text_of, venue_config
from lab.conformance.looked import Looked
from udpfast.net.pcap import CapturedDatagram, CaptureReader

__all__ = ["check", "check_case", "check_single"]

#: Longer than any capture.
_PATIENCE_US = 60_000_000
_SIDES = ("bids", "asks")
#: What expectations say of themselves.
_ABOUT = {"capture", "capture_sha256", "file", "format", "framing", "own_checks", "sha256"}

Datagrams = Iterator[tuple[Line, CapturedDatagram]]


def check_case(path: Path, case: dict[str, Any], report: Report) -> bool:
    """Run one capture of `venue-expected`; False: its books are not known here."""
    run = {
        "cme_mdp3": _cme,
        "deribit_sbe": _deribit,
        "ice_impact": _ice,
        "nyse_xdp": nyse.cases,
    }.get(case["framing"])
    if run is None:
        return False
    compared = Looked(case)
    for name, check in run(path, compared):
        report.case(f"{case['file']} {name}", check)
    report.not_compared(f"{case['file']} books", compared.unasked() - _ABOUT)
    return True


def check(path: Path, report: Report) -> None:
    """Run one `venue-books` document; its capture lies in `data/pcap` beside the sets' folder."""
    document = Looked(json.loads(path.read_text(encoding="utf-8")))
    folder = report.captures or path.resolve().parents[3] / "data" / "pcap"
    capture = folder / document.get("capture", "")
    run = _csm if "depth" in document else _miax if "products" in document else None
    if "capture" not in document:  # it has the name of its expectation
        run, capture = _pitch, folder / f"{path.stem}.pcap"
        report.not_compared(path.name, ["what no book has, as its start is not known"])
    if run is None:
        report.note(f"not run: {path}: its rows are the wire's, not a book's")
        return
    for name, check in run(capture, document):
        report.case(f"{path.name} {name}", check)
    report.not_compared(path.name, document.unasked() - _ABOUT)


def check_single(path: Path, lines: list[list[Any]]) -> str | None:
    """Run a datagram of CME alone: its trades come, and it makes no book that is known."""
    followed = _last(_of(path, None), "cme_mdp3", "cme", 1, **SINGLE)
    cells = [line.split(",") for _, kind, line in lines if kind == "trades"]
    wanted = [[one[1], one[5], one[6]] for one in cells if one[4] == "0"]
    return _none_sound(followed) or _traded(followed, wanted)


def _traded(followed: Followed, wanted: list[list[str]]) -> str | None:
    # Rows of symbol, price and size.
    found = [
        [symbol, text(price), text(size)]
        for (_, symbol), rows in followed.trades.items()
        for price, size in rows
    ]
    same = sorted(found) == sorted(wanted)
    return None if same else f"trades: expected {wanted}, found {found}"


def _none_sound(followed: Followed) -> str | None:
    sound = [name for name, book in followed.books.items() if not book.stale]
    return f"sound, and nobody knows what was there before: {sound}" if sound else None


def _last(datagrams: Datagrams, framing: str, payload: str, lines: int, **books: Any) -> Followed:
    config = venue_config(framing, payload, lines, 0, _PATIENCE_US, **books)
    *_, (followed, _last_record) = follow(config, datagrams)
    return followed


def _of(path: Path, places: dict[str, int] | None, frames: int | None = None) -> Datagrams:
    # The datagrams to these addresses, or all as of one line.
    with CaptureReader(path) as reader:
        for datagram in islice(reader, frames):
            host, port = datagram.destination
            line = 0 if places is None else places.get(f"{host}:{port}", -1)
            if line >= 0:
                yield (0, line), datagram


def _sums(rows: Iterable[tuple[float, float]]) -> list[Any]:
    listed = list(rows)
    product = sum((Decimal(repr(p)) * Decimal(repr(q)) for p, q in listed), Decimal())
    size = sum((Decimal(repr(q)) for _, q in listed), Decimal())
    return [len(listed), text_of(size), text_of(product)]


def _trades(followed: Followed, totals: dict[str, Any]) -> str | None:
    found = _sums(row for rows in followed.trades.values() for row in rows)
    wanted = [totals["trades"]]
    wanted += [totals[key] for key in ("trade_size", "trade_price_x_size") if key in totals]
    found = found[: len(wanted)]
    return None if found == wanted else f"trades: expected {wanted}, found {found}"


def _known(book: dict[str, Any], kinds: tuple[str, str]) -> bool:
    return all(book.get(f"unknown_{kind}") == [] for kind in kinds)


def _placed(followed: Followed, name: Name) -> list[list[list[Any]]]:
    # [place, price, quantity, orders] of each side, by place.
    sides = followed.levels.get(name, ({}, {}))
    return [
        sorted([row[2], text(price), text(row[0]), row[1]] for price, row in side.items())
        for side in sides
    ]


def _unlike(
    followed: Followed, name: Name, whole: bool, wanted: list[Any], found: list[Any]
) -> str | None:
    # Why a book is not as it has to be.
    book = followed.books.get(name)
    if not whole:
        if book is not None and not book.stale:
            return f"{name}: nobody can know all of it, and it says that it is sound"
        return None
    if book is None:
        return f"{name}: not found" if any(wanted) else None
    if book.stale:
        return f"{name}: in doubt, and all of it is known"
    return None if found == wanted else f"{name}: expected {wanted}, found {found}"


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


def _cme(path: Path, case: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for channel in case["channels"]:
        yield f"channel {channel['channel']}", partial(_cme_channel, path, channel)


def _cme_channel(path: Path, channel: dict[str, Any]) -> str | None:
    places = {
        address: place for place, (address, _) in enumerate(sorted(channel["lines"].values()))
    }
    # It has no definitions: the expectation assumes these depths.
    datagrams = _of(path, places)
    followed = _last(datagrams, "cme_mdp3", "cme", len(places), places=10, places_implied=2)

    def problems() -> Iterator[str | None]:
        yield _trades(followed, {"trade_size": "0", "trade_price_x_size": "0"} | channel["totals"])
        for number, one in channel["instruments"].items():
            for exchange, prefix in (("CME", ""), ("CME implied", "implied_")):
                kinds = (prefix + "bids", prefix + "asks")
                book = one.get("book", {})
                wanted = [
                    sorted([text(float(p)), q, n or 0] for _, p, q, n in book.get(kind, ()))
                    for kind in kinds
                ]
                yield _unlike(
                    followed,
                    (exchange, number),
                    _known(book, kinds),
                    wanted,
                    [
                        sorted(row[1:] for row in side)
                        for side in _placed(followed, (exchange, number))
                    ],
                )

    return _first(problems())


def _deribit(path: Path, case: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    def check() -> str | None:
        followed = _last(_of(path, None), "deribit_sbe", "deribit", 1)

        def problems() -> Iterator[str | None]:
            yield _trades(followed, {"trades": case["totals"]["trades"]})
            for one in case["instruments"].values():
                if "book_state" not in one:
                    continue
                name = ("DERIBIT", one["name"])
                wanted = [[list(row) for row in one["book"][kind]] for kind in _SIDES]
                yield _unlike(
                    followed,
                    name,
                    one["book_state"] == "known",
                    wanted,
                    [
                        [
                            [text(price), text(row[0])]
                            for price, row in sorted(side.items(), reverse=number == 0)
                        ]
                        for number, side in enumerate(followed.levels.get(name, ({}, {})))
                    ],
                )

        return _first(problems())

    yield "books", check


def _ice(path: Path, case: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    def check() -> str | None:
        followed = _last(_of(path, None), "ice_impact", "ice", 1)
        return _none_sound(followed) or _trades(followed, case["flows"][0]["totals"])

    yield "trades", check


def _pitch(path: Path, document: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    # An execution tells no price: it has that of its order, if the order's beginning was heard.
    def check() -> str | None:
        followed = _last(_of(path, None), "cboe_pitch", "pitch", 1)
        rows = [row.split(",") for one in document["units"].values() for row in one["rows"]]
        orders = {row[4]: (row[5], row[7]) for row in rows if row[3] == "add"}
        wanted = [[row[4], row[6], row[5]] for row in rows if row[3] == "trade"]
        wanted += [[*orders[row[4]], row[5]] for row in rows if row[3] == "execute"]
        return _none_sound(followed) or _traded(followed, wanted)

    yield "trades", check


def _csm(path: Path, document: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for flow in document["flows"]:
        yield flow["flow"], partial(_csm_flow, path, document, flow)


def _csm_flow(path: Path, document: dict[str, Any], flow: dict[str, Any]) -> str | None:
    datagrams = _of(path, {flow["flow"]: 0}, document["frames"][1])
    followed = _last(datagrams, "cboe_csm", "csm", 1)

    def problems() -> Iterator[str | None]:
        for key, one in flow["instruments"].items():
            of, security = map(int, key.split("/"))
            name = ("CBOE", str(of << 32 | security))
            wanted = [
                sorted([text(float(p)), str(sum(n for _, n in sizes))] for _, p, sizes in one[kind])
                for kind in _SIDES
            ]
            yield _unlike(
                followed,
                name,
                _known(one, ("bids", "asks")),
                wanted,
                [sorted(row[1:3] for row in side) for side in _placed(followed, name)],
            )

    return _first(problems())


def _miax(path: Path, document: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    def check() -> str | None:
        followed = _last(_of(path, None, document["frames"][1]), "miax_mach", "miax", 1)

        def problems() -> Iterator[str | None]:
            count, size, product = document["trades"]
            yield _trades(
                followed,
                {"trades": count, "trade_size": str(size), "trade_price_x_size": product},
            )
            for product_id, one in document["last"].items():
                wanted: list[float] = []
                for side in (one["bid"], one["ask"]):
                    wanted += [float(side[0]), side[1]] if side and side[1] else [0, 0]
                found = followed.tops.get(("MIAX", product_id))
                if not one["bid_updates"] or not one["ask_updates"]:
                    yield f"{product_id}: a side never came" if found else None
                elif found is None:
                    yield f"{product_id}: not found"
                else:
                    mine = [0 if not found[n | 1] else value for n, value in enumerate(found)]
                    yield None if mine == wanted else f"{product_id}: {wanted}, {mine}"

        return _first(problems())

    yield "last quotes", check
