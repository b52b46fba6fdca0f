"""The state of each order book at a time: which updates make it up, and whether it is in doubt.

The result is the same as that of `udpfast.Books` after it has read the same records
(client/books.pyx, market/doubt.pxd), but is found without reading them one after the other:

    era      the time since the stream's last session, restart or journal; no book has older levels
    span     the records that make up one book: from its newest snapshot up to the first record
             after which updates no longer build on it (STALE, a snapshot to come, a LAPPED, a
             refused level)
    stale    the span has ended, or has not begun; or the object is in doubt, after a GAP or STALE,
             or because records are missing here that could have said so

Spark aggregates messages, without their levels, to a few facts about each object. There are as
many objects as instruments; the driver draws the conclusions in Python (`judge`).
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from udpfast.core.layout import RecordFlag
from udpfast.spark import silver
from udpfast.spark.bronze import POSITIONS

if TYPE_CHECKING:
    from udpfast.spark.bronze import Bronze

__all__ = ["BOOK_KEYS", "Book", "Era", "eras_of", "judge", "spans"]

#: Columns that identify a book: names and number of its object, whether a gate watches over it
#: (not `ungated`), and its stream.
BOOK_KEYS = (*silver.OBJECT, "ungated", "stream")

#: Columns of what becomes doubtful together: with a gate, all books of one object; without, a book.
TRACK = ("feed", "stream", "object", "ungated", "track")
NAMES = ("exchange", "symbol")
#: Kinds of records about an object: messages, decoded or not, and the feed's STALE and RECOVERED.
_OF_OBJECTS = (*silver.MESSAGES, "STALE", "RECOVERED")

#: Greater than all positions.
NEVER = (1 << 63) - 1

#: Position and `received_ns` of a record.
At: TypeAlias = tuple[int, int]
Row: TypeAlias = Mapping[str, Any]
Track: TypeAlias = tuple[str, int, int, bool, str]
Name: TypeAlias = tuple[str, str]


class Era(Struct, frozen=True):
    """Where the records begin that make up a stream's books, and the losses since then.

    Attributes
    ----------
    position : int
        Earlier records belong to no book.
    complete : bool
        The era begins with a SESSION, so every later STALE and RECOVERED of the feed is known.
    laps, gaps : list of (int, int)
        Where records are missing, and where messages were lost, in order of position.
    """

    position: int
    complete: bool
    laps: list[At] = field(default_factory=list)
    gaps: list[At] = field(default_factory=list)

    def is_whole(self, place: At) -> bool:
        """Whether every STALE and RECOVERED of the feed before a place is here."""
        return self.complete and not (self.laps and self.laps[0] < place)


class Book(Struct):
    """The facts about one book and its object; a place is None if there is no such record.

    Attributes
    ----------
    object : dict
        Places of records of its object: `begun`, the first; `recovered`, `said` (STALE) and
        `heard`, the last of each kind; `replaced`, its newest snapshot; `newest`, its last update.
    seen, last : (int, int)
        Its first and its last update.
    snapshot : (int, int) or None
        Its newest snapshot.
    first : (int, int) or None
        The first update that is marked as the first of its book.
    ended : (int, int) or None
        The first record, from `since` on, after which updates no longer build on the book.
    before : (int, int) or None
        The first message of its object that contradicts `first`.
    left : (int, int) or None
        The first record, from `since` on, in which its object names another book or none.
    """

    object: dict[str, At | None]
    seen: At
    last: At
    snapshot: At | None
    first: At | None
    ended: At | None = None
    before: At | None = None
    left: At | None = None

    @property
    def since(self) -> At | None:
        """Where the book begins if the facts hold: at its newest snapshot, else at `first`."""
        return self.snapshot or self.first


class Span(Struct, frozen=True):
    """The state of one book: its levels are the last changes from `begin` to `end`, included."""

    begin: At | None
    end: At | None
    doubts: tuple[At, ...]


def eras_of(sessions: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Era]:
    """Return the last era of each stream, by feed and stream.

    Parameters
    ----------
    sessions : iterable of mapping
        A row per `feed`, `stream`, `place` (root) and `session`: `begun` is the position of its
        last SESSION, `restarted` that of the last RESTART, which concerns all streams; `first` and
        `last` are the positions of its records about objects. None where there is no such record.
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
    # If several journals follow each other, only the last one counts, because nothing was recorded
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
    # There are records of two sessions without a SESSION between them, so it must be one of the
    # missing records. The later session then begins with its first record about an object.
    last = max(later, key=lambda row: row["last"])
    before = max(row["last"] for row in later if row is not last)
    return Era(max(last["first"], before + 1), False)


def judge(book: Book, era: Era, ungated: bool) -> Span:
    """Return the span of a book and its doubts, from the facts about it."""
    own = book.object
    begun = own["begun"] or book.seen
    begin = book.since
    if book.snapshot is None and begin is not None:
        is_all = era.is_whole(begin) and (book.before is None or book.before >= begin)
        begin = begin if is_all else None
    end = None if begin is None else _first([book.ended, _after(era.laps, begin)])
    # Missing records concern this object only if it has records before them.
    lap = era.laps[-1] if era.laps and era.laps[-1] > begun else None
    if ungated:
        # A snapshot ends the doubt of what has no gate, also if the feed said STALE.
        sure = _last([own["replaced"], own["recovered"], lap, (era.position, 0)])
        doubted = own["said"] if own["said"] and own["said"] > sure else None
    else:
        sure = _last([begun, own["recovered"], lap])
        doubted = _doubted(own, begun, lap, era)
    missing = book.seen if begin is None else end
    doubts = [missing, doubted, _after(era.gaps, sure)]
    # Nobody says what a book has that its object left.
    begin = None if book.left else begin
    return Span(begin, end, tuple(each for each in doubts if each is not None))


