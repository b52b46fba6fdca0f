"""`udpfast wire`: its options, its text, and what it serves while it runs."""

import errno
import json
import os
import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.full_disk import full_disk
from tests.waiting import wait_until
from udpfast.cli.main import cli
from udpfast.cli.wire_metrics import _HEARD, _SENT, receiver_families, sender_families
from udpfast.cli.wire_options import was_shown
from udpfast.cli.wire_send import parse_lines
from udpfast.core import core_number
from udpfast.core.endpoint import endpoint_text
from udpfast.errors import ConfigError, UdpfastError
from udpfast.net.line import LineAddress
from udpfast.probe import Receiver, Result, Sender


@pytest.mark.parametrize(
    ("listener", "lines", "expected"),
    [
        ("10.0.0.1", None, {"line": LineAddress("10.0.0.1:7007")}),
        ("10.0.0.1:99", None, {"line": LineAddress("10.0.0.1:99")}),
        ("::1", None, {"line": LineAddress("[::1]:7007")}),
        ("[fd00:3::2]", None, {"line": LineAddress("[fd00:3::2]:7007")}),
        ("[fd00:3::2]:9", "A=@[::1]", {"A": LineAddress("[::1]:7007")}),
        (
            "10.0.0.1",
            "microwave=eth1, fibre=eth2@10.1.0.1:5, other=@10.2.0.1,rest=",
            {
                "microwave": LineAddress("10.0.0.1:7007", "eth1"),
                "fibre": LineAddress("10.1.0.1:5", "eth2"),
                "other": LineAddress("10.2.0.1:7007"),
                "rest": LineAddress("10.0.0.1:7007"),
            },
        ),
    ],
)
def test_lines_are_read(listener: str, lines: str | None, expected: dict[str, LineAddress]) -> None:
    assert parse_lines(listener, lines) == expected


@pytest.mark.parametrize(
    ("listener", "lines"),
    [("host", None), ("10.0.0.1", "microwave"), ("10.0.0.1", "a=,a="), ("10.0.0.1", "=eth0"),
     ("10.0.0.1", "a=@nowhere"), ("10.0.0.1:70000", None)],
)  # fmt: skip
def test_lines_that_cannot_be_are_refused(listener: str, lines: str | None) -> None:
    with pytest.raises(ConfigError):
        parse_lines(listener, lines)


def test_help_and_the_other_package_of_this_name_say_which_package_measures() -> None:
    import udpfast.wire

    assert "udpfast.probe" in CliRunner().invoke(cli, ["wire", "--help"]).stdout
    assert "udpfast.probe" in (udpfast.wire.__doc__ or "")


def test_send_without_a_listener_says_what_to_start() -> None:
    ran = CliRunner().invoke(cli, ["wire", "send", "127.0.0.1:9", "--wait", "0.1"])
    assert "udpfast wire listen" in str(ran.exception)


def test_core_that_this_host_lacks_is_refused_at_both_ends() -> None:
    for verb in (["listen", "127.0.0.1:0"], ["send", "127.0.0.1:9"]):
        ran = CliRunner().invoke(cli, ["wire", *verb, "--core", "9999"])
        assert isinstance(ran.exception, ConfigError)
        assert re.match("core: expected a core of this host, 0 to ", str(ran.exception))


def test_core_that_is_offline_or_of_another_cpuset_is_refused_at_both_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_number, "cores_allowed", lambda: [7000])
    for verb in (["listen", "127.0.0.1:0"], ["send", "127.0.0.1:9"]):
        ran = CliRunner().invoke(cli, ["wire", *verb, "--core", "0"])
        assert isinstance(ran.exception, ConfigError)
        assert "this process's cpuset has: 7000; found 0" in str(ran.exception)


def test_listener_refuses_an_address_that_is_given_twice() -> None:
    words = ["wire", "listen", "[::1]", "127.0.0.1", "::1"]
    found = CliRunner().invoke(cli, words)
    assert found.exception is not None
    assert "expected different addresses, found [::1]:7007 twice" in str(found.exception)
    with Receiver(["127.0.0.1:0", "127.0.0.1:0"]) as receiver:  # the kernel chooses two ports
        assert len(set(receiver.addresses)) == 2


def test_listener_waits_for_a_sender_no_longer_than_it_is_told() -> None:
    words = ["wire", "listen", "127.0.0.1:0", "--sessions", "1", "--wait", "0.2"]
    found = CliRunner().invoke(cli, words)
    assert isinstance(found.exception, UdpfastError)
    assert "expected a sender within 0.2 s, found none at 127.0.0.1:" in str(found.exception)
    assert "is `udpfast wire send` running" in str(found.exception)


