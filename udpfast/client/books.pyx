"""Every order book of a ring, kept from records or batches, none of them silently wrong."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from udpfast.client.batch cimport Batch, BatchMemory
from udpfast.client.record cimport ReadRecord, record_payload
from udpfast.client.track cimport (
    TRACK_UNGATED, track_applied, track_heard, track_joined, track_key, track_recovered,
    track_sound, track_stale, tracks_add, tracks_clear, tracks_find, tracks_gap, tracks_lapped)
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, KIND_BOOK, KIND_GAP, KIND_LAPPED, KIND_MESSAGE, KIND_RECOVERED,
    KIND_RESTART, KIND_SESSION, KIND_STALE, ObjectState, RECORD_SIZE, RECORD_SNAPSHOT,
    RECORD_UNGATED)
from udpfast.market.book cimport (
    UPDATE_TYPE_SNAPSHOT, UPDATE_TYPE_STALE, book_apply, book_room)
from udpfast.market.updates cimport UpdateHeader

from udpfast.errors import FormatError
from udpfast.market.book import OrderBook

__all__ = ["Books"]


@cython.final
cdef class Books:
    """Books(reader=None)\n--\n
    Order books by exchange and symbol; apply every record of a ring to them.

    A book is `stale` from the moment that its content may be wrong until it is known to be right:

    - a gap puts all books in doubt, until the feed says RECOVERED of each;
    - STALE takes one out until its snapshot has come;
    - a new session, or a restarted writer, empties all books;
    - a reader that was lapped, or joined late, knows a book from the next snapshot on that the feed
      passes on, unless the feed may be in doubt itself: then once it says RECOVERED, or passes the
      next update. While nothing is lost a feed passes on none: begin with the image
      (`Reader(image=True)`), after a lap too;
    - an update with levels that a book refuses puts it in doubt until its next snapshot.

    A stale book keeps what it last held and takes no updates. Books stay the same objects for as
    long as this one lives: hold them.

    Parameters
    ----------
    reader : Reader, optional
        Where `poll` reads. Of several addresses each needs books of its own (`Reader.origin`):
        with the records of another one than before all books begin anew.

    Attributes
    ----------
    reader : Reader or None
    unnamed : int
        Book updates that belong to no book: exchange or symbol is absent, had no room in the
        name table, or cannot be read because there is no such table.
    """

    def __cinit__(self, *args, **kwargs):
        self._by_name = {}
        self._books = []
        self._places = {}
        self._session = -1

    def __init__(self, reader=None):
        self.reader = reader

    def __dealloc__(self):
        free(self._tracks.slots)
        free(self._tracks.tracks)

    def apply(self, ReadRecord record not None):
        """Apply one record, of any kind.

        Returns
        -------
        OrderBook or None
            The book that the record updated, None if it updated none. (A GAP or a LAPPED may turn
            many stale.)
        """
        return self._accept(record._record, record_payload(record), record._names)

    def apply_batch(self, Batch batch not None) -> int:
        """Apply all records of a batch, without a Python object per record.

        Returns
        -------
        int
            How many updates were applied.

        Raises
        ------
        FormatError
            An update is none: its book is stale now, and all others were applied.
        MemoryError
            As above, for an update that finds no room.
        """
        cdef int64_t applied = 0
        batch.check()
        if batch.lapped:
            self._missed()  # harmless if they are another source's: the books begin anew then
        failure = self._accept_run(
            batch.memory, batch.first, batch.first + batch.count, batch.names, &applied)
        if failure is not None:
            raise failure
        return applied

    def poll(self, limit=None, timeout=None) -> Batch:
        """Poll the reader, apply the batch, and return it; see `Reader.poll`."""
        if self.reader is None:
            raise ValueError("poll needs a reader: Books(reader)")
        batch = self.reader.poll(limit, timeout)
        self.apply_batch(batch)
        return batch

    def __getitem__(self, key) -> OrderBook:
        """Return the book of `(exchange, symbol)`; KeyError if none was seen."""
        return self._by_name[key]

    def get(self, key, default=None):
        """Return the book of `(exchange, symbol)`, or `default` if none was seen."""
        return self._by_name.get(key, default)

    def __contains__(self, key) -> bool:
        return key in self._by_name

    def __iter__(self):
        """Iterate over the `(exchange, symbol)` of all books, in the order first seen."""
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def keys(self):
        """Return a view of the `(exchange, symbol)` of all books."""
        return self._by_name.keys()

    def values(self):
        """Return a view of all books."""
        return self._by_name.values()

    def items(self):
        """Return a view of all `((exchange, symbol), book)`."""
        return self._by_name.items()

    def __repr__(self) -> str:
        stale = sum(book.stale for book in self._books)
        return f"<Books: {len(self._books)}, {stale} stale>"

    cdef _accept_run(
            self, BatchMemory memory, int64_t first, int64_t end, NameCache names,
            int64_t* applied):
        # The first failure, or None: a record that fails must not keep others from their books.
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
        # The book that was updated, or None.
        cdef Track* track
        cdef uint16_t kind = header.kind
        if names.source != self._source:  # its objects have other numbers
            self._begin_session(-1, False)
            self._source = names.source
        if kind == KIND_BOOK:
            return self._apply(header, payload, names)
        if kind > KIND_BOOK or kind == KIND_MESSAGE:
            # An object may carry more than books: its chain goes through all its messages.
            track = tracks_find(&self._tracks, track_key(header), 0)
            if track != NULL:
                track_heard(track, header)
                track_applied(track, header)
                self._mark(track)
        elif kind == KIND_STALE or kind == KIND_RECOVERED:
            track = _track(self, track_key(header), 0)
            if kind == KIND_STALE:
                _doubt(track, header, payload)
            else:
                track_recovered(track, header)
            self._mark(track)
        elif kind == KIND_GAP and header.channel == CHANNEL_INCREMENTAL:
            tracks_gap(&self._tracks)
            self._mark_all()
        elif kind == KIND_SESSION or kind == KIND_RESTART:
            self._begin_session(-1, kind == KIND_SESSION)
        elif kind == KIND_LAPPED:
            self._missed()
        return None

    cdef OrderBook _apply(
            self, const Record* header, const uint8_t* payload, NameCache names):
        cdef UpdateHeader update
        cdef Track* track
        cdef OrderBook book
        cdef uint64_t tag, refused
        cdef bint snapshot
        cdef int64_t room
        if header.length < <int64_t> (RECORD_SIZE + sizeof(UpdateHeader)):
            self._missed()  # nobody knows of which book
            raise FormatError(f"record {header.index}: BOOK takes {sizeof(UpdateHeader)} bytes "
                              f"at least, was {header.length - RECORD_SIZE}")
        memcpy(&update, payload, sizeof(update))
        snapshot = (header.flags & RECORD_SNAPSHOT) or update.update_type == UPDATE_TYPE_SNAPSHOT
        if update.exchange_id == 0 or update.symbol_id == 0:
            self.unnamed += 1
            return None
        if header.frame.session_id != self._session:
            if self._session >= 0:  # its SESSION record was among those that a lapped reader missed
                self._begin_session(header.frame.session_id, False)
            self._session = header.frame.session_id
        tag = (<uint64_t> update.exchange_id << 32) | update.symbol_id
        if header.flags & RECORD_UNGATED:
            track = _track(self, track_key(header) | TRACK_UNGATED, tag)
        else:
            track = _track(self, track_key(header), 0)
        if track.tag != tag or track.book < 0:
            if not self._bind(track, tag, names):
                self.unnamed += 1
                return None
        book = <OrderBook> self._books[track.book]
        track_heard(track, header)
        if header.flags & RECORD_UNGATED:
            # Nobody watches over its object: only gaps and laps are known, only snapshots help.
            track.doubted = 0 if snapshot else track.doubted
        if snapshot:
            track.missing = False
        elif (track.missing and not track.begun and self._tracks.complete
                and header.frame.last_seqno == 0 and header.channel == CHANNEL_INCREMENTAL):
            book.clear()
            track.missing = False
        if track.missing:
            return None
        # Whatever ends this in the middle, a damaged update or no memory, leaves the book stale.
        track.missing = book.book.stale = True
        room = book_room(payload, header.length - RECORD_SIZE)
        if room < 0:
            raise FormatError(f"record {header.index}: BOOK of {header.length - RECORD_SIZE} bytes "
                              "is shorter than its counts say")
        book._reserve(&book.book.bids, room)
        book._reserve(&book.book.asks, room)
        refused = book.book.levels_refused
        book_apply(&book.book, payload, snapshot)
        # The origin itself is in doubt, or the book does not hold what the origin holds.
        track.missing = (
            update.update_type == UPDATE_TYPE_STALE or book.book.levels_refused != refused)
        track_applied(track, header)
        self._mark(track)
        return book

    cdef int _bind(self, Track* track, uint64_t tag, NameCache names) except -1:
        # An object names its book: for the first time, or another one than before, which nobody
        # keeps any more. 0: its names are not known, and books of different symbols must not
        # become one.
        exchange = names.name(<uint32_t> (tag >> 32))
        symbol = names.name(<uint32_t> tag)
        track.missing = True
        if track.book >= 0:
            (<OrderBook> self._books[track.book]).book.stale = True
        if exchange is None or symbol is None:
            return 0
        book = self._by_name.get((exchange, symbol))
        if book is None:
            book = OrderBook()
            book.mark_stale()
            self._by_name[exchange, symbol] = book
            self._places[exchange, symbol] = len(self._books)
            self._books.append(book)
        track.book = self._places[exchange, symbol]
        track.tag = tag
        return 1

    cdef _missed(self):
        tracks_lapped(&self._tracks)
        self._mark_all()

    cdef _begin_session(self, int32_t session, bint complete):
        cdef OrderBook book
        tracks_clear(&self._tracks, complete)
        self._session = session
        for book in self._books:
            book.clear()
            book.book.stale = True

    cdef _mark(self, Track* track):
        if track.book >= 0:
            (<OrderBook> self._books[track.book]).book.stale = not track_sound(track)

    cdef _mark_all(self):
        cdef uint32_t index
        for index in range(self._tracks.count):
            self._mark(self._tracks.tracks + index)


cdef void _doubt(Track* track, const Record* header, const uint8_t* payload) noexcept:
    # A ring's STALE says the same each time; that of an image tells whose doubt it is.
    if header.flags & RECORD_SNAPSHOT and (
            header.length >= <int64_t> (RECORD_SIZE + sizeof(ObjectState))):
        track_joined(track, (<const ObjectState*> payload).status)
    else:
        track_stale(track)


cdef Track* _track(Books books, uint32_t key, uint64_t tag) except NULL:
    cdef Track* track = tracks_add(&books._tracks, key, tag)
    if track == NULL:
        raise MemoryError(f"no room for object {books._tracks.count + 1}")
    return track
