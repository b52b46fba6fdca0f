"""The directory of a store, found by its name."""

import pytest

from udpfast.archive.bus_files import named_store, note_store, stored_journal


@pytest.fixture(autouse=True)
def roots(tmp_path, monkeypatch):
    """Keep instances and journals below a directory of the test."""
    for name, setting in (("shm", "UDPFAST_SHM"), ("journals", "UDPFAST_JOURNALS")):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(setting, str(tmp_path / name))


def test_store_of_a_feed_that_keeps_it_elsewhere_is_found_by_the_feed_s_name(tmp_path):
    store, instance = tmp_path / "elsewhere", tmp_path / "shm" / "feed"
    store.mkdir(mode=0o700)
    instance.mkdir(mode=0o700)
    with pytest.raises(FileNotFoundError, match="no such store"):
        named_store("feed")
    note_store(instance, store)
    assert named_store("feed") == stored_journal("store:feed") == store
    store.rmdir()
    with pytest.raises(FileNotFoundError, match="no such store"):
        named_store("feed")


def test_store_below_the_journals_comes_first(tmp_path):
    for path in (tmp_path / "journals" / "feed", tmp_path / "shm" / "feed"):
        path.mkdir(mode=0o700)
    note_store(tmp_path / "shm" / "feed", tmp_path / "elsewhere")
    assert named_store("feed") == tmp_path / "journals" / "feed"


@pytest.mark.parametrize("address", ["feed", "journal:feed"])
def test_journal_is_found_by_its_name_and_by_the_address_of_a_reader(tmp_path, address):
    with pytest.raises(FileNotFoundError, match="no such journal"):
        stored_journal(address)
    (tmp_path / "journals" / "feed").mkdir(mode=0o700)
    assert stored_journal(address) == tmp_path / "journals" / "feed"