def test_listener_waits_anew_behind_each_session() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = endpoint_text(*free.getsockname())
    # A session that takes longer than the wait is no wait.
    with Sender({"A": address}, rate_per_s=100, seconds=1.5, spin=False) as sender:
        thread = threading.Thread(target=sender.run)
        thread.start()
        words = ["wire", "listen", address, "--sessions", "2", "--wait", "1", "--json"]
        found = CliRunner().invoke(cli, [*words, "--idle", "sleep"])
        thread.join()
    assert isinstance(found.exception, UdpfastError)
    assert "expected a sender within 1 s" in str(found.exception)
    (heard,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert heard["lines"]["A"]["arrived"] == 150
    assert heard["greetings_strange"] == 0


def test_listener_that_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Receiver) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    monkeypatch.setattr(Receiver, "_reflect", fails)
    ran = CliRunner().invoke(cli, ["wire", "listen", "127.0.0.1:0"])
    assert (type(ran.exception), ran.exit_code) == (UdpfastError, 1)
    assert str(ran.exception) == "the listener failed: Invalid argument"


def test_end_that_is_told_to_stop_while_it_is_made_ends_in_good_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(number: int, _: object) -> None:
        raise AssertionError(f"ended by signal {number}")

    before = signal.signal(signal.SIGTERM, killed)
    try:
        for end, argument, code in ((Receiver, "listen", 0), (Sender, "send", 1)):
            make = end.__init__

            def made(self: Any, *args: Any, make: Any = make, **more: Any) -> None:
                make(self, *args, **more)
                signal.raise_signal(signal.SIGTERM)

            with monkeypatch.context() as patch:
                patch.setattr(end, "__init__", made)
                ran = CliRunner().invoke(cli, ["wire", argument, "127.0.0.1:0"])
            assert (type(ran.exception), ran.exit_code) == (
                SystemExit if code else type(None),
                code,
            )
    finally:
        signal.signal(signal.SIGTERM, before)


def test_send_prints_one_json_object() -> None:
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.2", "--idle", "sleep", "--json", "--lines", "a=,b="]
        ran = CliRunner().invoke(cli, ["wire", "send", receiver.addresses[0], *asked])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["lines"]["a"]["returned"] == found["lines"]["b"]["returned"] == 200
    assert found["races"][0]["way"] == "out"


def test_send_refuses_a_file_that_cannot_be_written_before_the_run(tmp_path: Path) -> None:
    for option in ("--report", "--arrays"):
        path = tmp_path / "nowhere" / "x"
        ran = CliRunner().invoke(cli, ["wire", "send", "127.0.0.1:9", option, str(path)])
        assert (ran.exit_code, "there is no directory" in ran.stderr) == (2, True)


def test_send_refuses_one_file_for_page_and_arrays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("z")
    for other in ("z", "link"):
        files = ["--report", str(tmp_path / "z"), "--arrays", str(tmp_path / other)]
        ran = CliRunner().invoke(cli, ["wire", "send", "127.0.0.1:9", "--wait", "0", *files])
        assert isinstance(ran.exception, ConfigError)
        assert "--report and --arrays: expected two files, found " in str(ran.exception)


def test_result_is_printed_though_a_file_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(result: Result, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Result, "write_arrays", full)
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.1", "--idle", "sleep", "--json"]
        arrays = ["--arrays", str(tmp_path / "x.npz")]
        ran = CliRunner().invoke(cli, ["wire", "send", receiver.addresses[0], *asked, *arrays])
    assert ran.exit_code == 1
    assert json.loads(ran.stdout)["probes"] == 100
    assert "x.npz was not written: No space left on device" in ran.stderr


def test_page_that_the_disk_has_no_room_for_leaves_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bokeh")
    page, arrays = tmp_path / "x.html", tmp_path / "x.npz"
    page.write_text("before")
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        lines: dict[str, LineAddress | str] = {"a": receiver.addresses[0]}
        with Sender(lines, rate_per_s=1000, seconds=0.1, spin=False) as sender:
            result = sender.run()
    with full_disk(1000):
        shown = was_shown("", (result.write_page, page), (result.write_arrays, arrays))
    assert not shown
    said = capsys.readouterr().err
    assert all(f"{path} was not written: File too large" in said for path in (page, arrays))
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("x.html", b"before")
    ]


def test_files_are_written_though_the_output_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        for _session in range(2):
            path.unlink(missing_ok=True)
            assert not was_shown("text" * 5000, (lambda each: each.write_text("page"), path))
            assert path.read_text() == "page"
            said = "udpfast: standard output was not written: No space left on device\n"
            assert capsys.readouterr().err == said
        # Nothing is left that would fail again when the file is closed.


