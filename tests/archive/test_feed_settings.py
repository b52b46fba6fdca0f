"""The settings that are kept beside a log are read back unchanged."""

import pytest

from udpfast.archive.feed_settings import copy_feed, read_feed, write_feed
from udpfast.config import parse_feed
from udpfast.errors import FormatError


def test_feed_is_read_back_as_it_was_written(tmp_path):
    lines = [{"name": "A", "address": "239.1.2.3:9001", "senders": ["10.0.0.1"]}]
    config = parse_feed({"name": "x", "incremental": {"lines": lines}, "agent": {"core": 1}})
    write_feed(config, tmp_path)
    (tmp_path / "other").mkdir()
    copy_feed(tmp_path, tmp_path / "other")
    assert read_feed(tmp_path / "other") == config
    assert (tmp_path / "feed.json").stat().st_mode & 0o777 == 0o600


def test_feed_that_is_not_there_is_none(tmp_path):
    copy_feed(tmp_path / "nothing", tmp_path)
    assert read_feed(tmp_path) is None


def test_feed_of_other_settings_is_refused(tmp_path):
    (tmp_path / "feed.json").write_text('{"name": 7}')
    with pytest.raises(FormatError, match="expected the settings of a feed"):
        read_feed(tmp_path)
