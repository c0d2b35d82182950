r"""A grammar in which every reply is well-formed: a thought, then a tool call that fits its schema, or an answer.

GBNF, as llama.cpp reads it. A small model kept to it cannot miss the format; what it says within is its own.

    >>> print(reply_grammar([{"function": {"name": "ls"}}]).splitlines()[1])
    call ::= "<tool_call>\n" ( tool0 ) "\n</tool_call>"

Required parameters stand in the order of the schema, optional ones are left to their defaults: a tight grammar helps
small models. Text in arguments has no line breaks unless escaped, as JSON has it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_COMMON = r"""string ::= "\"" ( [^"\\\x00-\x1f<] | "\\" ["\\nt] ){0,%(argument)d} "\""
integer ::= "-"? ( "0" | [1-9] [0-9]{0,8} )
number ::= integer ( "." [0-9]{1,6} )?
boolean ::= "true" | "false"
thought ::= [^<>\n\x00-\x1f]{1,%(thought)d}
answer ::= [^<>\x00-\x09\x0b-\x1f \n] [^<>\x00-\x09\x0b-\x1f]{0,%(answer)d}
"""


def reply_grammar(
    tools: Sequence[Mapping[str, Any]] | None, *, thought: int = 200, answer: int = 600, argument: int = 400
) -> str:
    """The grammar of a reply by a model that is offered `tools`."""
    functions = [tool.get("function") or tool for tool in tools or ()]
    rules = [f"tool{i} ::= {_call(function)}" for i, function in enumerate(functions)]
    choices = " | ".join(f"tool{i}" for i in range(len(functions)))
    end = "( call | answer )" if functions else "answer"
    head = [f'root ::= "<think>\\n" thought "\\n</think>\\n" {end}']
    if functions:
        head.append(f'call ::= "<tool_call>\\n" ( {choices} ) "\\n</tool_call>"')
    return "\n".join([*head, *rules, _COMMON % {"thought": thought, "answer": answer, "argument": argument}])


def _call(function: Mapping[str, Any]) -> str:
    schema = function.get("parameters") or {}
    opening = _literal('{"name": ' + json.dumps(function["name"]) + ', "arguments": ')
    return f"{opening} {_object(schema, schema.get('$defs') or {})} {_literal('}')}"


def _value(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _value(shared[schema["$ref"].rpartition("/")[2]], shared)
    if "enum" in schema:
        return "( " + " | ".join(_literal(json.dumps(choice)) for choice in schema["enum"]) + " )"
    if "anyOf" in schema:
        return "( " + " | ".join(_value(choice, shared) for choice in schema["anyOf"]) + " )"
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, shared)
    if kind == "array":
        item = _value(schema.get("items") or {"type": "string"}, shared)
        return f'"[" ( {item} ( ", " {item} ){{0,7}} )? "]"'
    return {"integer": "integer", "number": "number", "boolean": "boolean", "null": '"null"'}.get(str(kind), "string")


def _object(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """The required properties, in the order of the schema."""
    properties = schema.get("properties") or {}
    names = [name for name in properties if name in (schema.get("required") or ())]
    pairs = [f"{_literal(json.dumps(name) + ': ')} {_value(properties[name], shared)}" for name in names]
    return f'"{{" {_comma(pairs)} "}}"' if pairs else '"{}"'


def _comma(pairs: list[str]) -> str:
    return ' ", " '.join(pairs)


def _literal(text: str) -> str:
    return json.dumps(text)