def test_files_are_written_though_nobody_reads_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    path = tmp_path / "x.npz"
    output = os.fdopen(theirs, "w")
    monkeypatch.setattr("sys.stdout", output)
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.1", "--idle", "sleep", "--arrays", str(path)]
        with pytest.raises(SystemExit) as ended:
            cli.main(["wire", "send", receiver.addresses[0], *asked], standalone_mode=False)
    output.close()
    assert (ended.value.code, path.exists()) == (141, True)


def test_send_names_a_line_by_which_no_listener_answers() -> None:
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.2", "--idle", "sleep", "--lines", "a=,b=@127.0.0.1:9"]
        ran = CliRunner().invoke(cli, ["wire", "send", receiver.addresses[0], *asked])
    assert (ran.exit_code, "no answer by a " in ran.stderr) == (0, False)
    assert "no answer by b from 127.0.0.1:9: its probes are sent all the same" in ran.stderr


def test_send_calls_each_way_by_one_name() -> None:
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.2", "--idle", "sleep", "--lines", "a=,b="]
        ran = CliRunner().invoke(cli, ["wire", "send", receiver.addresses[0], *asked])
    assert ran.exit_code == 0, ran.output
    for words in ("a     way out ", "a    way back ", "lost, way out", "lost, way back"):
        assert " ".join(words.split()) in " ".join(ran.stdout.split())
    assert re.search(r"^way out: a was first ", ran.stdout, re.MULTILINE)
    assert not re.search(r"(?<!way )\b(out|back)\b", ran.stdout)


def test_metrics_of_both_ends_are_those_of_the_run() -> None:
    pytest.importorskip("prometheus_client")
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        lines: dict[str, LineAddress | str] = {"microwave": receiver.addresses[0]}
        with Sender(lines, rate_per_s=1000, seconds=600, spin=False) as sender:
            sender.connect()
            thread = threading.Thread(target=sender.run)
            thread.start()
            wait_until(lambda: sender.live()["microwave"]["echoes"] >= 100)
            ours, theirs = sender_families(sender).made, receiver_families(receiver).made
            sender.stop()
            thread.join()
    values = {sample.name: sample for family in ours.values() for sample in family.samples}
    assert values["udpfast_wire_echoes_total"].value >= 100
    assert values["udpfast_wire_echoes_total"].labels == {"line": "microwave"}
    assert values["udpfast_wire_round_trip_seconds_count"].value >= 100
    # Whether a probe arrived twice, or its echo came twice, the listener alone knows.
    assert "udpfast_wire_out_duplicates_total" not in values
    assert "udpfast_wire_echoes_repeated_total" in values
    heard = {sample.name: sample.value for family in theirs.values() for sample in family.samples}
    assert heard["udpfast_wire_arrived_total"] >= 100
    assert heard["udpfast_wire_sessions_total"] == 1
    # A probe that arrives three times has two of them.
    meant = theirs["udpfast_wire_out_duplicates"].documentation
    assert meant == "Copies of probes beyond the first."


def test_metrics_of_a_session_stay_until_the_next_one() -> None:
    pytest.importorskip("prometheus_client")

    def arrived() -> dict[str, float]:
        family = receiver_families(receiver).made["udpfast_wire_arrived"]
        return {sample.labels["peer"]: sample.value for sample in family.samples}

    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        lines: dict[str, LineAddress | str] = {"a": receiver.addresses[0]}
        with Sender(lines, rate_per_s=1000, seconds=0.1, spin=False) as sender:
            sender.run()
        assert receiver.wait(10) is not None
        first = arrived()
        assert list(first.values()) == [100]
        trips = receiver_families(receiver).made["udpfast_wire_out_seconds"].samples
        assert [each.value for each in trips if each.name.endswith("_count")] == [100]
        with Sender(lines, rate_per_s=1000, seconds=0.1, spin=False) as sender:
            sender.connect()
            assert set(arrived()).isdisjoint(first)


def test_metric_of_both_ends_means_one_thing() -> None:
    sent, heard = dict(_SENT.values()), dict(_HEARD.values())
    shared = sent.keys() & heard.keys()
    assert shared == {"wire_strangers", "wire_malformed", "wire_kernel_drops"}
    assert all(sent[name] == heard[name] for name in shared)


def test_metrics_are_served_while_it_runs() -> None:
    pytest.importorskip("prometheus_client")
    from udpfast.cli.wire_metrics import serve_metrics
    from udpfast.monitor.families import Families

    families = Families()
    families.counter("wire_probes", "probes", 5, line="a")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("click.echo", lambda text, err: said.append(text))
        with serve_metrics("127.0.0.1:0", lambda: families):
            address = re.search(r"http://\S+", said[0])
            assert address is not None
            with urllib.request.urlopen(address[0]) as answer:
                assert b'udpfast_wire_probes_total{line="a"} 5.0' in answer.read()
