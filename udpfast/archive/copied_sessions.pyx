"""Sessions of a composite's copy. Each encodes an input and a session of that input."""

from libc.stdint cimport uint16_t

__all__ = ["copied_input", "copied_session"]


def copied_input(uint16_t session) -> int | None:
    """Return the index of the input of a copy's session, from 0; None: it has none."""
    input = input_of(session)
    return None if input < 0 else input


def copied_session(uint16_t session) -> int:
    """Return the session within its input of a copy's session; 0: none, as for apps' messages."""
    return (session - 1) // INPUTS_MAX if session else 0
