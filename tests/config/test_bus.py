"""bus.toml: read, or refused with what was expected and what was found."""

import pytest

from udpfast.config.bus import parse_bus
from udpfast.errors import ConfigError

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3"}


def bus(**store):
    store = {"sequencer": "S", "replicas": ["one", "two"], "port": 9400, **store}
    return parse_bus({"hosts": HOSTS, "stores": {"orders": store}}, "bus.toml")


def test_store_says_who_copies_from_whom() -> None:
    store = bus(sources={"two": "one"}).stores["orders"]
    assert store.hosts == ("S", "one", "two")
    assert store.standbys("S") == ("one",)
    assert store.standbys("one") == ("S", "two")
    assert store.followers("one") == ("two",)
    assert store.source("two") == "one"


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ({"sequencer": "x"}, r"orders.sequencer: expected one of S, one, two, found 'x'"),
        ({"replicas": ["one", "x"]}, r"orders.replicas: expected one of .*, found 'x'"),
        ({"replicas": ["one", "S"]}, r"orders.replicas: expected each host once"),
        ({"sources": {"one": "S"}}, r"orders.sources: expected replicas, found 'one' copying"),
        ({"sources": {"one": "two", "two": "one"}}, r"expected no loop, found one from two"),
        ({"gate": 3}, r"orders.gate: expected at most 2"),
        ({"port": 0}, r"port"),
        ({"gates": 1}, r"gates"),
    ],
)
def test_store_wrong_is_refused(store, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bus(**store)


def test_hosts_and_ports_must_be_addresses_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"hosts.S: expected an IP address, found 'here'"):
        parse_bus({"hosts": {"S": "here"}, "stores": {"a": {"sequencer": "S", "port": 1}}})
    stores = {name: {"sequencer": "S", "port": 9400} for name in "ab"}
    with pytest.raises(ConfigError, match=r"stores.b.port: expected one of its own, found 9400"):
        parse_bus({"hosts": HOSTS, "stores": stores})
