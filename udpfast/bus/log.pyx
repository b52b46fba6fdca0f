"""What the state machines of the bus need of a store. The hot half is in `log.pxd`."""

import contextlib
import struct

from udpfast.core.hold cimport hold_give, hold_take
from udpfast.core.layout cimport KIND_RESTART, RECORD_SIZE

from udpfast.bus.lineage import Lineage
from udpfast.bus.release import Release
from udpfast.errors import FormatError

__all__ = ["LinkEnd", "Log", "Store", "saved_lineage"]


cdef class LinkEnd:
    """One end of a link, which a thread of the socket's owner may carry.

    Such a thread moves bytes without the interpreter while it holds `hold`; what needs the
    interpreter waits for `attend`.

    Attributes
    ----------
    carried : bool
        A thread carries the bytes of this end.
    """

    cdef _hand_over(self):
        # Hand the output to the thread, which must not run now (the caller has its hold).
        cdef bytes rest = (<const char*>self.said)[:self.said_size]
        self._said = rest + b"".join(self._output)
        self._output.clear()
        self.said = <const uint8_t*><const char*>self._said
        self.said_size = len(self._said)


cdef class Log:
    """A store's records and what is kept beside them. Base class; the owner of the disk derives.

    Attributes
    ----------
    identity : bytes
        16 bytes; zeros: the store is new and has none yet.
    layout_hash : int
        Hash of the layouts of its records.
    """

    cdef object place_at(self, uint64_t position, Place* place):
        raise NotImplementedError

    cdef object names_count(self, uint64_t number, const uint64_t** count):
        count[0] = NULL

    @property
    def end(self) -> int:
        """Position behind the last record."""
        return self.writer.position

    @property
    def end_index(self) -> int:
        """Number of records ever written."""
        return self.writer.index

    @property
    def last(self) -> tuple[int, int] | None:
        """Position and checksum of the last record; None: there is none."""
        if self.last_ns == INT64_MIN:
            return None
        return self.last_position, self.last_checksum

    def flush(self) -> None:
        """Publish the end of the log to readers and to the disk's keeper."""

    def first(self) -> tuple[int, int]:
        """Return position and index of the oldest record that was not removed."""
        raise NotImplementedError

    def synced(self) -> int:
        """Return the position up to which everything is on the disk."""
        raise NotImplementedError

    def create(self) -> None:
        """Become a new store with an identity of its own. A store that already has one stays."""
        raise NotImplementedError

    def adopt(self, bytes identity, uint64_t position, uint64_t index) -> None:
        """Become a copy of a store, beginning at a position and index."""
        raise NotImplementedError

    def roll(self, header: bytes | None = None) -> bool:
        """Begin the next segment; False: there is no room for it yet.

        Parameters
        ----------
        header : bytes, optional
            Header of the segment at the store's source; None: a new segment of this store.
        """
        raise NotImplementedError

    def segment_header(self, uint64_t position) -> bytes:
        """Return the header of the segment that has, or will have, the record at `position`.

        Empty if there is no segment yet.
        """
        raise NotImplementedError

    def names_at(self, uint64_t position) -> int:
        """Return the number of the table of names of the segment at `position`; 0: none."""
        header = self.segment_header(position)
        return header_names(header) if header else 0

    def names_since(self, uint64_t number, uint64_t known) -> tuple[bytes, int]:
        """Return the names of a table behind the first `known`, and the number then known.

        The names are the body of a frame NAMES, which may not hold all of them; empty: no more.
        """
        raise NotImplementedError

    def take_names(self, bytes said) -> None:
        """Keep the names that another copy's `names_since` returned.

        Raises
        ------
        ValueError
            They differ from those that this copy has.
        """
        raise NotImplementedError

    def cut(self, uint64_t position) -> int:
        """Set aside all records from `position` on; return how many."""
        raise NotImplementedError

    def unroll(self) -> bool:
        """Take back the last segment if it is empty; return whether it was.

        A copy continues with the segments of its next source: the previous segment takes records up
        to its end again, although a writer of this host had ended it.
        """
        raise NotImplementedError

    def load(self) -> bytes:
        """Return the bytes saved last; empty if there are none."""
        raise NotImplementedError

    def save(self, bytes state) -> None:
        """Keep a few bytes beside the records, as durably as the disk allows."""
        raise NotImplementedError

    def records(
            self, uint64_t position, uint64_t until, uint64_t count=1 << 62,
            uint64_t kinds=0) -> Iterator[bytes]:
        """Yield records as bytes, for tools and tests. `kinds`: one bit per wanted kind; 0: all."""
        cdef Place place
        cdef int64_t size
        while position < until and count:
            _memory = self.place_at(position, &place)
            size = place_look(&place)
            if size <= 0:
                return
            position += size
            if kinds and not kinds >> place_record(&place).kind & 1:
                continue
            yield (<const char*>place_record(&place))[:size]
            count -= 1

    def run(self, uint64_t position, uint64_t until, uint64_t most) -> tuple[int, int]:
        """Return the end of at most `most` records from a position on, and their number.

        They are of one segment and lie below `until`.
        """
        cdef Place place
        cdef int64_t size
        cdef uint64_t count = 0
        _memory = self.place_at(position, &place)
        while place.position < until and count < most:
            size = place_look(&place)
            if size <= 0:
                break
            place.position += size
            count += 1
        return place.position, count

    def stands_at(self, uint64_t position) -> tuple[int, int] | None:
        """Return index and publication time of the record at a position; None: none is there."""
        cdef Place place
        memory = self._record_at(position, &place)
        if memory is None:
            return None
        return place_record(&place).index, place_record(&place).published_ns

    def checksum_at(self, uint64_t position) -> int | None:
        """Return the checksum of the record at a position; None: none is there."""
        cdef Place place
        memory = self._record_at(position, &place)
        return None if memory is None else place_record(&place).checksum

    cdef object _record_at(self, uint64_t position, Place* place):
        # Find the record at a position; return the object that keeps its memory, or None.
        if not self.first()[0] <= position < self.writer.position:
            return None
        try:
            memory = self.place_at(position, place)
        except (OSError, FormatError):  # its file is gone or damaged
            return None
        if place_look(place) <= 0 or place_record(place).position != position:
            return None
        return memory

    def behind(self, uint64_t position) -> int:
        """Return where to continue behind a damaged record: at the next valid one."""
        return self.writer.position

    def is_whole(self, uint64_t position) -> bool:
        """Return whether there is a valid record at a position."""
        cdef Place place
        try:
            _memory = self.place_at(position, &place)
        except (OSError, FormatError):  # its file is gone or damaged
            return False
        return place_whole(&place)

    def is_damaged(self, uint64_t position) -> bool:
        """Return whether a record begins at a position and is damaged."""
        if self.is_whole(position):
            return False
        header = self.segment_header(position)
        return not header or self.run(header_position(header), position, 1 << 62)[0] <= position


