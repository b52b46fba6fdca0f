"""The single orders that a strategy keeps from `Kind.ORDERS` records."""

from typing import NamedTuple

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint32_t, uint8_t
from libc.string cimport memcpy

from udpfast.market.updates cimport SIZE_ORDER_ID, Order

import numpy as np

from udpfast.market.updates import ORDER

__all__ = ["OrderPlace", "OrderQueues"]

cdef enum:  # the schema's Side and UpdateAction
    SIDE_BUY = 1
    SIDE_SELL = 2
    ACTION_DELETE = 3


class OrderPlace(NamedTuple):
    """The place of an order in the queue of its price.

    Attributes
    ----------
    side : str
        `"bid"` or `"ask"`.
    price, quantity : float
        The order's own.
    orders_before : int
        Orders at its price that are filled before it.
    quantity_before : float
        Their total quantity.
    """

    side: str
    price: float
    quantity: float
    orders_before: int
    quantity_before: float


@cython.final
cdef class OrderQueues:
    """OrderQueues()\n--\n
    The resting orders of one instrument; `Books.orders` has those of a feed.

    Attributes
    ----------
    stale : bool
        True if they must not be trusted.
    """

    def __cinit__(self):
        self._places = {}
        self.stale = True

    def __dealloc__(self):
        PyMem_RawFree(self._rows)

    cdef _apply(self, const uint8_t* rows, uint32_t count, bint snapshot):
        cdef Order row
        cdef uint32_t i
        if snapshot:
            self._clear()
        for i in range(count):
            memcpy(&row, rows + i * sizeof(Order), sizeof(Order))
            name = _id(&row)
            if row.action == ACTION_DELETE or not row.quantity > 0:
                self._drop(name)
            else:
                self._put(&row, name)

    cdef _put(self, const Order* row, bytes name):
        cdef uint32_t room
        cdef void* memory
        place = self._places.get(name)
        if place is None:
            if self._count == self._room:
                room = max(2 * self._room, <uint32_t> 16)
                memory = PyMem_RawRealloc(self._rows, room * sizeof(Order))
                if memory == NULL:
                    raise MemoryError
                self._rows = <Order*> memory
                self._room = room
            place = self._places[name] = self._count
            self._count += 1
        self._rows[<uint32_t> place] = row[0]

    cdef _drop(self, bytes name):
        # Move the last row to the freed place.
        cdef const Order* last
        place = self._places.pop(name, None)
        if place is None:
            return
        self._count -= 1
        last = self._rows + self._count
        if place != self._count:
            self._rows[<uint32_t> place] = last[0]
            self._places[_id(last)] = place

    cdef _clear(self):
        self._count = 0
        self._places.clear()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, order_id: object) -> bool:
        return _name(order_id) in self._places

    def bids(self, count: int | None = None) -> NDArray[np.void]:
        """Return the bids, the best price first, orders of one price in the order of their queue.

        Parameters
        ----------
        count : int, optional
            Return at most this many orders; default all.

        Returns
        -------
        numpy.ndarray
            Shape (n,), dtype `udpfast.market.updates.ORDER`: price, quantity, priority, order_id,
            ... A copy.
        """
        return self._queue(SIDE_BUY, count)

    def asks(self, count: int | None = None) -> NDArray[np.void]:
        """Return the asks, as `bids` does the bids."""
        return self._queue(SIDE_SELL, count)

    def bid_levels(self, count: int | None = None) -> NDArray[np.void]:
        """Return the total of the bids at each price, the best price first.

        Parameters
        ----------
        count : int, optional
            Return at most this many prices; default all.

        Returns
        -------
        numpy.ndarray
            Shape (n,), fields price, quantity (float64), orders (int64). A copy.
        """
        return self._levels(SIDE_BUY, count)

    def ask_levels(self, count: int | None = None) -> NDArray[np.void]:
        """Return the total of the asks at each price, as `bid_levels` does for bids."""
        return self._levels(SIDE_SELL, count)

    def place(self, order_id: str | bytes | int) -> OrderPlace:
        """Return an order's place in its queue.

        Parameters
        ----------
        order_id : str, bytes or int
            As published, or as `bids` and `asks` have it.

        Raises
        ------
        KeyError
            No such order rests.
        """
        cdef const Order* own
        cdef const Order* row
        cdef uint32_t i, before = 0
        cdef double quantity = 0
        place = self._places.get(_name(order_id))
        if place is None:
            raise KeyError(f"no order {order_id!r} among {self._count:,}")
        own = self._rows + <uint32_t> place
        for i in range(self._count):
            row = self._rows + i
            if row.side == own.side and row.price == own.price and row.priority < own.priority:
                before += 1
                quantity += row.quantity
        return OrderPlace(
            "bid" if own.side == SIDE_BUY else "ask", own.price, own.quantity, before, quantity)

    cdef _queue(self, int side, object count):
        rows = np.empty(self._count, ORDER)
        cdef uint8_t[::1] into = rows.view(np.uint8)
        if self._count:
            memcpy(&into[0], self._rows, self._count * sizeof(Order))
        rows = rows[rows["side"] == side]
        price = -rows["price"] if side == SIDE_BUY else rows["price"]
        return rows[np.lexsort((rows["priority"], price))][:count]

    cdef _levels(self, int side, object count):
        rows = self._queue(side, None)
        price, first, orders = np.unique(
            -rows["price"] if side == SIDE_BUY else rows["price"], return_index=True,
            return_counts=True)
        found = np.empty(
            len(price), [("price", np.float64), ("quantity", np.float64), ("orders", np.int64)])
        found["price"] = rows["price"][first]
        found["quantity"] = np.add.reduceat(rows["quantity"], first) if len(first) else 0
        found["orders"] = orders
        return found[:count]

    def __repr__(self) -> str:
        return f"<OrderQueues: {self._count} orders, {'STALE' if self.stale else 'sound'}>"


cdef bytes _id(const Order* row):
    cdef int size = 0
    while size < SIZE_ORDER_ID and row.order_id[size]:
        size += 1
    return PyBytes_FromStringAndSize(row.order_id, size)


cdef bytes _name(object order_id):
    return bytes(order_id) if isinstance(order_id, bytes) else str(order_id).encode()
