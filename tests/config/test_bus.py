"""bus.toml: read, or refused with what was expected and what was found."""

from pathlib import Path

import pytest

from udpfast.config.bus import BusConfig, bus_keys, load_bus, parse_bus
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
        ({"sequencer": ["S", "one"]}, r"orders.sequencer: expected one host, found \['S', 'one'\]"),
        ({"keep_for": ["x"]}, r"orders.keep_for: expected some of S, one, two, found 'x'"),
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
    hosts = {"S": "127.0.0.1", "one": "127.0.0.1"}
    store = {"sequencer": "S", "replicas": ["one"], "port": 9400}
    with pytest.raises(ConfigError, match=r"of their own, found 127\.0\.0\.1 of S and one"):
        parse_bus({"hosts": hosts, "stores": {"a": store}})


def test_error_names_the_store_that_it_is_about() -> None:
    good, bad = {"sequencer": "S", "port": 9400}, {"sequencer": "S", "port": 70_000}
    for stores in ({"a": good, "b": bad}, {"a": bad, "b": good}):
        (name,) = (name for name, store in stores.items() if store is bad)
        with pytest.raises(ConfigError, match=rf"stores\.{name}\.port: .*, found 70000"):
            parse_bus({"hosts": HOSTS, "stores": stores})
    stores = {"a": {**good, "sources": {"one": "two", "two": 3}}}
    with pytest.raises(ConfigError, match=r"stores\.a\.sources\.two: expected `str`, found 3"):
        parse_bus({"hosts": HOSTS, "stores": stores})


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ({"idle": "never"}, r"links.idle: .*'never'"),
        ({"cores": {"x": [1]}}, r"links.cores: expected some of S, one, two, found 'x'"),
        ({"cores": {"S": [-1]}}, r"links.cores"),
        ({"cores": {"S": 2}}, r"links.cores"),
    ],
)
def test_threads_of_links_wrong_are_refused(links, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_bus(
            {
                "hosts": HOSTS,
                "links": links,
                "stores": {"a": {"sequencer": "S", "port": 1}},
            },
            "bus.toml",
        )


def written(tmp_path: Path, keys: str, mode: int = 0o600) -> BusConfig:
    path = tmp_path / "bus.key"
    path.write_text(keys)
    path.chmod(mode)
    (tmp_path / "bus.toml").write_text(
        'key_file = "bus.key"\n[hosts]\nS = "127.0.0.1"\n'
        '[stores.orders]\nsequencer = "S"\nport = 9400\n'
    )
    return load_bus(tmp_path / "bus.toml")


def test_keys_lie_beside_the_file_that_names_them(tmp_path: Path) -> None:
    config = written(tmp_path, "ab" * 32 + "\n" + "cd" * 40 + "\n")
    assert bus_keys(config) == [b"\xab" * 32, b"\xcd" * 40]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"only its owner can read, found .* with mode {mode:o}"):
        bus_keys(written(tmp_path, "ab" * 32, mode))


@pytest.mark.parametrize("keys", ["", "ab", "zz" * 32, " ".join(["ab" * 32] * 3)])
def test_keys_that_are_none_are_refused(tmp_path: Path, keys: str) -> None:
    with pytest.raises(ConfigError, match="expected one or two lines of 64 or more hexadecimal"):
        bus_keys(written(tmp_path, keys))


def test_key_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, "ab" * 32)
    (tmp_path / "bus.key").unlink()
    with pytest.raises(ConfigError, match=r"key_file: expected a file that can be read.*bus\.key"):
        bus_keys(config)
