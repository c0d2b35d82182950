r"""A grammar in which every reply is well-formed: a thought, then tool calls that fit their schemas, or an answer.

GBNF, as llama.cpp reads it. A model kept to it cannot miss the format; what it says within is its own.

    >>> print(reply_grammar([{"function": {"name": "ls"}}], tight=True).splitlines()[1])
    call ::= "<tool_call>\n" ( tool0 ) "\n</tool_call>"

`tight` is for very small models, which lose the thread in anything long: one line of thought, a short answer, one call
with its required parameters only, and, where `answer_due`, no further call. Parameters stand in the order of the
schema, required ones first. Text may hold a `<` only where it cannot begin a tag. `tests/models/test_grammar.py` has
llama.cpp read and follow grammars of all kinds of schemas.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_COMMON = r"""integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )
number ::= integer ( "." [0-9]{1,15} )?
boolean ::= "true" | "false"
value ::= string | number | boolean | "null"
escaped ::= "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )
"""

_LOOSE = r"""string ::= "\"" ( [^"\\\x00-\x1f\x7f] | escaped )* "\""
text ::= [^<\x00-\x08\x0b-\x1f\x7f] | "<" [ =0-9]
thought ::= text+
answer ::= [^<\x00-\x20\x7f] text*
"""

_TIGHT = r"""string ::= "\"" ( [^"\\\x00-\x1f\x7f<] | escaped ){1,120} "\""
thought ::= [^<>\x00-\x1f\x7f]{1,160}
answer ::= [^<>\x00-\x20\x7f] [^<>\x00-\x1f\x7f]{0,240}
"""

_KINDS = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "null": '"null"'}


def reply_grammar(tools: Sequence[Mapping[str, Any]] | None, *, tight: bool = False, answer_due: bool = False) -> str:
    """The grammar of a reply by a model that is offered `tools`."""
    functions = [] if answer_due else [tool.get("function") or tool for tool in tools or ()]
    calls = "call" if tight else 'call ( "\\n" call )*'
    rules = {"root": f'"<think>\\n" thought "\\n</think>\\n" ( {f"{calls} | " if functions else ""}answer )'}
    if functions:
        choices = " | ".join(f"tool{i}" for i in range(len(functions)))
        rules["call"] = f'"<tool_call>\\n" ( {choices} ) "\\n</tool_call>"'
    for i, function in enumerate(functions):
        rules |= _Tool(f"tool{i}", function, only_required=tight).rules
    written = [f"{name} ::= {rule}" for name, rule in rules.items()]
    return "\n".join([*written, _TIGHT if tight else _LOOSE]) + _COMMON


class _Tool:
    """The rules of one tool's calls; what its schema refers to is a rule of its own, so it may refer to itself."""

    def __init__(self, name: str, function: Mapping[str, Any], *, only_required: bool) -> None:
        schema = function.get("parameters") or {}
        self._name, self._only_required = name, only_required
        self._shared: Mapping[str, Any] = schema.get("$defs") or schema.get("definitions") or {}
        self._refs: dict[str, str] = {}
        self.rules: dict[str, str] = {}
        opening = _literal(f'{{"name": {_json(function["name"])}, "arguments": ')
        self.rules[name] = f"{opening} {self._object(schema)} {_literal('}')}"

    def _value(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return "value"
        if "$ref" in schema:
            return self._ref(str(schema["$ref"]).rpartition("/")[2])
        if "const" in schema:
            return _literal(_json(schema["const"]))
        if schema.get("enum"):
            return _one_of(_literal(_json(choice)) for choice in schema["enum"])
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return _one_of(map(self._value, choices))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return _one_of(self._value({**schema, "type": one}) for one in kind)
        if kind == "object":
            return self._object(schema)
        return self._array(schema) if kind == "array" else _KINDS.get(str(kind), "value")

    def _ref(self, target: str) -> str:
        if target not in self._shared:
            return "value"
        if target not in self._refs:
            self._refs[target] = name = f"{self._name}-{len(self._refs)}"
            self.rules[name] = self._value(self._shared[target])
        return self._refs[target]

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self._value(schema.get("items"))
        return f'"[" ( {item} ( ", " {item} )* )? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties") or {}
        required = [name for name in properties if name in (schema.get("required") or ())]
        optional = [] if self._only_required else [name for name in properties if name not in required]
        pairs = {name: f"{_literal(_json(name) + ': ')} {self._value(properties[name])}" for name in properties}
        return f'"{{" {_pairs([pairs[name] for name in required], [pairs[name] for name in optional])} "}}"'


def _pairs(required: list[str], optional: list[str]) -> str:
    """All that is required, and what the model likes of the rest, in order.

    >>> _pairs(["a"], ["b", "c"])
    'a ( ", " b )? ( ", " c )?'
    """
    if required:
        return " ".join([' ", " '.join(required), *(f'( ", " {pair} )?' for pair in optional)])
    starts = [_pairs([pair], optional[at + 1 :]) for at, pair in enumerate(optional)]
    return f"( {' | '.join(starts)} )?" if starts else ""


def _one_of(choices: Iterable[str]) -> str:
    return f"( {' | '.join(choices)} )"


def _json(value: Any) -> str:
    """As a model would write it: other alphabets as they are."""
    written = json.dumps(value, ensure_ascii=False)
    return written if written.isascii() or _is_unicode(written) else json.dumps(value)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _literal(text: str) -> str:
    r"""Text as a grammar's literal, which knows fewer escapes than JSON does.

    >>> _literal('a "b"')
    '"a \\"b\\""'
    """
    return '"' + "".join(_literal_char(char) for char in text) + '"'


def _literal_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if " " <= char <= "~" else f"\\U{ord(char):08x}"