_STATE = struct.Struct("<QQQ")
_EPOCH_BEGIN = struct.Struct("<QqQII32s")  # EpochBegin, the payload of RESTART (bus/wire.pxd)


def saved_lineage(bytes state) -> Lineage:
    """Return the epochs in the bytes that `Log.save` was given."""
    return Lineage.unpack(state[_STATE.size:])


cdef class Store:
    """One host's copy of a store: its records, its epochs, and what it knows of other copies.

    Parameters
    ----------
    log : Log
        The records.
    host : str
        Name of this host.
    gate : int
        Number of standbys that must have a record before readers may see it.
    standbys : tuple of str
        Hosts that copy from this one while it is the writer.
    followers : tuple of str
        Hosts that copy from this one even while it is a replica.
    release : Release, optional
        Decides for which standbys outboxes wait; by default for all.

    Attributes
    ----------
    lineage : Lineage
    promised : int
        Records of lower epochs are neither taken nor written.
    writer : bool
        The sequencer of this host appends to the store.
    was_writer : bool
        It did when it last ran, and as far as this host knows nobody else has since.
    damaged_at : int or None
        Position of a damaged or missing record: copies get neither that record nor those behind
        it. None: none is known.
    standbys : tuple[str, ...]
    followers : tuple[str, ...]
    links : dict[str, LinkSender]
        Living links by the host that they send to.
    acks : dict[str, tuple[int, int]]
        For each host that copies, the positions up to which it has received and kept records.
    intake : LinkEnd or None
        The end whose thread appends records now.
    said : list[str]
        Messages for the operator, the newest last.
    release : Release
    cut_at : list[int]
        Positions from which records were set aside, one for each count of `cuts`.
    """

    def __init__(
            self, Log log, str host, *, gate: int = 0, standbys: Sequence[str] = (),
            followers: Sequence[str] = (), release: Release | None = None):
        if gate > len(standbys):
            raise ValueError(
                f"gate must be at most {len(standbys)}, the number of standbys, was {gate}")
        self.log = log
        self.host = host
        self.gate = gate
        self.standbys = tuple(standbys)
        self.followers = tuple(followers)
        self.release = Release() if release is None else release
        self.links = {}
        self.acks = {}
        self.said = []
        self.cut_at = []
        self.intake = None
        self.damaged_at = None
        self.writer_host = ""
        state = log.load()
        self.promised = self._released = 0
        self.lineage = Lineage()
        if state:
            self.promised, self._released, self.was_writer = _STATE.unpack_from(state)
            self.lineage = saved_lineage(state)
            # Drop epochs of which their writer wrote nothing before it ended.
            self.lineage.cut(log.writer.position)
        if not self.lineage.pairs and log.last is not None:
            self._recall(not state)
        self._released = min(self._released, log.writer.position)

    def _recall(self, bint lost):
        # Read the epochs from the records: the saved state is lost, or lacks them.
        was_writer = False
        for record in self.log.records(
                self.log.first()[0], self.log.writer.position, kinds=1 << KIND_RESTART):
            epoch, _, old_end, _, _, host = _EPOCH_BEGIN.unpack_from(record, RECORD_SIZE)
            self.lineage.begin(epoch, old_end)
            was_writer = host.rstrip(b"\0") == self.host.encode()
        self.promised = max(self.promised, self.lineage.epoch)
        if lost:
            self.was_writer = was_writer
            self.said.append(
                "the file `bus.state` was lost: its epochs were read from the records; what this "
                "host had promised to others is no longer known")

    @property
    def identity(self) -> bytes:
        """Identity of the store: 16 bytes; zeros: this copy is new."""
        return self.log.identity

    @property
    def key(self) -> int:
        """The number by which datagrams name the store."""
        return int.from_bytes(self.log.identity[:8], "little")

    @property
    def epoch(self) -> int:
        """Epoch of the last record; 0: there is none."""
        return self.lineage.epoch

    @property
    def end(self) -> int:
        """Position behind the last record."""
        return self.log.writer.position

    @property
    def released(self) -> int:
        """Position up to which readers of this host may see the records."""
        cdef list received
        if self.gate == 0:
            return self.log.writer.position
        if self.writer:
            received = sorted((self.acks.get(host, (0, 0))[0] for host in self.standbys),
                              reverse=True)
            self._released = max(
                self._released, min(received[self.gate - 1], self.log.writer.position))
        return min(self._released, self.log.writer.position)

    def kept_below(self) -> int:
        """Return the position up to which this copy and all that follow it keep everything."""
        # A host that bus.toml lists as a follower may be the writer now and so have everything. But
        # a host that wrote an ended epoch may have lost records since, and does not count.
        writer = self.writer_host if self.writer_epoch >= self.promised else ""
        return min([self.log.writer.position]
                   + [self.acks.get(host, (0, 0))[1] for host in self.followers if host != writer])

    @property
    def kept(self) -> int:
        """Position up to which all standbys keep the records; without standbys, the disk."""
        if self.writer:
            if self.standbys:
                known = min(self.acks.get(host, (0, 0))[1] for host in self.standbys)
            else:
                known = self.log.synced()
            self._kept = max(self._kept, min(known, self.log.writer.position))
        return self._kept

    @property
    def let_go(self) -> int:
        """Position up to which outboxes let messages go; never behind `released`."""
        if self.writer:
            known = self.release.position(self.acks, self.standbys, self.log.synced())
            self._let_go = max(self._let_go, min(known, self.released))
        return self._let_go

    @property
    def unprotected_bytes(self) -> int:
        """Bytes that outboxes have let go although a standby lacks them."""
        return max(self.let_go, self.kept) - self.kept if self.writer and self.standbys else 0

    def waits_for(self) -> list[str]:
        """Return the standbys for which outboxes still wait; none if they wait for the disk."""
        if not self.writer:
            return []
        return self.release.holding(self.acks, self.standbys, self.log.writer.position)

    def look_at_standbys(self, now_ns: int) -> None:
        """Let time pass: the writer notes which standbys are away, and reports changes."""
        if self.writer:
            self.said += self.release.look(
                now_ns, self.log.writer.position, self.acks, self.standbys)

    def learn(self, uint64_t released, uint64_t kept, uint64_t let_go) -> None:
        """Take the source's progress of readers, standbys and outboxes."""
        store_learn(self, released, kept, let_go)

    def learn_lineage(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take the epochs of the records from a source that knows all of them."""
        cdef list found = [pair for pair in pairs if pair[1] < self.log.writer.position]
        if found != self.lineage.pairs:
            self.lineage = Lineage(found)
            self.changes += 1
            self.save()

    def learn_writer(self, str host, uint64_t epoch) -> None:
        """Note who writes an epoch. Epochs before the one already known are ignored."""
        if host and epoch >= self.writer_epoch:
            self.writer_host, self.writer_epoch = host, epoch

    @property
    def writer_known(self) -> str:
        """The host that writes the epoch of the last record; empty: unknown."""
        return self.writer_host if self.writer_epoch >= self.lineage.epoch else ""

    def save(self) -> None:
        """Save the epochs and the promise."""
        self.log.save(
            _STATE.pack(self.promised, self._released, self.was_writer) + self.lineage.pack())

    def flush(self) -> None:
        """Publish the end of the log, at a record boundary."""
        cdef LinkEnd intake = self.intake
        if intake is not None:
            hold_take(&intake.hold)
        try:
            self.log.flush()
        finally:
            if intake is not None:
                hold_give(&intake.hold)

    def fence(self, uint64_t epoch) -> bool:
        """Promise to take nothing of lower epochs; return whether `epoch` is the promise now.

        A writer of a lower epoch stops for good: the promise outlives the process.
        """
        if epoch > self.promised:
            self.promised = epoch
            if self.intake is not None:
                # Once the hold was taken, the intake's thread takes nothing of lower epochs, and
                # `end` is final.
                hold_take(&self.intake.hold)
                hold_give(&self.intake.hold)
            if self.lineage.epoch < epoch:
                if self.writer:
                    # It may have written nothing in its epoch, while others have later records.
                    self.lineage.cut(self.log.writer.position)
                    self.changes += 1
                self.writer = self.was_writer = False
            self.save()
        return epoch >= self.promised

    def begin(self, uint64_t epoch) -> int:
        """Become the writer from the end of the log on; return that position.

        Raises
        ------
        ValueError
            A later epoch was promised or written.
        """
        if epoch < self.promised or epoch <= self.lineage.epoch:
            raise ValueError(f"expected an epoch of {max(self.promised, self.lineage.epoch):x} or "
                             f"more, found {epoch:x}")
        if self.log.writer.limit == 0 and self._ends_empty():
            # The last segment ended empty when the store was closed. With another segment at the
            # same position behind it, copies would get only that one.
            self.unroll()
        # Saved before the first record: whoever has that record knows the epoch.
        self.promised = epoch
        self._released = self.released
        self.acks.clear()
        self.release.begin()
        self._begin_epoch(epoch)
        self.was_writer = True
        self.save()
        self.writer = True
        self.learn_writer(self.host, epoch)
        return self.log.writer.position

    cdef bint _ends_empty(self):
        header = self.log.segment_header(self.log.writer.position)
        return len(header) > 0 and header_position(header) == self.log.writer.position

    def begin_copied(self, uint64_t epoch) -> None:
        """Note that the records from the end on belong to a later epoch than those before."""
        self._begin_epoch(epoch)
        self.promised = max(self.promised, epoch)
        self.writer = self.was_writer = False
        self.save()

    def _begin_epoch(self, epoch):
        # A host that had more records before has lost them since: what follows differs from them.
        self.lineage.begin(epoch, self.log.writer.position)
        self.changes += 1
        self._kept = min(self._kept, self.log.writer.position)
        self._let_go = min(self._let_go, self.log.writer.position)

    def adopt(
            self, bytes identity, uint64_t position, uint64_t index,
            pairs: Sequence[tuple[int, int]]) -> None:
        """Become a copy of a store, which begins at a position."""
        self.log.adopt(identity, position, index)
        self.lineage = Lineage([pair for pair in pairs if pair[1] < position])
        self.promised = max([self.promised] + [epoch for epoch, _ in pairs])
        self.save()

    def note_damaged(self, uint64_t position) -> None:
        """Note, and report once, that copies cannot get the record at a position."""
        if self.damaged_at != position:
            self.damaged_at = position
            self.said.append(self.damage)

    @property
    def damage(self) -> str:
        """The known damage of this copy, in a sentence; empty: none is known, or it was removed."""
        if self.damaged_at is None or self.damaged_at < self.log.first()[0]:
            return ""
        return (f"the record at position {self.damaged_at} is damaged or missing on this host, so "
                "copies get no record from there on; `udpfast verify` lists the damage")

    def _note_cut(self, uint64_t position):
        self.cuts += 1
        self.changes += 1
        self.cut_at.append(position)

    def cut_since(self, uint64_t cuts) -> int:
        """Return the position from which records may differ since an earlier value of `cuts`."""
        return min(self.cut_at[cuts:])

    def unroll(self) -> None:
        """Take back the last segment if it is empty."""
        with self._unread():
            if self.log.unroll():
                self._note_cut(self.log.writer.position)

    @contextlib.contextmanager
    def _unread(self):
        # Block the threads that read records for links, because the memory of these may be
        # unmapped.
        cdef LinkEnd end
        held = list(self.links.values())
        for end in held:
            hold_take(&end.hold)
        try:
            yield
        finally:
            for end in held:
                hold_give(&end.hold)

    def cut(self, uint64_t position) -> int:
        """Set aside all records from a position on; return their number."""
        with self._unread():
            removed = self.log.cut(position)
            self.lineage.cut(position)
            self._note_cut(position)
        self._released = min(self._released, position)
        self._kept = min(self._kept, position)
        self._let_go = min(self._let_go, position)
        # What other copies have received behind it is not what this store will have there.
        self.acks = {host: (min(received, position), min(kept, position))
                     for host, (received, kept) in self.acks.items()}
        self.save()
        return removed
