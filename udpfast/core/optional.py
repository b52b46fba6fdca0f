"""Packages that receiving does not need; each belongs to an extra of udpfast."""

from importlib import import_module
from typing import Any

from udpfast.errors import ExtraError

__all__ = ["load_optional"]


def load_optional(module: str, extra: str) -> Any:
    """Import a module of one of udpfast's extras, where it is first needed.

    Raises
    ------
    ExtraError
        It is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:  # an installed package lacks something of its own
            raise
        raise ExtraError(f"{package} is not installed: pip install 'udpfast[{extra}]'") from None
