"""A capture of NYSE's imbalances through a feed: names and statuses, and each message as sent."""

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from lab.conformance import difference
from lab.conformance.books import follow, venue_config
from udpfast.core.layout import Kind
from udpfast.net.pcap import CaptureReader

__all__ = ["cases"]

_PATIENCE_US = 60_000_000
_RESET, _MAPPING, _STATUS, _IMBALANCE = 1, 3, 34, 105
_KINDS = {_IMBALANCE: "imbalances", _MAPPING: "symbols", _STATUS: "status"}
_AT, _TIMED = 4, struct.Struct("<IIII")
_TRADING = {"4": 7, "6": 7, "5": 5, "E": 5, "O": 5, "L": 5, "3": 2, "P": 2, "B": 2, "X": 12}


def cases(path: Path, case: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """Yield what to compare of one capture of `venue-expected`."""
    for flow in case["flows"]:
        yield flow["flow"], partial(_flow, path, flow)


def _flow(path: Path, flow: dict[str, Any]) -> str | None:
    with CaptureReader(path) as reader:
        datagrams = [
            ((0, 0), one) for one in reader if "{}:{}".format(*one.destination) == flow["flow"]
        ]
    messages: list[tuple[int, bytes]] = []
    config = venue_config("nyse_xdp", "nyse_imbalances", 1, 0, _PATIENCE_US)
    for followed, record in follow(config, datagrams):
        if record is None:
            statuses = dict(followed.statuses)
        elif record.kind == Kind.MESSAGE:
            messages.append((record.number, bytes(record.payload)))
    kinds = Counter(_kind(data) for _, data in messages)
    symbols = _Symbols(messages)
    found = {
        "datagrams": len(datagrams),
        "first_seq": messages[0][0],
        "next_seq": messages[-1][0] + 1,
        "sequence_resets": kinds[_RESET],
        "messages": {str(kind): count for kind, count in kinds.items()},
        "digests": symbols.digests(),
        "symbols": symbols.told,
    }
    wanted = {key: flow[key] for key in found}
    return difference(wanted, found) or difference(
        {
            one["symbol"]: _TRADING[one["last_status"][1]]
            for one in flow["symbols"].values()
            if "last_status" in one
        },
        {symbol: status for (_, symbol), status in statuses.items()},
        "updates",
    )


def _kind(data: bytes) -> int:
    return int.from_bytes(data[2:4], "little")


class _Symbols:
    # What was said of each, and every line of it.
    def __init__(self, messages: list[tuple[int, bytes]]) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, list[str]] = {name: [] for name in _KINDS.values()}
        for number, data in messages:
            kind = _kind(data)
            if kind == _MAPPING:
                self._map(number, data)
            elif kind in _KINDS:
                self._timed(number, kind, data)

    def digests(self) -> dict[str, Any]:
        return {
            name: {
                "lines": len(lines),
                "sha256": hashlib.sha256("".join(f"{one}\n" for one in lines).encode()).hexdigest(),
            }
            for name, lines in self.lines.items()
        }

    def _map(self, number: int, data: bytes) -> None:
        index, name, market, _, exchange, scale, kind, lot, close, volume = struct.unpack_from(
            "<I11sxHBcBcHII", data, _AT
        )
        symbol = name.rstrip(b"\0").decode()
        self.told[str(index)] = {
            "symbol": symbol,
            "price_scale": scale,
            "imbalances": 0,
            "status_messages": 0,
        }
        price = self._price(str(index), close)
        cells = (symbol, market, exchange.decode(), scale, kind.decode(), lot, price, volume)
        self._line("symbols", number, index, *cells)

    def _timed(self, number: int, kind: int, data: bytes) -> None:
        seconds, nanoseconds, index, sequence = _TIMED.unpack_from(data, _AT)
        one = self.told[str(index)]
        time = seconds * 1_000_000_000 + nanoseconds
        one.setdefault("symbol_seq", [sequence, sequence])[1] = sequence
        if kind == _STATUS:
            cells = [chr(data[_AT + at]) for at in (16, 17, 39, 40)]
            cells.append(chr(data[_AT + 41]).strip())
            one["status_messages"] += 1
            one["last_status"] = [time, *cells]
            self._line("status", number, index, time, *cells)
            return
        said = self._imbalance(str(index), time, data)
        one["imbalances"] += 1
        one["last_imbalance"] = said
        self._line("imbalances", number, index, *said.values())

    def _imbalance(self, index: str, time: int, data: bytes) -> dict[str, Any]:
        reference, paired, total, market, auction, kind, side = struct.unpack_from(
            "<IIIIHcc", data, _AT + 16
        )
        names = (
            *("continuous_book_clearing", "closing_only_clearing", "ssr_filing"),
            *("indicative_match", "upper_collar", "lower_collar"),
        )
        status, freeze, extensions = data[_AT + 60 : _AT + 63]
        return {
            "time": time,
            "auction_type": kind.decode(),
            "side": side.decode().strip(" \0"),
            "reference_price": self._price(index, reference),
            "paired": paired,
            "total_imbalance": total,
            "market_imbalance": market,
            "auction_time": auction,
            **{
                name: self._price(index, value)
                for name, value in zip(
                    names, struct.unpack_from("<6I", data, _AT + 36), strict=True
                )
            },
            "auction_status": status,
            "freeze": freeze,
            "extensions": extensions,
        }

    def _price(self, index: str, value: int) -> str:
        text = f"{Decimal(value).scaleb(-self.told[index]['price_scale']):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    def _line(self, name: str, *cells: Any) -> None:
        self.lines[name].append(",".join(map(str, cells)))
