"""What a user's own module in Cython cimports, called without the GIL."""

import importlib
import os
from types import ModuleType

import numpy as np
import pytest

from tests.client.instance import Instance, small_image
from tests.client.test_image_join import ALWAYS
from tests.cython_module import compile_module
from tests.shared import ROOT
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import Kind
from udpfast.market.book import OrderBook
from udpfast.market.updates import BOOK, LEVEL

CYTHON = """\
from libc.stdint cimport int64_t, uint8_t

from udpfast.market.book cimport OrderBook, book_apply, book_room
from udpfast.market.state_bytes cimport StateEntry, StateHead
from udpfast.shm.image cimport ImageView, image_copy

from udpfast.market.state_bytes import ENTRY_HASH


def fill(const uint8_t[::1] payload, OrderBook book):
    cdef int64_t room
    with nogil:
        room = book_room(&payload[0], payload.shape[0])
        if room >= 0 and book.reserve(room) == 0:
            book_apply(&book.book, &payload[0], True)


def look(path):
    cdef ImageView view = ImageView.attach(path, ENTRY_HASH)
    cdef uint8_t room[1 << 16]
    cdef int64_t size
    cdef unsigned int objects
    with view:
        with nogil:
            size = image_copy(&view.reader, 0, room, sizeof(room))
            objects = (<StateHead*> room).objects
            size = image_copy(&view.reader, 1, room, sizeof(room))
        return objects, (<StateEntry*> room).until, (<StateEntry*> room).values
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the user's module, compiled as users do."""
    folder = tmp_path_factory.mktemp("cython")
    compile_module(folder, "cimports", CYTHON, os.environ | {"PYTHONPATH": str(ROOT)})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return importlib.import_module("cimports")


def test_room_is_made_for_an_update(compiled: ModuleType) -> None:
    header, rows = np.zeros(1, BOOK), np.zeros(500, LEVEL)
    header["bid_count"] = header["row_count"] = len(rows)
    header["update_type"] = 2  # incremental
    rows["price"], rows["quantity"] = 1000.0 - np.arange(len(rows)), 1.0
    book = OrderBook()
    compiled.fill(header.tobytes() + rows.tobytes(), book)
    assert (len(book.bids()), book.levels_refused) == (500, 0)


def test_entry_of_an_image_is_copied(compiled: ModuleType, instance: Instance) -> None:
    instance.append(Kind.SESSION, bytes(48), session=1)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)])
    instance.ring.flush()
    keeper = ImageKeeper(small_image(objects=8), instance.directory)
    keeper.on_start()
    while keeper.work(ALWAYS):
        pass
    assert compiled.look(instance.directory) == (1, 64 + 48 + 1, 1)  # behind SESSION
