"""Every option of every verb with values at the edges: understood as asked for, or one line."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lab.main import PROGRAMS
from tests.shared import ROOT
from udpfast.cli.main import VERBS, cli
from udpfast.cli.options import OutputFile
from udpfast.core.layout import Kind
from udpfast.errors import UdpfastError
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

VALUES = [
    "", " ", "0", "-0", "-1", "1", "65535", "65536", "99999", "9" * 5000, "1e400", "-1e400", "nan",
    "inf", "-inf", "1_0", "\u0661", "0x10", "1.5", ".", "..", "/", "\x1b[31m", "\udc80",
    "a" * 5000, "none", "NONE", "-x", "--", "127.0.0.1:99999", "sha256:", "2026-13-45T00:00Z",
]  # fmt: skip


def commands():
    """Return the command of each verb, and of each program of `lab`."""
    with click.Context(cli) as context:
        found = {verb: cli.get_command(context, verb) for verb in VERBS}
        return found | {name: found["lab"].get_command(context, name) for name in PROGRAMS}


def parameters():
    """Return each verb's command with each of its options and arguments."""
    return [
        pytest.param(command, parameter, id=f"{verb} {parameter.name}")
        for verb, command in commands().items()
        for parameter in command.params
    ]


@pytest.mark.parametrize(("command", "parameter"), parameters())
def test_option_is_as_asked_for_or_refused_in_one_line(command, parameter):
    limits = [getattr(parameter.type, name, None) for name in ("min", "max")]
    edges = [str(limit + step) for limit in limits if limit is not None for step in (-1, 0, 1)]
    for value in [*VALUES, *edges]:
        several = parameter.multiple or parameter.nargs != 1
        try:
            found = parameter.type_cast_value(
                click.Context(command), (value,) if several else value
            )
        except click.ClickException as error:
            assert error.exit_code == 2
            continue
        for each in found if several else (found,):
            if isinstance(each, int | float) and not isinstance(each, bool):
                assert math.isfinite(each)
                assert each == type(each)(value)


def test_file_that_cannot_be_written_is_refused_before_the_run(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    kind = OutputFile()
    for path in (there, tmp_path / "new", "new"):
        assert kind.convert(str(path), None, None) == Path(path)
    wrong = [tmp_path, tmp_path / "nowhere" / "x", there / "x", tmp_path / ("x" * 300)]
    for path in (*wrong, tmp_path / "link"):
        with pytest.raises(click.BadParameter):
            kind.convert(str(path), None, None)
    monkeypatch.setattr(os, "access", lambda path, how: False)
    for path in (there, tmp_path / "new"):
        with pytest.raises(click.BadParameter, match="may not be written"):
            kind.convert(str(path), None, None)
    assert there.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "link", there]


def test_what_a_verb_writes_at_its_end_is_an_output_file():
    found = {
        f"{verb} {parameter.name}"
        for verb in ("demo", "send", "replay")
        for parameter in commands()[verb].params
        if isinstance(parameter.type, OutputFile)
    }
    assert found == {"demo books_path", "send books", "replay books_path"}


#: A command in a block or between backticks: its words up to what the shell takes for itself.
CODE = re.compile(r"^ *```(?:sh)?\n(.*?)^ *```|`([^`\n]+)`", re.M | re.S)
SHOWN = re.compile(r"\budpfast((?: +[^\s`|;&>#]+)+)")


def wrong_options(text):
    """Return the commands of a page that name a verb's option, or a part of it, that is not."""
    code = "\n".join(block or span for block, span in CODE.findall(text.replace("\\\n", " ")))
    found = []
    for shown in SHOWN.findall(code):
        words, command = shown.split(), cli
        context = click.Context(command)
        while isinstance(command, click.Group) and words and re.match("[a-z]", words[0]):
            command = command.get_command(context, words.pop(0))
        if command is None or command.context_settings.get("ignore_unknown_options"):
            found += [shown] if command is None and shown.split()[0] in VERBS else []
            continue
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        given = {re.split("[=,]", word)[0] for word in words if re.match("--?[a-z]", word)}
        found += [shown] if given - known - {"-h", "--help", "--version"} else []
    return found


