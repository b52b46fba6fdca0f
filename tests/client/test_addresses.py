"""Suggestions for an invalid address."""

from pathlib import Path

import pytest

from tests.client.instance import Instance
from udpfast import ConfigError, Reader
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with the feed `deribit`, the journal `binance`, and the file of the feed."""
    root, journals = tmp_path / "shm", tmp_path / "journals"
    for directory in (root, journals):
        directory.mkdir(mode=0o700)
    monkeypatch.setenv("UDPFAST_SHM", str(root))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(journals))
    Instance(root / "deribit")
    Journal.open(journals / "binance", LAYOUTS, name="binance", segment_bytes=1 << 18).close()
    (tmp_path / "feed.toml").write_text('name = "deribit"\n')
    (tmp_path / "broken.toml").write_text("name = \n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("feed.toml", "did you mean 'ring:deribit', the feed of feed.toml?"),
        ("./feed.toml", "did you mean 'ring:deribit', the feed of ./feed.toml?"),
        (
            "broken.toml",
            "broken.toml is a feed's file: the address is 'ring:' and the `name` in it",
        ),
        ("other.toml", "other.toml is a feed's file: the address is 'ring:' and the `name` in it"),
        ("deribit", "did you mean 'ring:deribit'?"),
        ("deribti", "did you mean 'ring:deribit'?"),
        ("binance", "did you mean 'journal:binance'?"),
        ("binnance", "did you mean 'journal:binance'?"),
        ("./journals/binance", "did you mean 'journal:./journals/binance'?"),
        ("./shm/deribit", "did you mean 'ring:./shm/deribit'?"),
        ("bitmex", "did you mean 'ring:bitmex'?"),
    ],
)
def test_address_without_a_prefix_is_told_what_it_may_be(
    host: Path, address: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Reader(address)
    assert str(caught.value).endswith(f"was {address!r}; {said}")


def test_misspelt_instance_is_told_the_right_one(host: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no ring 'deribti'; did you mean 'deribit'\?"):
        Reader("ring:deribti")
    with pytest.raises(FileNotFoundError) as caught:
        Reader("ring:bitmex")
    assert "did you mean" not in str(caught.value)


def test_misspelt_prefix_is_told_the_right_one(host: Path) -> None:
    with pytest.raises(ConfigError, match=r"was 'rng:deribit'; did you mean 'ring:deribit'\?"):
        Reader("rng:deribit")


def test_misspelt_journal_is_told_the_right_one(host: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such journal; did you mean 'binance'\?"):
        Reader("journal:binnance")


def test_store_that_is_not_there_is_called_a_store(host: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such store; .*\(store\.directory\)"):
        Reader("store:nix")
