"""Programs of `udpfast lab`: their help, their exit codes, and how they run by seeds."""

import click
import pytest
from click.testing import CliRunner

from lab.main import PROGRAMS
from lab.program import by_seeds, program
from udpfast.cli.main import cli


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_of_a_program_has_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, ["lab", name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"      udpfast lab {name}" in result.output


def test_program_that_is_not_there_says_which_is_like_it() -> None:
    result = CliRunner().invoke(cli, ["lab", "conformence"])
    assert result.exit_code == 2
    assert "Did you mean 'conformance'?" in result.output


@pytest.mark.parametrize(("found", "code"), [(0, 0), ([], 0), (None, 0), (3, 1), (["no"], 1)])
def test_program_fails_if_its_function_found_something(found: object, code: int) -> None:
    def main() -> object:
        return found

    assert CliRunner().invoke(program(main), []).exit_code == code


def broken(seed: int) -> dict[str, int]:
    if seed == 9:
        raise AssertionError("two and two are five")
    if seed == 10:
        raise KeyError("gone")
    return {"records": seed}


def test_seed_that_fails_prints_the_command_that_repeats_it() -> None:
    command = by_seeds(__name__, broken, 5)
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(command, ["--seed", "7"])
    assert result.exit_code == 1
    repeat = "repeat: udpfast lab test-program --seeds 1 --seed 9"
    assert f"seed 9: two and two are five\n{repeat}" in result.output
    assert "seed 10: Traceback" in result.output
    assert result.output.endswith("5 seeds from 7, 2 failed, 26 records\n")
    assert CliRunner().invoke(command, ["--seeds", "3"]).exit_code == 0