def test_options_that_pages_show_are_there():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    wrong = {page.name: wrong_options(page.read_text()) for page in pages}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```\nudpfast stat NAME --losses  # --none\n```\n", False),
        ("```\nudpfast stat tutorial --nosuch\n```\n", True),
        ("a stop (`udpfast run x.toml --quiet`) as udpfast --nosuch", False),
        ("`udpfast bus run bus.toml --nosuch`", True),
        ("```sh\nudpfast bus nosuch bus.toml\n```\n", True),
        ("```sh\nudpfast send x \\\n  --nosuch\n```\n", True),
    ],
)
def test_option_that_is_not_there_is_found(text, wrong):
    assert bool(wrong_options(text)) == wrong


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "x.pcap", "--from", "9" * 5000],
        ["replay", "{empty}", "--from", "9" * 5000],
        ["replay", "{empty}", "--until", "-1" * 20],
        ["replay", "{empty}", "--from", "\u0661"],
        ["replay", "{empty}", "--expect", "sha256:x"],
        ["replay", ".."],
        ["record", ".."],
        ["record", "."],
        ["stat", ".."],
        ["tail", "a b"],
        ["verify", ".."],
        ["run", "{empty}"],
        ["check", "{empty}"],
        ["check", "/dev/zero"],
        ["send", "--simulate", "--incremental", "127.0.0.1:99999"],
        ["send", "--simulate", "--incremental", "127.0.0.1:0"],
        ["send", "--simulate", "--incremental", "127.0.0.1:" + "9" * 5000],
        ["send", "--simulate", "--incremental", "127.0.0.1:9001", "--interface", "a b"],
    ],
)
def test_verb_refuses_what_it_cannot_mean_in_words(words, tmp_path):
    found = CliRunner().invoke(cli, [word.format(empty=tmp_path) for word in words])
    error = found.exception
    assert isinstance(error, SystemExit | UdpfastError | OSError), repr(error)
    assert found.exit_code != 0
    assert isinstance(error, SystemExit) or str(error)


@pytest.mark.parametrize("verb", ["send", "replay"])
def test_help_has_every_option_under_one_heading(verb):
    with click.Context(cli) as context:
        command = cli.get_command(context, verb)
    grouped = [name for names in command.groups.values() for name in names]
    options = [each.name for each in command.params if isinstance(each, click.Option)]
    assert sorted(grouped) == sorted(options)
    text = CliRunner().invoke(cli, [verb, "--help"], prog_name="udpfast").output
    assert all(f"\n{heading}:\n" in text for heading in (*command.groups, "Other options"))
    assert text.count("--help") == 1


def test_no_help_text_stands_where_that_of_another_option_should():
    """It names the words of its own option if it names those of a sibling; none is had twice."""
    owners: dict[str, set[str]] = {}
    for command in commands().values():
        words_of = {each.name: set(each.name.split("_")) for each in command.params}
        for option in command.params:
            text = getattr(option, "help", None)
            if not text:
                continue
            owners.setdefault(text, set()).add(option.name)
            words = set(re.findall(r"[a-z]+", text.lower()))
            others = [
                name
                for name, of in words_of.items()
                if name != option.name and len(of) > 1 and of <= words
            ]
            assert not others or words_of[option.name] & words, (command.name, option.name, text)
    assert not {text: names for text, names in owners.items() if len(names) > 1}


@pytest.mark.parametrize("verb", ["stat", "tail"])
def test_shell_completes_names_of_instances(verb, tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    for name in ("deribit", "derby", "cme"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "counters").touch()
    (tmp_path / "derived").mkdir()  # of a start that was refused
    environment = {
        "_UDPFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": f"udpfast {verb} der",
        "COMP_CWORD": "2",
    }
    result = CliRunner().invoke(cli, prog_name="udpfast", env=environment)
    assert result.output.split() == ["plain,derby", "plain,deribit"]
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "absent"))
    assert CliRunner().invoke(cli, prog_name="udpfast", env=environment).output.strip() == ""


def test_tune_is_the_script_by_another_name():
    shown = CliRunner().invoke(cli, ["tune", "boot-line", "--rx-cpus", "0"])
    assert shown.exit_code == 0, shown.output
    assert "isolcpus" in shown.output
    refused = CliRunner().invoke(cli, ["tune", "--rx-cpus", "3-2"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("udpfast tune: --rx-cpus: expected cores")
    assert "udpfast tune [check" in CliRunner().invoke(cli, ["tune", "--help"]).output


@pytest.mark.parametrize("option", ["--incremental", "--snapshot"])
def test_several_ports_in_one_option_are_refused_with_the_right_form(option: str) -> None:
    result = CliRunner().invoke(cli, ["replay", "x.pcap", option, "14314, 15314"])
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "expected one port, found '14314, 15314': repeat the option" in words
    assert f"{option} 14314 {option} 15314" in words


def test_output_that_is_closed_early_ends_a_command_as_it_ends_others(tmp_path: Path) -> None:
    """`udpfast verify NAME | head -0`: 1 would say that the journal is damaged."""
    with Journal.open(tmp_path / "j", LAYOUTS, name="j", segment_bytes=1 << 18) as journal:
        journal.append(Kind.MESSAGE, b"x", published_ns=1)
    command = [sys.executable, "-m", "udpfast.cli.main", "verify", str(tmp_path / "j")]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""
    reading, writing = os.pipe()  # 2>&1 | head -0
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=writing, text=True, check=False)
    os.close(writing)
    assert done.returncode == 141
