"""Packages that are not needed to receive: each belongs to an extra of udpfast."""

from importlib import import_module
from typing import Any

from udpfast.errors import ExtraError

__all__ = ["load_optional"]


def load_optional(module: str, extra: str) -> Any:
    """Import a module that an extra of udpfast brings, where it is first needed.

    Raises
    ------
    ExtraError
        It is not installed; says how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:  # what is installed lacks something of its own
            raise
        raise ExtraError(f"{package} is not installed: pip install 'udpfast[{extra}]'") from None
