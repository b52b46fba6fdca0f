"""The only file that turns -errno into an exception."""

import os

__all__ = ["check", "errno_text"]


cpdef int64_t check(int64_t rc, str what, str where="") except -1:
    """Return `rc` if it is no error; otherwise raise the `OSError` of `-rc`.

    Python picks the class by errno: EACCES is `PermissionError`, ENOENT `FileNotFoundError`, and
    so on. Callers never pass EAGAIN and EINTR: they treat these as "no work".

    Parameters
    ----------
    rc : int
        Result of the call: >= 0 is a count or descriptor, < 0 is -errno.
    what : str
        What was tried, as an infinitive: "join multicast group".
    where : str
        The object of it: "239.1.1.1 on eth0". Empty if there is nothing to name.

    Raises
    ------
    OSError
        With the text "cannot <what>: <where>: <what the errno means>".
    """
    if rc >= 0:
        return rc
    cdef int number = <int>-rc
    place = f": {where}" if where else ""
    raise OSError(number, f"cannot {what}{place}: {os.strerror(number)}")


def errno_text(int number) -> str:
    """Return what an errno means, in the system's words."""
    return os.strerror(number)
