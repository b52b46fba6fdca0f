"""Preloaded stacks: found or refused; the user's settings have priority; states are verified."""

from pathlib import Path
from typing import get_args

import pytest

from tests.net.preload import build_stub, run_python
from udpfast.config.receive import BypassStack
from udpfast.errors import ConfigError
from udpfast.net.bypass import STACKS, State, environment_settings, inspect_bypass
from udpfast.net.bypass_launch import find_library, plan_launch

ELF = b"\x7fELF\x02" + bytes(59)

LOOK = """
from pathlib import Path
from udpfast.net.bypass import inspect_bypass
found = inspect_bypass({asked!r}, Path({root!r}))
print(found.stack, found.state.name, found.missing, found.text, sep="|")
"""


@pytest.fixture(scope="module", params=["onload", "vma", "xlio"])
def stub(request, tmp_path_factory):
    """Return a stack's name and its stub library."""
    return request.param, build_stub(request.param, tmp_path_factory.mktemp("stub"))


@pytest.fixture
def host(tmp_path):
    """Return a root directory without any stack, in which a process holds no device."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    fd = tmp_path / "proc/self/fd"
    fd.mkdir(parents=True)
    (fd / "3").symlink_to("socket:[77]")
    (tmp_path / "proc/self/maps").write_text("7f00-7f01 r-xp 0 08:01 9   /usr/lib/libc.so.6\n")
    return tmp_path


def load(host: Path, file: str, device: str = "") -> None:
    """Map a library in the process of `host`, and open a device."""
    with (host / "proc/self/maps").open("a") as maps:
        maps.write(f"7f02-7f03 r-xp 0 08:01 10   /usr/lib/{file}\n")
    if device:
        (host / "proc/self/fd/4").symlink_to(device)


def look(host: Path, asked: str, **environment: str) -> list[str]:
    result = run_python(LOOK.format(asked=asked, root=str(host)), **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().split("|")


def test_stacks_are_those_of_the_configuration() -> None:
    assert {"none", *STACKS} == set(get_args(BypassStack))
    assert [stack.number for stack in STACKS.values()] == [1, 2, 3]


def test_reasons_of_presets_are_complete() -> None:
    reasons = {preset.name: preset.reason for preset in STACKS["vma"].profile}
    assert reasons == {
        "VMA_SPEC": "as in the stack's own latency profile: it polls forever, on one thread, in "
        "huge pages"
    }


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_find_library_absent_names_places_and_remedy(stack, host) -> None:
    with pytest.raises(ConfigError) as refused:
        find_library(stack, "", {}, host)
    for words in (stack.library, "ldconfig", "/usr/lib64", stack.install, "--bypass-library"):
        assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_find_library_prefers_the_environment_then_the_cache_then_directories(host) -> None:
    stack = STACKS["vma"]
    usual = host / "usr/lib64/libvma.so.9"
    usual.write_bytes(ELF)
    assert find_library(stack, "", {}, host) == usual

    cached = host / "cached/libvma.so.9"
    cached.parent.mkdir()
    cached.write_bytes(ELF)
    ldconfig = host / "sbin/ldconfig"
    ldconfig.parent.mkdir()
    ldconfig.write_text(
        f"#!/bin/sh\necho '\tlibvmalloc.so (libc6) => {usual}'\n"
        f"echo '\tlibvma.so.9 (libc6,x86-64) => {cached}'\n"
    )
    ldconfig.chmod(0o755)
    assert find_library(stack, "", {}, host) == cached

    own = host / "own/libvma.so"
    own.parent.mkdir()
    own.write_bytes(ELF)
    assert find_library(stack, "", {"LD_LIBRARY_PATH": f"/none:{own.parent}"}, host) == own


def test_find_library_passes_over_what_ld_so_would_ignore(host) -> None:
    (host / "usr/lib64/libvma.so").write_text("INPUT(libvma.so.9)")
    (host / "usr/lib64/libvma.so.8").write_bytes(b"\x7fELF\x01" + bytes(59))  # of 32 bits
    right = host / "usr/lib64/libvma.so.9"
    right.write_bytes(ELF)
    assert find_library(STACKS["vma"], "", {}, host) == right


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.so", None, "No such file"),
        ("text.so", b"no library", "found another file"),
        ("a b.so", ELF, "without spaces"),
        ("a:b.so", ELF, "without spaces and colons"),
    ],
)
def test_find_library_explicit_path_wrong_is_refused(tmp_path, name, content, words) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        find_library(STACKS["onload"], str(path), {})


def test_plan_launch_prepends_and_sets_the_profile() -> None:
    before = {"LD_PRELOAD": "/mine.so", "PATH": "/bin"}
    launch = plan_launch(STACKS["onload"], Path("/x/libonload.so"), before, rcvbuf_bytes=1 << 26)
    assert launch.environment == {
        "PATH": "/bin",
        "LD_PRELOAD": "/x/libonload.so:/mine.so",
        "UDPFAST_BYPASS": "onload",
        "EF_POLL_USEC": "100000",
        "EF_UDP_RCVBUF": str(1 << 26),
    }
    assert before == {"LD_PRELOAD": "/mine.so", "PATH": "/bin"}
    assert len(launch.lines) == 3


@pytest.mark.parametrize(
    ("stack", "setting", "strict_setting"),
    [
        ("onload", ("EF_POLL_USEC", "100000"), ("EF_NO_FAIL", "0")),
        ("vma", ("VMA_SPEC", "latency"), ("VMA_EXCEPTION_HANDLING", "-2")),
        ("xlio", ("XLIO_SPEC", "latency"), ("XLIO_EXCEPTION_HANDLING", "-2")),
    ],
)
def test_plan_launch_users_own_settings_win_and_are_said(stack, setting, strict_setting) -> None:
    library = Path("/x.so")
    plain = plan_launch(STACKS[stack], library, {}).environment
    strict = plan_launch(STACKS[stack], library, {}, strict=True).environment
    assert plain.items() >= {setting}
    assert strict_setting[0] not in plain
    assert strict.items() >= {setting, strict_setting}

    own = {setting[0]: "mine", strict_setting[0]: "own"}
    launch = plan_launch(STACKS[stack], library, own, strict=True)
    assert launch.environment.items() >= own.items()
    for name, value in own.items():
        (line,) = [line for line in launch.lines if line.startswith(f"{name}={value} stays")]
        assert "your environment" in line


def test_environment_settings_are_those_of_the_stacks_alone() -> None:
    own = {"XLIO_A": "4", "VMA_A": "3", "EF_A": "2", "LD_PRELOAD": "1"}
    assert environment_settings({**own, "PATH": "/bin", "PREFIX_EF_": "5"}) == own


def test_inspect_bypass_nothing_asked_and_nothing_loaded_is_none(host) -> None:
    found = inspect_bypass("none", host)
    assert (found.stack, found.state, found.missing, found.reason) == ("none", 0, False, "")


@pytest.mark.parametrize("asked", STACKS)
def test_inspect_bypass_asked_for_but_not_loaded_is_absent(asked, host) -> None:
    found = inspect_bypass(asked, host)
    assert (found.state, found.missing) == (State.ABSENT, True)
    assert f"{asked}: NOT ACTIVE" in found.text
    assert STACKS[asked].library in found.reason


def test_inspect_bypass_other_stack_than_asked_for_is_named(host) -> None:
    load(host, "libvma.so.9.8.84")
    assert "but libvma.so is" in inspect_bypass("onload", host).reason


def test_inspect_bypass_library_that_does_not_answer_is_only_loaded(host) -> None:
    # Mapped and with its device, but without a stack's symbols in this process.
    load(host, "libcitransport0.so", device="/dev/onload")
    found = inspect_bypass("onload", host)
    assert (found.state, found.missing) == (State.LOADED, True)
    assert "does not answer" in found.reason


def test_inspect_bypass_preloaded_without_device_is_on_the_kernels_stack(stub) -> None:
    stack, library = stub
    found = look(Path("/"), stack, LD_PRELOAD=str(library))
    assert found[:3] == [stack, "LOADED", "True"]
    assert f"no {STACKS[stack].device} is open" in found[3]


def test_inspect_bypass_silent_library_is_only_loaded(stub, host) -> None:
    stack, library = stub
    load(host, library.name, device=STACKS[stack].device + "0")
    found = look(host, stack, LD_PRELOAD=str(library), STUB_SILENT="1")
    assert found[1] == "LOADED"
    assert "does not answer" in found[3]


def test_inspect_bypass_library_that_answers_and_holds_its_device_accelerates(stub, host) -> None:
    stack, library = stub
    load(host, library.name, device=STACKS[stack].device)
    assert look(host, stack, LD_PRELOAD=str(library)) == [
        stack,
        "ACCELERATED",
        "False",
        f"{stack}: accelerated",
    ]
    # Preloaded by the user: it is found although it was not asked for.
    assert look(host, "none", LD_PRELOAD=str(library))[:3] == [stack, "ACCELERATED", "False"]


FIRST = "from udpfast.net.bypass import open_first_socket; print(open_first_socket('vma'))"


def test_open_first_socket_takes_the_failure_of_the_first_call(stub) -> None:
    _, library = stub
    assert run_python(FIRST, LD_PRELOAD=str(library)).stdout == "\n"
    first = run_python(FIRST, LD_PRELOAD=str(library), STUB_FIRST_FAILS="1")
    assert first.stdout == "Function not implemented\n"
    never = run_python(FIRST, LD_PRELOAD=str(library), STUB_ALWAYS_FAILS="1")
    assert never.returncode == 1
    assert "cannot open a socket: Operation not permitted" in never.stderr
