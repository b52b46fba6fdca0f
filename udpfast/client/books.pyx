"""Every order book of a ring, built from records or batches; none is silently wrong."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.client.batch cimport Batch, BatchMemory
from udpfast.client.reader cimport Reader
from udpfast.client.record cimport Reading, ReadRecord, record_payload
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    CONNECTION_CHANNEL, CONNECTION_DISCONNECTED, CONNECTION_FANOUT, CONNECTION_LINE,
    CONNECTION_WRITER, Connection, KIND_CONNECTION, KIND_GAP, KIND_LAPPED, KIND_MESSAGE,
    KIND_RECOVERED, KIND_RESTART, KIND_SESSION, KIND_STALE, RECORD_SIZE, RECORD_SNAPSHOT,
    RECORD_UNGATED)
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_ORDERS
from udpfast.market.book cimport UPDATE_TYPE_STALE, book_apply, book_room, update_replaces
from udpfast.market.doubt cimport (
    Doubt, SESSION_UNSEEN, doubt_applied, doubt_begin, doubt_begins, doubt_heard, doubt_key,
    doubt_key_stream, doubt_lapped, doubt_passed, doubt_said, doubt_said_tag, doubt_stands,
    doubt_stream, doubt_tag, doubts_add, doubts_at, doubts_begin, doubts_begin_all,
    doubts_elsewhere, doubts_find, doubts_find_gated, doubts_free, doubts_gap, doubts_heard,
    doubts_incomplete, doubts_init, doubts_reach, heard_begin)
from udpfast.market.order_queues cimport OrderQueues
from udpfast.market.update_header cimport UpdateHeader
from udpfast.market.updates cimport Order, Orders

from udpfast.client.kept_instrument import KeptInstrument
from udpfast.client.missing_book import missing_book, missing_orders
from udpfast.errors import FormatError, shown, unexpected_keyword
from udpfast.market.book import OrderBook

__all__ = ["Books"]


@cython.final
cdef class Books:
    """Books(reader=None)\n--\n
    Order books by exchange and symbol. Apply every record of a ring to it, without exception.

    Books are as of the last record applied. If more wait, they are older than the feed and not
    stale for that: `catch_up` applies all that there are, `poll` a batch of at most 4,096.

    A book is `stale` from the moment its content may be wrong until it is known to be right:

    - GAP makes all books of its stream stale, each until the feed publishes its RECOVERED;
    - STALE makes one book stale until its next snapshot;
    - SESSION empties all books of its stream; RESTART (another writer) empties all books;
    - after a lap or a late join, a book is stale until the next snapshot that the feed passes on,
      or, if the feed itself may be in doubt, until the book's RECOVERED or next update. A feed
      without losses passes on no snapshots: use `Reader(image=True)`, which then joins again;
    - an update with levels that the book refuses makes it stale until its next snapshot;
    - a book whose object names another instrument, or none, is empty and stale;
    - two objects of a session with the same names make both books stale, until one is left.

    All books are stale, too, once their reader has come to the end of a feed, or lost it. Behind
    the end of a journal or a store they are what it left.

    A book that waits for a snapshot keeps its levels and takes no updates; one that is stale for
    its name alone goes on taking those of its object. Books stay the same Python objects for as
    long as this object lives, so they may be kept.

    If a reader reads several addresses as one, each address has books of its own (`at`). A name
    that several addresses have leads to a book that is always stale. Records of two readers do not
    mix: those of another address raise ValueError, and with a later reader of the same address all
    books begin anew, stale until their next snapshots.

    Books are built from BOOK records (price levels). `orders` has the queues of single orders, from
    ORDERS records; they are stale independently of the book.

    Parameters
    ----------
    reader : Reader, optional
        The reader for `catch_up` and `poll`.

    Attributes
    ----------
    reader : Reader or None
    """

    def __cinit__(self, *args, **kwargs):
        self._by_name = {}
        self._books = []
        self._places = {}
        self._claims = {}
        self._names = {}
        self._holders = set()
        self._queues = []
        self._queues_by_name = {}
        self._queues_holders = {}
        self._spare = []
        self._members = {}
        doubts_init(&self._doubts, sizeof(Track))

    def __init__(self, reader=None, **unknown):
        if unknown:
            raise unexpected_keyword(Books, unknown)
        if reader is not None and not hasattr(reader, "poll"):
            raise TypeError(f"reader must be a Reader, was {shown(reader)}")
        self.reader = reader

    def __dealloc__(self):
        doubts_free(&self._doubts)

    def apply(self, ReadRecord record not None):
        """Apply one record of any kind.

        Returns
        -------
        OrderBook or None
            The book that the record updated, or None. (A GAP or LAPPED updates none, but may make
            many stale.)
        """
        return self._of(record._names)._accept(
            record._record, record_payload(record), record._names)

    def apply_batch(self, Batch batch not None) -> int:
        """Apply all records of a batch, without a Python object per record.

        Returns
        -------
        int
            Number of book updates applied.

        Raises
        ------
        FormatError
            An update is malformed. Its book is now stale; all other records were applied.
        MemoryError
            There is no memory for an update. Its book is now stale; all others were applied.
        """
        cdef int64_t applied = 0
        cdef Books books
        batch.check()
        books = self._of(batch.names)
        if batch.lapped:
            books._take_lap()
        failure = books._accept_run(
            batch.memory, batch.first, batch.first + batch.count, batch.names, &applied)
        if failure is not None:
            raise failure
        return applied

    def catch_up(self) -> int:
        """Apply every record that the reader has by now, however many; do not wait for more.

        Books are then as of the newest record at the call; `reader.lag` says how many came
        meanwhile, and `reader.wait` waits for the next ones. Of a fan-out it applies the messages
        that have been received, at most 1,000 and the one behind them.

        Returns
        -------
        int
            Number of records applied; 0 if there was none.

        Raises
        ------
        RingClosedError
            All was applied before, and the writer closed the ring; or it was removed.
        FormatError, MemoryError
            As `apply_batch`. Records may be left: call it again.
        """
        if self.reader is None:
            raise ValueError("catch_up needs a reader: Books(reader)")
        cdef list end = []
        cdef Reader reader = self.reader
        cdef int64_t count = len(self.poll(timeout=0))
        while reader.more(end):
            count += len(self.poll(timeout=0))
            PyErr_CheckSignals()
        return count

    def poll(self, limit=None, timeout=None) -> Batch:
        """Poll the reader once, apply the batch, and return it; see `Reader.poll`.

        A batch has at most the reader's `batch` records, 4,096 by default. Books are as of its last
        record, and `reader.lag` says how many are left: `catch_up` applies them all.
        """
        if self.reader is None:
            raise ValueError("poll needs a reader: Books(reader)")
        batch = self.reader.poll(limit, timeout)
        self.apply_batch(batch)
        return batch

    def at(self, address) -> Books:
        """Return the books of one address, if the reader reads several addresses as one.

        Raises
        ------
        KeyError
            No record of that address was applied yet.
        """
        for known, books in self._members.values():
            if known == address:
                return books
        raise KeyError(address)

    @property
    def unnamed(self) -> int:
        """Number of updates that could not be assigned to an instrument.

        Their exchange or symbol is absent, too long, did not fit the name table, or cannot be read
        because there is no name table.
        """
        return self._unnamed + sum([(<Books> books).unnamed for _, books in self._members.values()])

    @property
    def contested(self) -> int:
        """Number of names that more than one object or more than one address uses now."""
        names = [name for _, books in self._members.values() for name in books]
        return (self._contested + len(names) - len(set(names))
                + sum([(<Books> books)._contested for _, books in self._members.values()]))

    def orders(self, exchange, symbol) -> OrderQueues:
        """Return the resting orders of an instrument, built from ORDERS records.

        Raises
        ------
        KeyError
            No orders of it were read (if some are in doubt, they come with the next snapshot), or
            several addresses have some (use `at`).
        """
        key = (exchange, symbol)
        found = self._queues_named(key)
        if len(found) == 1:
            return found[0]
        if found:
            raise KeyError(f"{len(found)} addresses have orders of {key!r}: use at(address)")
        raise KeyError(missing_orders(self, key))

    def instruments(self) -> list:
        """Return a row per instrument as of now, in the order in which they were first seen.

        Returns
        -------
        list of KeptInstrument
            Rows of (exchange, symbol, stale, bids, asks, orders_stale, orders), which pandas and
            polars take as a table. `stale` is None if no book of levels was seen, `orders_stale`
            if no single orders were. An instrument that several addresses have is stale.
        """
        cdef OrderBook book
        names = dict.fromkeys(self._all())
        for books in (self, *[books for _, books in self._members.values()]):
            names.update(dict.fromkeys((<Books> books)._queues_by_name))
        found = []
        for name in names:
            book = self._find(name)
            queues = self._queues_named(name)
            found.append(KeptInstrument(
                *name, None if book is None else book.stale,
                0 if book is None else book.book.bids.count,
                0 if book is None else book.book.asks.count,
                (len(queues) > 1 or queues[0].stale) if queues else None,
                sum([len(each) for each in queues])))
        return found

    def __getitem__(self, key) -> OrderBook:
        """Return the book of `(exchange, symbol)`.

        Raises
        ------
        KeyError
            No such book was seen; the message suggests similar names.
        """
        book = self._find(key)
        if book is None:
            raise KeyError(missing_book(self, key))
        return book

    def get(self, key, default=None):
        """Return the book of `(exchange, symbol)`, or `default` if no such book was seen."""
        book = self._find(key)
        return default if book is None else book

    def __contains__(self, key) -> bool:
        return self._find(key) is not None

    def __iter__(self):
        """Iterate over the `(exchange, symbol)` of all books, in the order first seen."""
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def keys(self):
        """Return a view of the `(exchange, symbol)` of all books."""
        return self._all().keys()

    def values(self):
        """Return a view of all books."""
        return self._all().values()

    def items(self):
        """Return a view of all `((exchange, symbol), book)`."""
        return self._all().items()

    def __repr__(self) -> str:
        stale = sum([book.stale for book in self.values()])
        contested = f", {self.contested} contested" if self.contested else ""
        behind = self._behind()  # once: it grows while the feed writes
        left = f", {behind} records behind" if behind else ""
        return f"<Books: {len(self)}, {stale} stale{contested}{left}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: the best levels of each book, and its state."""
        from udpfast.client.notebook import books_html

        return books_html(self)

    def _behind(self) -> int:
        # Return how many records the reader has that were not applied, as far as known.
        return self.reader.lag if isinstance(self.reader, Reader) and not self.reader.closed else 0

    cdef Books _of(self, NameCache names):
        # Return the books of a record's address: these, or those of one of several addresses.
        if unlikely(names.reading is not self._reading):
            self._meet(names.reading)
        if names.source == 0:
            return self
        member = self._members.get(names.source)
        if member is None:
            member = self._members[names.source] = (names.address, Books())
        return <Books> member[1]

    cdef _meet(self, Reading reading):
        # Meet a reader of which these books have no records. If they have those of an earlier one,
        # nobody read what lies between, and numbers and names may have other meanings: begin anew.
        if self._reading is not None and reading.address != self._reading.address:
            raise ValueError(f"these books are of {self._reading.address}: {reading.address} needs "
                             "Books of its own")
        if self._reading is not None:
            for books in (self, *[books for _, books in self._members.values()]):
                (<Books> books)._begin_all(False)
                (<Books> books)._orphaned = 0
        self._reading = reading
        if reading is not None:
            reading.books.add(self)

    def _lose_feed(self):
        # These books get older.
        for books in (self, *[books for _, books in self._members.values()]):
            (<Books> books)._orphaned = CONNECTION_WRITER
            (<Books> books)._refresh_all()

    cdef list _queues_named(self, object key):
        # Return the queues of a name, of each address that has some.
        found = [(<Books> books)._queues_by_name.get(key)
                 for books in (self, *[books for _, books in self._members.values()])]
        return [queues for queues in found if queues is not None]

    cdef OrderBook _find(self, object key):
        cdef OrderBook found = self._by_name.get(key)
        for _, books in self._members.values():
            book = (<Books> books)._by_name.get(key)
            if book is not None:
                found = book if found is None else self._undecided_book()
        return found

    cdef dict _all(self):
        if not self._members:
            return self._by_name
        names = [*self._by_name, *[name for _, books in self._members.values() for name in books]]
        return {name: self._find(name) for name in names}

    cdef OrderBook _undecided_book(self):
        if self._undecided is None:
            self._undecided = OrderBook()
            self._undecided.mark_stale()
        return self._undecided

    cdef _accept_run(
            self, BatchMemory memory, int64_t first, int64_t end, NameCache names,
            int64_t* applied):
        # Return the first failure, or None. A record that fails must not stop the ones behind it.
        cdef int64_t i = first
        failure = None
        while i < end:
            try:
                while i < end:
                    i += 1
                    if self._accept(memory.headers + i - 1, memory.payloads + memory.offsets[i - 1],
                                    names) is not None:
                        applied[0] += 1
            except (FormatError, MemoryError) as error:
                failure = failure or error
        return failure

    cdef OrderBook _accept(
            self, const Record* header, const uint8_t* payload, NameCache names):
        # Return the book that was updated, or None.
        cdef Track* track
        cdef uint16_t kind = header.kind
        if unlikely(not doubts_reach(&self._doubts, doubt_stream(header.stream))):
            raise MemoryError(f"not enough memory for stream {header.stream}")
        if unlikely(doubts_elsewhere(&self._doubts, header)):
            self._go_elsewhere(header)
        if kind == KIND_BOOK:
            return self._apply(header, payload, names)
        if kind == KIND_ORDERS:
            self._apply_orders(header, payload, names)
        elif kind > KIND_BOOK or kind == KIND_MESSAGE:
            self._pass_by(header)
        elif kind == KIND_STALE or kind == KIND_RECOVERED:
            self._take_state(
                _track(self, doubt_key(header), doubt_said_tag(header, payload)), header, payload)
            track = _orders_track(self, header, doubt_said_tag(header, payload))
            if track != NULL:
                self._take_state(track, header, payload)
        elif kind == KIND_GAP:
            if doubts_gap(&self._doubts, header, payload):
                self._refresh_stream(doubt_stream(header.stream))
        elif kind == KIND_SESSION or kind == KIND_RESTART:
            # A new writer ends the doubt; the RESTART of an image may be of the one that died.
            # Behind a lost way there may be more than one: READY tells that all of it was read.
            if (kind == KIND_RESTART and not header.flags & RECORD_SNAPSHOT
                    and self._orphaned != CONNECTION_FANOUT):
                self._orphaned = 0
            self._begin(header)
        elif kind == KIND_LAPPED:
            self._take_lap()
        elif kind == KIND_CONNECTION:
            self._note_writer(header, payload)
        return None

    cdef void _take_state(
            self, Track* track, const Record* header, const uint8_t* payload) noexcept:
        if doubt_said(&self._doubts, &track.doubt, header, payload):
            track.book_missing = track.orders_missing = True
        self._refresh_stale(track)

    cdef void _pass_by(self, const Record* header) noexcept:
        # Note a record that updates no book here. An ungated one, too, shows that the feed passed
        # on the gated object with the same number.
        cdef Track* track = <Track*> doubts_find_gated(&self._doubts, header)
        if track != NULL:
            doubt_passed(&track.doubt, header)
            self._refresh_stale(track)

    cdef _go_elsewhere(self, const Record* header):
        if doubts_heard(&self._doubts, header).session != SESSION_UNSEEN:
            self._begin(header)
        doubts_heard(&self._doubts, header).session = header.session

    cdef _apply_orders(self, const Record* header, const uint8_t* payload, NameCache names):
        cdef Orders update
        cdef Track* track
        cdef OrderQueues queues
        cdef uint64_t tag
        cdef bint snapshot
        cdef int64_t size = header.length - RECORD_SIZE
        if size >= <int64_t> sizeof(Orders):
            memcpy(&update, payload, sizeof(Orders))
        if size < <int64_t> sizeof(Orders) or (
                <uint64_t> size < sizeof(Orders) + sizeof(Order) * update.header.row_count):
            self._doubt_all()  # its instrument is unknown
            raise FormatError(
                f"record {header.index}: ORDERS of {size} bytes is too short for its orders")
        snapshot = update_replaces(header.flags, update.header.update_type)
        if header.flags & RECORD_UNGATED:
            self._pass_by(header)
        tag = doubt_tag(update.header.exchange_id, update.header.symbol_id)
        if update.header.exchange_id == 0 or update.header.symbol_id == 0:
            self._unnamed += 1
            track = self._unnamed_track(header)
            if track != NULL:
                self._forget_queues(track)
            return
        track = _track(self, _orders_key(header), tag)
        queues = self._queues_of(track, tag, names)
        if queues is None:
            self._unnamed += 1
            return
        doubt_heard(&track.doubt, header)
        if not snapshot and track.orders_missing:
            if not doubt_begins(&self._doubts, &track.doubt, header):
                return
            queues._clear()
        track.orders_missing = queues.stale = True  # they stay stale if an exception is raised
        queues._apply(payload + sizeof(Orders), update.header.row_count, snapshot)
        track.orders_missing = update.header.update_type == UPDATE_TYPE_STALE
        doubt_applied(&self._doubts, &track.doubt, snapshot)
        self._refresh_stale(track)

    cdef OrderQueues _queues_of(self, Track* track, uint64_t tag, NameCache names):
        # Return the queues of an object; None if its names are unknown. If another object has the
        # same names, the queues that they lead to are stale for the rest of the session.
        cdef uint32_t index = self._index(track)
        cdef OrderQueues queues
        if track.queues >= 0 and track.doubt.tag == tag:
            return <OrderQueues> self._queues[track.queues]
        exchange, symbol = names.name(<uint32_t> (tag >> 32)), names.name(<uint32_t> tag)
        self._forget_queues(track)
        if exchange is None or symbol is None:
            return None
        name = (exchange, symbol)
        queues = self._queues_by_name.get(name)
        if queues is None or name in self._queues_holders:
            if queues is not None:
                queues.contested = queues.stale = True
            queues = OrderQueues()
            queues.name = name
        if self._queues_holders.setdefault(name, index) == index:
            self._queues_by_name[name] = queues
        track.queues = len(self._queues)
        track.orders_missing = True
        self._queues.append(queues)
        if track.book < 0:
            track.doubt.tag = tag
        return queues

    cdef _forget_queues(self, Track* track):
        # Detach an object's queues. Code that still holds them sees them empty and stale.
        cdef uint32_t index = self._index(track)
        cdef OrderQueues queues
        if track.queues < 0:
            return
        queues = <OrderQueues> self._queues[track.queues]
        queues._clear()
        queues.stale, queues.contested = True, False
        self._queues[track.queues] = None
        track.queues = -1
        if self._queues_holders.get(queues.name) == index:
            del self._queues_holders[queues.name]

    cdef OrderBook _apply(
            self, const Record* header, const uint8_t* payload, NameCache names):
        cdef UpdateHeader update
        cdef Track* track
        cdef OrderBook book
        cdef uint64_t tag, refused
        cdef bint snapshot
        cdef int64_t room
        if header.length < <int64_t> (RECORD_SIZE + sizeof(UpdateHeader)):
            self._doubt_all()  # its book is unknown
            raise FormatError(
                f"record {header.index}: BOOK takes at least {sizeof(UpdateHeader)} bytes, found "
                f"{header.length - RECORD_SIZE}")
        memcpy(&update, payload, sizeof(update))
        snapshot = update_replaces(header.flags, update.update_type)
        if header.flags & RECORD_UNGATED:
            self._pass_by(header)
        tag = doubt_tag(update.exchange_id, update.symbol_id)
        if update.exchange_id == 0 or update.symbol_id == 0:
            self._unnamed += 1
            track = self._unnamed_track(header)
            if track != NULL:
                self._unbind(track)
            return None
        track = _track(self, doubt_key(header), tag)
        if track.doubt.tag != tag or track.book < 0:
            if not self._bind(track, tag, names):
                self._unnamed += 1
                return None
        book = <OrderBook> self._books[track.book]
        doubt_heard(&track.doubt, header)
        if not snapshot and track.book_missing:
            if not doubt_begins(&self._doubts, &track.doubt, header):
                return None
            book.clear()
        # The book stays stale if an exception is raised.
        track.book_missing = book.book.stale = True
        room = book_room(payload, header.length - RECORD_SIZE)
        if room < 0:
            raise FormatError(
                f"record {header.index}: BOOK of {header.length - RECORD_SIZE} bytes is too "
                "short for its number of levels")
        if book.reserve(room) < 0:
            raise MemoryError
        refused = book.book.levels_refused
        book_apply(&book.book, payload, snapshot)
        # The publisher's own book is in doubt, or this book refused some of its levels.
        track.book_missing = (
            update.update_type == UPDATE_TYPE_STALE or book.book.levels_refused != refused)
        doubt_applied(&self._doubts, &track.doubt, snapshot)
        book.book.stale = self._unsound(track)
        return book

    cdef Track* _at(self, uint32_t index) noexcept:
        return <Track*> doubts_at(&self._doubts, index)

    cdef uint32_t _index(self, const Track* track) noexcept:
        return <uint32_t> (track - self._at(0))

    cdef Track* _unnamed_track(self, const Record* header) noexcept:
        # Return the gated object of an update that no longer names its instrument; NULL: none.
        # An ungated object is known by its name alone.
        if header.flags & RECORD_UNGATED:
            return NULL
        return <Track*> doubts_find_gated(&self._doubts, header)

    cdef bint _bind(self, Track* track, uint64_t tag, NameCache names) except -1:
        # Bind an object to the book that it names, for the first time or instead of another one.
        # Return False if a name is unknown: books of different symbols must not become one.
        exchange = names.name(<uint32_t> (tag >> 32))
        symbol = names.name(<uint32_t> tag)
        self._unbind(track)
        if exchange is None or symbol is None:
            return False
        self._claim(self._index(track), (exchange, symbol))
        track.doubt.tag = tag
        return True

    cdef _unbind(self, Track* track):
        # Separate an object from its book, which is empty and stale: nobody says what it has.
        if track.book >= 0:
            (<OrderBook> self._books[track.book]).clear()
        track.book_missing = True
        self._refresh_stale(track)
        self._release(self._index(track))

    cdef _claim(self, uint32_t index, object name):
        # Give an object a name. If another object has the name's book, it gets a separate one.
        cdef Track* tracks = self._at(0)
        cdef dict claims = self._claims.setdefault(name, {})
        place = self._places.get(name)
        taken = name in self._holders
        if place is None or taken:
            if self._spare:
                place = self._spare.pop()
            else:
                place = len(self._books)
                self._books.append(OrderBook())
            (<OrderBook> self._books[place]).clear()
            if not taken:
                self._places[name] = place
                self._by_name[name] = self._books[place]
        if not taken:
            self._holders.add(name)
        (<OrderBook> self._books[place]).book.stale = True
        tracks[index].book = place
        self._names[index] = name
        claims[index] = None
        if len(claims) == 2:
            self._contested += 1
        if len(claims) > 1:
            for each in claims if len(claims) == 2 else (index,):
                tracks[<uint32_t> each].contested = True
                self._refresh_stale(tracks + <uint32_t> each)

    cdef _release(self, uint32_t index):
        # Take the name from an object; its book then belongs to no object.
        cdef Track* tracks = self._at(0)
        cdef OrderBook book
        cdef dict claims
        cdef uint32_t other
        name = self._names.pop(index, None)
        if name is None:
            return
        claims = self._claims[name]
        del claims[index]
        home = self._places[name]
        if tracks[index].book != home:
            self._spare.append(tracks[index].book)
        else:
            self._holders.discard(name)
        tracks[index].book = -1
        tracks[index].contested = False
        if len(claims) == 1:
            # The object that is left gets the book that the name leads to.
            self._contested -= 1
            other = next(iter(claims))
            tracks[other].contested = False
            if tracks[other].book != home:
                book = <OrderBook> self._books[home]
                book.swap(<OrderBook> self._books[tracks[other].book])
                self._spare.append(tracks[other].book)
                tracks[other].book = home
                self._holders.add(name)
            self._refresh_stale(tracks + other)

    cdef _take_lap(self):
        # The missed records may include a new writer's RESTART. All books need snapshots anyway.
        # But a loop that stood still is still the writer: its records are late, also its snapshots.
        if self._orphaned == CONNECTION_WRITER:
            self._orphaned = 0
        self._doubt_all()
        for _, books in self._members.values():  # the missed records may be of any address
            (<Books> books)._take_lap()

    cdef _doubt_all(self):
        cdef uint32_t index
        doubts_incomplete(&self._doubts)
        for index in range(self._doubts.count):
            doubt_lapped(&self._doubts, &self._at(index).doubt)
            self._at(index).book_missing = self._at(index).orders_missing = True
        self._refresh_all()

    cdef _begin(self, const Record* header):
        # Begin a session (`complete`: its SESSION was seen) or, at RESTART, another writer.
        cdef bint complete = header.kind == KIND_SESSION
        cdef Track* track
        cdef uint32_t index
        if doubts_begin_all(header):
            self._begin_all(complete)
            return
        heard_begin(doubts_heard(&self._doubts, header), complete)
        for index in range(self._doubts.count):
            track = self._at(index)
            if doubt_key_stream(track.doubt.key) != doubt_stream(header.stream):
                continue
            doubt_begin(&self._doubts, &track.doubt)
            track.book_missing = True
            self._forget_queues(track)
            if track.book >= 0:
                (<OrderBook> self._books[track.book]).clear()
                (<OrderBook> self._books[track.book]).book.stale = True
                self._release(index)

    cdef _begin_all(self, bint complete):
        cdef OrderBook book
        cdef OrderQueues queues
        for queues in self._queues_by_name.values():
            queues._clear()
            queues.stale, queues.contested = True, False
        self._queues = []
        self._queues_holders.clear()
        doubts_begin(&self._doubts, complete)
        self._contested = 0
        self._claims.clear()
        self._names.clear()
        self._holders.clear()
        homes = set(self._places.values())
        self._spare = [place for place in range(len(self._books)) if place not in homes]
        for book in self._books:
            book.clear()
            book.book.stale = True

    cdef _note_writer(self, const Record* header, const uint8_t* payload):
        # While the writer is dead, stuck or cut off, every book may be out of date. READY ends
        # that, but not for a dead writer: its successor's RESTART does, and empties all books. So
        # does a lap, because the RESTART may be among the missed records.
        cdef Connection said
        if header.length < <int64_t> (RECORD_SIZE + sizeof(Connection)):
            return
        memcpy(&said, payload, sizeof(said))
        if said.scope == CONNECTION_CHANNEL or said.scope == CONNECTION_LINE:
            return
        if said.status == CONNECTION_DISCONNECTED:
            self._orphaned = said.scope
        elif said.scope != CONNECTION_WRITER:
            self._orphaned = 0
        elif self._orphaned:
            self._orphaned = CONNECTION_WRITER
        self._refresh_all()

    cdef bint _unsound(self, const Track* track) noexcept:
        return (self._orphaned != 0 or track.book_missing or track.contested
                or doubt_stands(&self._doubts, &track.doubt))

    cdef void _refresh_stale(self, const Track* track) noexcept:
        cdef OrderQueues queues
        if track.book >= 0:
            (<OrderBook> self._books[track.book]).book.stale = self._unsound(track)
        if track.queues >= 0:
            queues = <OrderQueues> self._queues[track.queues]
            queues.stale = (self._orphaned != 0 or track.orders_missing or queues.contested
                            or doubt_stands(&self._doubts, &track.doubt))

    cdef void _refresh_all(self) noexcept:
        cdef uint32_t index
        for index in range(self._doubts.count):
            self._refresh_stale(self._at(index))

    cdef void _refresh_stream(self, uint32_t stream) noexcept:
        cdef uint32_t index
        for index in range(self._doubts.count):
            if doubt_key_stream(self._at(index).doubt.key) == stream:
                self._refresh_stale(self._at(index))


cdef uint64_t _orders_key(const Record* header) noexcept:
    # Return the key of a record's orders. Those of an ungated object are an object of their own:
    # only complete updates end its doubt, and those of its book say nothing about its orders.
    cdef uint64_t key = doubt_key(header)
    return key | (key >> 32 & 1) << 33


cdef Track* _orders_track(Books books, const Record* header, uint64_t tag) noexcept:
    # Return the track of an ungated object's orders; NULL: there is none.
    if not header.flags & RECORD_UNGATED:
        return NULL
    return <Track*> doubts_find(&books._doubts, _orders_key(header), tag)


cdef Track* _track(Books books, uint64_t key, uint64_t tag) except NULL:
    cdef Doubt* doubt = doubts_find(&books._doubts, key, tag)
    if likely(doubt != NULL):
        return <Track*> doubt
    doubt = doubts_add(&books._doubts, key, tag)
    if doubt == NULL:
        raise MemoryError(f"not enough memory for object {books._doubts.count + 1}")
    (<Track*> doubt).book = (<Track*> doubt).queues = -1
    (<Track*> doubt).book_missing = (<Track*> doubt).orders_missing = True
    return <Track*> doubt
