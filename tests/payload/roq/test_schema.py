"""The schema's files say the same: facts, roq.fbs, schema.py."""

import dataclasses
import json
from pathlib import Path

from tests.shared import shared
from udpfast.market import words
from udpfast.payload.roq import generate, schema

ROQ = Path(schema.__file__).parent


def test_fbs_is_what_the_published_facts_say():
    facts = json.loads(shared("wire", "roq-flatbuffers.json").read_text())
    assert (ROQ / "roq.fbs").read_text() == generate.write_fbs(generate.parse_facts(facts))


def test_fbs_read_back_equals_the_facts_field_by_field():
    facts = json.loads(shared("wire", "roq-flatbuffers.json").read_text())
    parsed = generate.parse_fbs((ROQ / "roq.fbs").read_text())
    expected = generate.parse_facts(facts)
    assert {
        name: sorted(map(dataclasses.astuple, fields)) for name, fields in parsed.tables.items()
    } == {
        name: sorted(map(dataclasses.astuple, fields)) for name, fields in expected.tables.items()
    }
    assert parsed.enums == expected.enums
    assert parsed.members == expected.members
    assert (parsed.namespace, parsed.root, parsed.union) == (
        "roq.schema.flatbuffers",
        "Event",
        "Message",
    )


def test_facts_are_complete_in_python_schema():
    facts = json.loads(shared("wire", "roq-flatbuffers.json").read_text())
    fields = {
        (table["name"], field["name"], field["id"])
        for table in facts["tables"]
        for field in table["fields"]
        if not field["deprecated"] and field["type"]["kind"] != "union_type"
    }
    assert fields == {
        (name, field.name, field.id) for name, fields in schema.TABLES.items() for field in fields
    }
    members = facts["unions"][0]["members"]
    assert tuple(member["name"] for member in members) == schema.MESSAGES


def test_the_words_of_updates_are_the_schema_s():
    assert {name: schema.ENUMS[name] for name in words.ENUMS} == words.ENUMS


def test_fbs_names_its_origin_and_licence():
    text = (ROQ / "roq.fbs").read_text()
    assert "MIT licence, Copyright (c) 2017-2026, Hans Erik Thrane" in text
