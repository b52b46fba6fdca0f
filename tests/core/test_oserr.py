"""A table of which exception each -errno becomes."""

import errno

import pytest

from udpfast.core.oserr import check
from udpfast.errors import sentence


@pytest.mark.parametrize("rc", [0, 1, 4096, 2**40])
def test_check_no_error_returns_it(rc: int) -> None:
    assert check(rc, "open socket") == rc


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.ENOENT, FileNotFoundError),
        (errno.EEXIST, FileExistsError),
        (errno.EPIPE, BrokenPipeError),
        (errno.ECONNREFUSED, ConnectionRefusedError),
        (errno.ETIMEDOUT, TimeoutError),
        (errno.ENODEV, OSError),
    ],
)
def test_check_errno_raises_its_class(number: int, kind: type[OSError]) -> None:
    with pytest.raises(kind) as caught:
        check(-number, "open region")
    assert type(caught.value) is kind
    assert caught.value.errno == number


def test_check_text_says_what_and_where_and_why() -> None:
    with pytest.raises(OSError) as caught:
        check(-errno.ENODEV, "join multicast group", "239.1.1.1 on eth0")
    expected = "cannot join multicast group: 239.1.1.1 on eth0: No such device"
    assert caught.value.strerror == expected


def test_check_text_without_place_names_none() -> None:
    with pytest.raises(OSError) as caught:
        check(-errno.ENOMEM, "lock memory")
    assert caught.value.strerror == "cannot lock memory: Cannot allocate memory"


def test_sentence_has_what_and_where_without_the_number() -> None:
    with pytest.raises(OSError) as caught:
        check(-errno.EADDRINUSE, "bind", "127.0.0.1:9001")
    assert sentence(caught.value) == "cannot bind: 127.0.0.1:9001: Address already in use"
    assert sentence(FileNotFoundError(errno.ENOENT, "no such journal", "x")) == "x: no such journal"
    assert sentence(OSError("nothing more")) == "nothing more"
