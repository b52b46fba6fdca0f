"""What a full table says."""

from udpfast.monitor.limits import reached_limits


def test_limit_that_was_reached_is_said_with_its_setting() -> None:
    said = reached_limits({"names_full": 1_234, "objects_full": 0, "records": 5})
    assert list(said) == ["names_full"]
    assert said["names_full"].startswith("1,234 times a name had no room in the table")
    assert "raise ring.names" in said["names_full"]


def test_orders_without_room_are_said_with_their_setting() -> None:
    (sentence,) = reached_limits({"books_full": 12}).values()
    assert sentence.startswith("12 orders or levels had no room")
    assert "raise books.orders_max" in sentence


def test_feed_within_its_limits_says_nothing() -> None:
    assert reached_limits({"names_full": 0, "names_long": 0, "objects_full": 0}) == {}