def _doubted(own: Mapping[str, At | None], begun: At, lap: At | None, era: Era) -> At | None:
    # Return since when an object is in doubt, or None if it is not. The last of these decides:
    # RECOVERED or STALE of the feed; its first record; missing records, which may have been any of
    # these.
    word = _last([begun, own["recovered"], own["said"], lap])
    if word == own["recovered"]:
        return None
    # A STALE may be among the missing records, or among records before the first one here.
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


# --- aggregation in Spark -------------------------------------------------------------------------


def spans(bronze: Bronze, at_ns: int | None) -> DataFrame:
    """Return a row per book: `BOOK_KEYS`, `begin`, `end`, `stale` and `stale_since_ns`.

    The levels of a book are the last changes from `begin` up to `end`, both included. A NULL
    `begin` means that it has none, a NULL `end` that the span goes on.
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
        book.left = _at(row["left"])
    schema = (
        "feed STRING, exchange STRING, symbol STRING, object BIGINT, ungated BOOLEAN, stream INT, "
        "begin BIGINT, end BIGINT, stale BOOLEAN, stale_since_ns BIGINT"
    )
    return bronze.spark.createDataFrame(list(_rows(books, eras)), schema)


def _rows(
    books: Mapping[Track, Mapping[Name, Book]], eras: Mapping[tuple[str, int], Era]
) -> Iterator[Any]:
    # Two objects that currently have the same name are both in doubt. A former name of an object is
    # left out if another object has that name now.
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
    # Lost snapshot messages put no book in doubt, unless the numbering began anew.
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
    # Records that a composite's copy lacks may be of any input: those of ALGO may be of ALGO/LEFT
    # or ALGO/RIGHT. Missing records may also be of any stream.
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


#: Facts about an object for which its rows are merged by the smallest, or the largest, place.
_FIRSTS = ("begun",)
_LASTS = ("recovered", "said", "heard", "replaced", "newest")


def _track(row: Any) -> Track:
    return row["feed"], row["stream"], row["object"], row["ungated"], row["track"]


def _at(place: Any) -> At | None:
    return None if place is None else (place[0], place[1])


def at() -> Column:
    """Return the position and time of a record as one column; the earlier record is smaller."""
    return F.struct("position", "received_ns").alias("at")


# --- facts from records ---------------------------------------------------------------------------

#: Facts that a record gives about an object, about the book that it names, or about all its books.
_TOLD = {
    "book": "boolean",  # an update of this book
    "snapshot": "boolean",  # an update that replaces the book
    "first": "boolean",  # an update that is the complete book, if no other came before it
    "heard": "boolean",  # a message that the feed passes on only while its object is not stale
    "ends": "boolean",  # after it, updates no longer build on the book
    "leaves": "boolean",  # an update that names no book
    "passed": "boolean",  # a message without an update of the book
    "said": "boolean",  # STALE
    "recovered": "boolean",
}


def _told(messages: DataFrame, events: DataFrame, levels: DataFrame) -> DataFrame:
    named = F.col("exchange").isNotNull() & F.col("symbol").isNotNull()
    book = F.col("kind") == "BOOK"
    # Snapshots in other streams may come from a recovery channel.
    incremental = (F.col("stream") == 0) | (
        (F.col("stream") > silver.SNAPSHOT) & ~_flag(RecordFlag.SNAPSHOT)
    )
    released, first = _flag(RecordFlag.RELEASED), _flag(RecordFlag.FIRST)
    ungated = _flag(RecordFlag.UNGATED)
    updates = messages.where(book & (named | ~ungated))
    replaces = F.col("snapshot")
    heard = incremental & ~released & ~ungated
    carried = F.col("kind").isin(*silver.MESSAGES)
    refused = F.col("price").isNull() | F.col("quantity").isNull() | (F.col("quantity") < 0)
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
            leaves=~named,
        ),
        _tells(messages.where(carried & (~book | ungated)), F.lit(False), passed=F.lit(True),
               heard=heard, nameless=True),
        _tells(levels.where(named & refused), ungated, ends=F.lit(True)),
        _tells(objects, ungated, ends=~recovered | ~F.coalesce("continues", F.lit(False)),
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
    # Ungated updates have one object number for many symbols, so each symbol is a track.
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
    # A row per book, and one per object from its records without a name.
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
    # For each book: where it ends, and the first record that contradicts that it began complete.
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
    left = (F.col("leaves") | (F.col("book") & ~own)) & (position > F.col("since"))
    ended = left | (F.col("ends") & (nameless | own) & (position >= F.col("since")))
    before = (F.col("passed") | F.col("snapshot")) & (position >= F.col("begun"))
    return (
        told.join(of, list(TRACK))
        .groupBy(*TRACK, F.col("of_exchange").alias("exchange"), F.col("of_symbol").alias("symbol"))
        .agg(
            F.min(F.when(ended, F.col("at"))).alias("ended"),
            F.min(F.when(before, F.col("at"))).alias("before"),
            F.min(F.when(left, F.col("at"))).alias("left"),
        )
    )
