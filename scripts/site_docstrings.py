"""For the documentation site: docstrings of compiled modules, whose stubs have none."""

import inspect
from importlib import import_module
from typing import Any

import griffe


class RuntimeDocstrings(griffe.Extension):
    """Take the docstring of what a stub declares from the module as it is imported."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show how a compiled class is made, which its stub says by `__new__`."""
        made = cls.members.get("__new__")
        if isinstance(made, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", made)

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Look an object up that has no docstring."""
        if obj.docstring is not None or obj.is_alias or obj.is_module:
            return
        try:
            found: Any = import_module(obj.module.path)
            for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError):
            return
        # A value's docstring would be its class's.
        if not obj.is_attribute or inspect.isdatadescriptor(found):
            text = inspect.getdoc(found)
            if text:
                obj.docstring = griffe.Docstring(text, parent=obj, parser=loader.docstring_parser)
