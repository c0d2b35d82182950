"""Promises of the grammar: llama.cpp reads it, whatever the schemas say, and what it samples by it fits them."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedded import smollm2
from hostile import texts
from stemma.models.grammar import reply_grammar
from stemma.models.hermes_protocol import read_reply

names = st.text(min_size=1, max_size=8) | texts(1)
leaves = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "null", "what"]).map(lambda kind: {"type": kind}),
    st.lists(names | st.integers() | st.none() | st.booleans(), max_size=3).map(lambda some: {"enum": some}),
    names.map(lambda name: {"const": name}),
    st.sampled_from(["a", "b", "missing"]).map(lambda name: {"$ref": f"#/$defs/{name}"}),
    st.just({"type": ["string", "null"]}),
    st.sampled_from([{}, True]),
)


def objects(schemas):
    properties = st.dictionaries(names, schemas, max_size=3)
    return properties.flatmap(
        lambda known: st.lists(st.sampled_from([*known, "missing"]), max_size=3, unique=True).map(
            lambda required: {"type": "object", "properties": known, "required": required}
        )
    )


schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some}),
    ),
    max_leaves=6,
)
tools = st.builds(
    lambda name, schema, a, b: {"function": {"name": name, "parameters": {**schema, "$defs": {"a": a, "b": b}}}},
    names,
    objects(schemas),
    schemas,
    schemas,
)


@pytest.fixture(scope="module")
def model():
    found = smollm2()
    yield found
    asyncio.run(found.close())


async def completed(model, grammar, **params):
    """What llama.cpp itself samples by a grammar."""
    async with model._engine.connect() as engine:
        return await engine.post("/completion", {"prompt": [1], "grammar": grammar, **params})


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(tools, max_size=2), st.booleans(), st.booleans())
def test_llama_cpp_reads_the_grammar_of_any_schema(model, offered, tight, answer_due):
    grammar = reply_grammar(offered, tight=tight, answer_due=answer_due)
    assert asyncio.run(completed(model, grammar, n_predict=1))["tokens_predicted"] == 1


TREE = {
    "type": "object",
    "properties": {
        "color": {"enum": ["red", "grün", 'a "quoted" one']},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "leaf": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Leaf"}]},
        "left out": {"type": "string"},
    },
    "required": ["color", "count", "share", "sure", "leaf"],
    "$defs": {"Leaf": {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}},
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_however_wildly_it_is_sampled_a_call_fits_its_schema(model, seed):
    grammar = reply_grammar([{"function": {"name": "plant", "parameters": TREE}}], tight=True)
    only_calls = grammar.replace("root ::=", "reply ::=") + "root ::= call\n"
    said = asyncio.run(completed(model, only_calls, n_predict=300, temperature=1.5, seed=seed))
    (call,) = read_reply(said["content"], "0")["tool_calls"]
    found = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "plant"
    assert list(found) == TREE["required"]
    assert found["color"] in TREE["properties"]["color"]["enum"]
    assert [type(found[key]) for key in ("count", "sure")] == [int, bool]
    assert isinstance(found["share"], int | float)
    assert found["leaf"] is None or type(found["leaf"]["size"]) is int


def test_where_an_answer_is_due_no_tool_can_be_called():
    offered = [{"function": {"name": "ls"}}]
    assert "tool_call" in reply_grammar(offered, tight=True)
    assert "tool_call" not in reply_grammar(offered, tight=True, answer_due=True)


def test_a_schema_that_refers_to_itself_is_a_rule_that_does():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    schema = {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    rules = reply_grammar([{"function": {"name": "walk", "parameters": schema}}]).splitlines()
    assert 'tool0-0 ::= "{" "\\"next\\": " tool0-0 "}"' in rules
