"""What holds of each order book at a time: since when its levels build on each other, and doubt.

The same as what `udpfast.Books` knows after it has read the same records (client/books.pyx,
market/doubt.pxd), found without reading them one after the other:

    era      since the stream's last session, restart or journal: what is older is in no book
    span     of one book: from its newest snapshot up to the first record behind which its updates
             do not build on it any more (STALE, a snapshot to come, a LAPPED, a refused level)
    stale    its span has ended, or has not begun; or the feed is in doubt of its object, by a GAP,
             by STALE, or because its word is among records that are missing here

Spark aggregates messages, without their levels, to a few facts of each object. There are as many as
instruments; what follows from them is decided on the driver, in Python (`judge`).
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from udpfast.core.layout import RecordFlag
from udpfast.spark import silver
from udpfast.spark.bronze import POSITIONS

if TYPE_CHECKING:
    from udpfast.spark.bronze import Bronze

__all__ = ["BOOK_KEYS", "Book", "Era", "eras_of", "judge", "spans"]

#: A book: of an object, whether a gate watches over it, of which stream, and what it calls itself.
BOOK_KEYS = (*silver.OBJECT, "ungated", "stream")

#: What the feed is in doubt of together: with a gate, all that one object calls itself.
TRACK = ("feed", "stream", "object", "ungated", "track")
NAMES = ("exchange", "symbol")
#: Kinds of records of an object: messages, decoded or not, and the feed's word.
_OF_OBJECTS = (*silver.MESSAGES, "STALE", "RECOVERED")

#: Behind all positions.
NEVER = (1 << 63) - 1

#: Position and `received_ns` of a record.
At: TypeAlias = tuple[int, int]
Row: TypeAlias = Mapping[str, Any]
Track: TypeAlias = tuple[str, int, int, bool, str]
Name: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Era:
    """Since when the books of a stream can be known, and what concerns all of them since then.

    Attributes
    ----------
    position : int
        Records before it are of no book.
    complete : bool
        It begins with a SESSION: then the feed's word on every object is known.
    laps, gaps : list of (int, int)
        Where records are missing, and where messages may be that nobody has, in their order.
    """

    position: int
    complete: bool
    laps: list[At] = field(default_factory=list)
    gaps: list[At] = field(default_factory=list)

    def is_whole(self, place: At) -> bool:
        """Whether all that the feed said of its objects up to a place is here."""
        return self.complete and not (self.laps and self.laps[0] < place)


@dataclass(slots=True)
class Book:
    """What the records tell of one book and of its object; places are None where there is none.

    Attributes
    ----------
    object : dict
        Of its object: `begun`, where it was first heard of; `recovered`, `said` (STALE) and
        `heard`, the feed's last words; `replaced`, its newest snapshot; `newest`, its last update.
    seen, last : (int, int)
        Its first and its last update.
    snapshot : (int, int) or None
        Its newest snapshot.
    first : (int, int) or None
        The first update that says that nothing came before it.
    ended : (int, int) or None
        The first record, from `since` on, behind which updates do not build on it.
    before : (int, int) or None
        The first message of its object that contradicts `first`.
    """

    object: dict[str, At | None]
    seen: At
    last: At
    snapshot: At | None
    first: At | None
    ended: At | None = None
    before: At | None = None

    @property
    def since(self) -> At | None:
        """Where it begins, if that is where it does."""
        return self.snapshot or self.first


@dataclass(frozen=True, slots=True)
class Span:
    """What holds of one book: its levels are the last changes from `begin` to `end`, included."""

    begin: At | None
    end: At | None
    doubts: tuple[At, ...]


def eras_of(sessions: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Era]:
    """Return the last era of each stream, by feed and stream.

    Parameters
    ----------
    sessions : iterable of mapping
        By `feed`, `stream`, `place` (root) and `session`: `begun`, the position of its last
        SESSION, `restarted`, that of the last RESTART, which is of all streams; `first` and
        `last`, the positions of its records of objects. None where there is none.
    """
    feeds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sessions:
        feeds[row["feed"]].append(row)
    return {
        (feed, stream): _era(rows, stream)
        for feed, rows in feeds.items()
        for stream in {row["stream"] for row in rows}
    }


def _era(rows: list[Mapping[str, Any]], stream: int) -> Era:
    place = max(row["place"] for row in rows)
    # Where journals follow each other only the last counts: nobody recorded what happened
    # between two of them.
    there = [row for row in rows if row["place"] == place]
    own = [row for row in there if row["stream"] == stream]
    era = max(
        [
            Era(place * POSITIONS, False),
            *(Era(row["restarted"], False) for row in there if row["restarted"] is not None),
            *(Era(row["begun"], True) for row in own if row["begun"] is not None),
        ],
        key=lambda each: (each.position, each.complete),
    )
    later = [row for row in own if (row["last"] or -1) > era.position]
    if len(later) < 2:
        return era
    # There are records of two sessions, and no SESSION between them: it is among the records that
    # are missing. The later session then begins with its first record of an object.
    last = max(later, key=lambda row: row["last"])
    before = max(row["last"] for row in later if row is not last)
    return Era(max(last["first"], before + 1), False)


def judge(book: Book, era: Era, ungated: bool) -> Span:
    """Return what follows from the facts of a book."""
    own = book.object
    begun = own["begun"] or book.seen
    begin = book.since
    if book.snapshot is None and begin is not None:
        is_all = era.is_whole(begin) and (book.before is None or book.before >= begin)
        begin = begin if is_all else None
    end = None if begin is None else _first([book.ended, _after(era.laps, begin)])
    # Records that are missing concern this object only if it was known before they went missing.
    lap = era.laps[-1] if era.laps and era.laps[-1] > begun else None
    if ungated:
        sure, doubted = _last([own["replaced"], lap, (era.position, 0)]), None
    else:
        sure = _last([begun, own["recovered"], lap])
        doubted = _doubted(own, begun, lap, era)
    missing = book.seen if begin is None else end
    doubts = [missing, doubted, _after(era.gaps, sure)]
    return Span(begin, end, tuple(each for each in doubts if each is not None))


def _doubted(own: Mapping[str, At | None], begun: At, lap: At | None, era: Era) -> At | None:
    # Return since when an object is in doubt; None: it is not. The feed's last word on it decides:
    # RECOVERED or STALE; or its first record, if there is neither; or missing records behind those,
    # among which the feed may have said anything.
    word = _last([begun, own["recovered"], own["said"], lap])
    if word == own["recovered"]:
        return None
    # The feed's word may be among records that are missing, or that came before these.
    unheard = word == lap or (word != own["said"] and not era.is_whole(begun))
    if unheard and own["heard"] is not None and own["heard"] >= word:
        return None
    return word


def _first(places: Iterable[At | None]) -> At | None:
    return min((each for each in places if each is not None), default=None)


def _last(places: Iterable[At | None]) -> At:
    return max(each for each in places if each is not None)


def _after(places: Sequence[At], place: At) -> At | None:
    at = bisect_right(places, place)
    return places[at] if at < len(places) else None


# --- what Spark finds -----------------------------------------------------------------------------


def spans(bronze: Bronze, at_ns: int | None) -> DataFrame:
    """Return a row per book: `BOOK_KEYS`, `begin`, `end`, `stale` and `stale_since_ns`.

    Levels of a book are the last changes from `begin` up to `end`, both included; NULL: none,
    without an end.
    """
    messages, events, gaps, levels = (
        _until(bronze, name, at_ns) for name in ("messages", "events", "gaps", "levels")
    )
    eras = eras_of(row.asDict() for row in _sessions(messages).collect())
    _mark(eras, events, gaps)
    told = _told(messages, events, levels)
    begins = [(*stream, era.position) for stream, era in eras.items()]
    begun = bronze.spark.createDataFrame(begins, "feed STRING, stream INT, era BIGINT")
    told = told.join(F.broadcast(begun), ["feed", "stream"]).where("at.position >= era")
    books = _books(row.asDict() for row in _facts(told).collect())
    for row in _ends(bronze, told, books).collect():
        book = books[_track(row)][row["exchange"], row["symbol"]]
        book.ended, book.before = _at(row["ended"]), _at(row["before"])
    schema = (
        "feed STRING, exchange STRING, symbol STRING, object BIGINT, ungated BOOLEAN, stream INT, "
        "begin BIGINT, end BIGINT, stale BOOLEAN, stale_since_ns BIGINT"
    )
    return bronze.spark.createDataFrame(list(_rows(books, eras)), schema)


def _rows(
    books: Mapping[Track, Mapping[Name, Book]], eras: Mapping[tuple[str, int], Era]
) -> Iterator[Any]:
    # Two objects that go by one name are both in doubt; nobody asks what an object was called
    # before, if another one goes by that name.
    claims: dict[tuple[str, Name], list[At]] = defaultdict(list)
    for (feed, *_), own in books.items():
        for name, book in own.items():
            if book.last == book.object["newest"]:
                claims[feed, name].append(book.seen)
    for (feed, stream, number, ungated, _), own in books.items():
        for name, book in own.items():
            current = book.last == book.object["newest"]
            claimed = claims[feed, name]
            if claimed and not current:
                continue
            span = judge(book, eras[feed, stream], ungated)
            doubts = [*span.doubts, *([max(claimed)] if len(claimed) > 1 else [])]
            yield (
                feed,
                *name,
                number,
                ungated,
                stream,
                span.begin and span.begin[0],
                span.end and span.end[0],
                bool(doubts),
                min(doubts)[1] if doubts else None,
            )


def _until(bronze: Bronze, name: str, at_ns: int | None) -> DataFrame:
    table = bronze.table(name)
    return table if at_ns is None else table.where(F.col("received_ns") <= at_ns)


def _sessions(messages: DataFrame) -> DataFrame:
    def when(*kinds: str) -> Column:
        return F.when(F.col("kind").isin(*kinds), F.col("position"))

    return messages.groupBy(
        "feed", silver.own_stream(), silver.place().alias("place"), "session"
    ).agg(
        F.max(when("SESSION")).alias("begun"),
        F.max(when("RESTART")).alias("restarted"),
        F.min(when(*_OF_OBJECTS)).alias("first"),
        F.max(when(*_OF_OBJECTS)).alias("last"),
    )


def _mark(eras: Mapping[tuple[str, int], Era], events: DataFrame, gaps: DataFrame) -> None:
    # Snapshots that were lost are somebody else's; but when they are numbered anew, all are.
    anew = F.coalesce(F.col("reason") == "ANEW", F.lit(False))
    counted = (F.col("stream") != silver.SNAPSHOT) | anew
    laps = events.where("kind = 'LAPPED'")
    columns = ("feed", "position", "received_ns")
    both = laps.select(*columns, F.lit(None).cast("int").alias("stream")).unionByName(
        gaps.where(counted).select(*columns, silver.own_stream())
    )
    for feed, position, received_ns, stream in sorted(both.collect(), key=lambda row: row[:3]):
        for era in _concerned(eras, feed, stream, position):
            (era.laps if stream is None else era.gaps).append((position, received_ns))


def _concerned(
    eras: Mapping[tuple[str, int], Era], feed: str, stream: int | None, position: int
) -> Iterator[Era]:
    # What is missing of a composite's copy may be of any input: ALGO is ALGO/LEFT and ALGO/RIGHT.
    # Records that are missing may be of any stream.
    for (name, own), era in eras.items():
        if not (name == feed or name.startswith(f"{feed}/")) or position < era.position:
            continue
        if stream is None or stream == own:
            yield era


def _books(facts: Iterable[Row]) -> dict[Track, dict[Name, Book]]:
    objects: dict[Track, dict[str, At | None]] = {}
    found: dict[Track, dict[Name, Book]] = defaultdict(dict)
    for row in facts:
        own = objects.setdefault(_track(row), dict.fromkeys((*_FIRSTS, *_LASTS)))
        for names, choose in ((_FIRSTS, min), (_LASTS, max)):
            for name in names:
                places = [each for each in (own[name], _at(row[name])) if each is not None]
                own[name] = choose(places, default=None)
        seen, last = _at(row["seen"]), _at(row["newest"])
        if seen is not None and last is not None:
            book = Book(own, seen, last, _at(row["replaced"]), _at(row["first"]))
            found[_track(row)][row["exchange"], row["symbol"]] = book
    return found


#: Facts of an object of which the first, or the last, of all its rows counts.
_FIRSTS = ("begun",)
_LASTS = ("recovered", "said", "heard", "replaced", "newest")


def _track(row: Any) -> Track:
    return row["feed"], row["stream"], row["object"], row["ungated"], row["track"]


def _at(place: Any) -> At | None:
    return None if place is None else (place[0], place[1])


def at() -> Column:
    """Return where and when a record is; the earlier of two is the smaller."""
    return F.struct("position", "received_ns").alias("at")


# --- what the records tell ------------------------------------------------------------------------

#: What a record tells of an object, of the books that it names, or of all that it has.
_TOLD = {
    "book": "boolean",  # an update of this book
    "snapshot": "boolean",  # that replaces what was
    "first": "boolean",  # that is all there is, if nothing came before it
    "heard": "boolean",  # the feed passes it on only while it is sure of its object
    "ends": "boolean",  # behind it, updates do not build on what is held
    "passed": "boolean",  # it brings none of what is held
    "said": "boolean",  # STALE
    "recovered": "boolean",
}


def _told(messages: DataFrame, events: DataFrame, levels: DataFrame) -> DataFrame:
    named = F.col("exchange").isNotNull() & F.col("symbol").isNotNull()
    book = F.col("kind") == "BOOK"
    # A snapshot of other streams may be of a channel for recovery.
    incremental = (F.col("stream") == 0) | (
        (F.col("stream") > silver.SNAPSHOT) & ~_flag(RecordFlag.SNAPSHOT)
    )
    released, first = _flag(RecordFlag.RELEASED), _flag(RecordFlag.FIRST)
    ungated = _flag(RecordFlag.UNGATED)
    updates = messages.where(book & (named | ~ungated))
    replaces = F.col("snapshot")
    heard = incremental & ~released & ~ungated
    carried = F.col("kind").isin(*silver.MESSAGES)
    refused = F.col("price").isNull() | F.col("quantity").isNull()
    objects = events.where(F.col("kind").isin("STALE", "RECOVERED"))
    recovered = F.col("kind") == "RECOVERED"
    parts = [
        _tells(
            updates,
            ungated,
            book=named,
            snapshot=named & replaces,
            first=named & first & ~ungated & ~replaces,
            heard=named & heard,
            ends=~named | (F.col("update_type") == "Stale"),
        ),
        _tells(messages.where(carried & (~book | ungated)), F.lit(False), passed=F.lit(True),
               heard=heard, nameless=True),
        _tells(levels.where(named & refused), ungated, ends=F.lit(True)),
        _tells(objects, F.lit(False), ends=~recovered | ~F.coalesce("continues", F.lit(False)),
               said=~recovered, recovered=recovered, nameless=True),
    ]  # fmt: skip
    return functools.reduce(DataFrame.unionByName, parts)


def _flag(flag: RecordFlag) -> Column:
    return F.coalesce(F.col("flags").bitwiseAND(int(flag)) != 0, F.lit(False))


def _tells(
    rows: DataFrame, ungated: Column, *, nameless: bool = False, **told: Column
) -> DataFrame:
    no = F.lit(False)
    names = [F.lit(None).cast("string").alias(name) if nameless else F.col(name)
             for name in ("exchange", "symbol")]  # fmt: skip
    # What no gate watches over comes for many symbols under one number: each is an object.
    track = F.when(ungated, F.to_json(F.array("exchange", "symbol"))).otherwise("")
    return rows.select(
        "feed",
        silver.own_stream(),
        "object",
        *names,
        ungated.alias("ungated"),
        track.alias("track"),
        at(),
        *(F.coalesce(told.get(name, no), no).alias(name) for name in _TOLD),
    )


def _facts(told: DataFrame) -> DataFrame:
    # For each object, and for each book of one: what has no name is of the object.
    def when(name: str) -> Column:
        return F.when(F.col(name), F.col("at"))

    touched = F.col("book") | F.col("said") | F.col("recovered")
    return told.groupBy(*TRACK, *NAMES).agg(
        F.min(F.when(touched, F.col("at"))).alias("begun"),
        F.max(when("recovered")).alias("recovered"),
        F.max(when("said")).alias("said"),
        F.max(when("heard")).alias("heard"),
        F.max(when("snapshot")).alias("replaced"),
        F.max(when("book")).alias("newest"),
        F.min(when("book")).alias("seen"),
        F.min(when("first")).alias("first"),
    )


def _ends(bronze: Bronze, told: DataFrame, books: Mapping[Track, Mapping[Name, Book]]) -> DataFrame:
    # Beside each book: where it ends, and what contradicts that it is all there was.
    rows = [
        (
            *track,
            *name,
            NEVER if book.since is None else book.since[0],
            (book.object["begun"] or book.seen)[0],
        )
        for track, own in books.items()
        for name, book in own.items()
    ]
    schema = (
        "feed STRING, stream INT, object BIGINT, ungated BOOLEAN, track STRING, "
        "of_exchange STRING, of_symbol STRING, since BIGINT, begun BIGINT"
    )
    of = F.broadcast(bronze.spark.createDataFrame(rows, schema))
    own = F.coalesce(
        (F.col("exchange") == F.col("of_exchange")) & (F.col("symbol") == F.col("of_symbol")),
        F.lit(False),
    )
    nameless = F.col("exchange").isNull() | F.col("symbol").isNull()
    position = F.col("at.position")
    ended = (F.col("book") & ~own & (position > F.col("since"))) | (
        F.col("ends") & (nameless | own) & (position >= F.col("since"))
    )
    before = (F.col("passed") | F.col("snapshot")) & (position >= F.col("begun"))
    return (
        told.join(of, list(TRACK))
        .groupBy(*TRACK, F.col("of_exchange").alias("exchange"), F.col("of_symbol").alias("symbol"))
        .agg(
            F.min(F.when(ended, F.col("at"))).alias("ended"),
            F.min(F.when(before, F.col("at"))).alias("before"),
        )
    )
