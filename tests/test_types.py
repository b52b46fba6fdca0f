"""What a compiled class shows of its parameters is what its stub says."""

import ast
import enum
import inspect

import pytest

import udpfast
from tests.shared import ROOT

COMPILED = [
    name
    for name in udpfast.__all__
    if inspect.isclass(thing := getattr(udpfast, name))
    and not issubclass(thing, enum.Enum)
    and (ROOT / thing.__module__.replace(".", "/")).with_suffix(".pyi").exists()
]


def constructor(kind: type) -> str:
    """Return the parameters that a class's stub says, without their types."""
    stub = (ROOT / kind.__module__.replace(".", "/")).with_suffix(".pyi")
    (found,) = (
        node
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__new__"):
            said = node.args
            del said.args[0]
            for argument in ast.walk(said):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            return ast.unparse(said)
    return ""


@pytest.mark.parametrize("name", COMPILED)
def test_class_shows_the_parameters_of_its_stub(name: str) -> None:
    kind = getattr(udpfast, name)
    shown = inspect.signature(kind)
    # A default that a stub leaves open is one.
    said = inspect.signature(eval(f"lambda {constructor(kind)}: 0"))
    assert list(shown.parameters) == list(said.parameters)
    for parameter in said.parameters.values():
        same = shown.parameters[parameter.name]
        assert same.kind == parameter.kind
        assert (same.default is same.empty) == (parameter.default is parameter.empty)
        if parameter.default is not ...:
            assert same.default == parameter.default
    assert not (inspect.getdoc(kind) or "").startswith(name)
