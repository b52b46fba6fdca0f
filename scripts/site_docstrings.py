"""For the documentation site: find the docstrings of compiled modules, whose stubs have none."""

import inspect
from importlib import import_module
from typing import Any

import griffe


class RuntimeDocstrings(griffe.Extension):
    """Takes the docstrings of classes and functions in a stub from the imported module."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the constructor of a compiled class, which its stub declares as `__new__`."""
        made = cls.members.get("__new__")
        if isinstance(made, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", made)

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Find the docstring of an object whose stub has none."""
        if obj.docstring is not None or obj.is_alias or obj.is_module:
            return
        try:
            found: Any = import_module(obj.module.path)
            for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError):
            return
        # A plain value would give the docstring of its class, which does not describe it.
        if not obj.is_attribute or inspect.isdatadescriptor(found):
            text = inspect.getdoc(found)
            if text:
                obj.docstring = griffe.Docstring(text, parent=obj, parser=loader.docstring_parser)
