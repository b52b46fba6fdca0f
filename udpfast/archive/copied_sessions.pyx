"""Sessions of a composite's copy: each says which input it is of, and which session there."""

from libc.stdint cimport uint16_t

__all__ = ["copied_input", "copied_session"]


def copied_input(uint16_t session) -> int | None:
    """Return which input a session of a composite's copy is of, from 0 on; None: of none."""
    input = input_of(session)
    return None if input < 0 else input


def copied_session(uint16_t session) -> int:
    """Return which session of its input a session of a copy is; 0: of none, as messages of apps."""
    return (session - 1) // INPUTS_MAX if session else 0
