"""A typed function with a docstring is a tool; what a model writes becomes its arguments, or an error to read."""

import asyncio
from typing import Literal

import msgspec
import pytest

from stemma.redact import MASK
from stemma.tools.running import run_tool
from stemma.tools.tool import ToolError, ToolResult, as_tool
from stemma.tools.workspace import Workspace


class Point(msgspec.Struct):
    x: int
    y: int = 0


def draw(points: list[Point], colour: Literal["red", "blue"] = "red", scale: float | None = None) -> str:
    """Draw points.
    They are joined.

    points: where to draw,
      in order
    colour: with which pen
    """
    return f"{colour}: {[(p.x, p.y) for p in points]} {scale}"


def test_the_schema_is_derived_from_types_and_docstring():
    tool = as_tool(draw)
    assert tool.description == "Draw points.\nThey are joined."
    assert tool.parameters["required"] == ["points"]
    assert tool.parameters["properties"]["colour"] == {
        "enum": ["blue", "red"],
        "description": "with which pen",
        "default": "red",
    }
    points = tool.parameters["properties"]["points"]
    assert points["description"] == "where to draw, in order"
    assert points["items"]["$ref"].removeprefix("#/$defs/") in tool.parameters["$defs"]
    msgspec.json.encode(tool.schema())


def test_a_function_without_a_docstring_or_a_type_is_refused():
    def silent(a: int):
        return a

    def untyped(a):
        """Do it."""

    for function in (silent, untyped):
        with pytest.raises(ToolError, match=function.__name__):
            as_tool(function)


def call(function, arguments, workspace=None):
    tool = as_tool(function)
    return asyncio.run(run_tool({tool.name: tool}, tool.name, arguments, workspace))


def test_arguments_are_converted_to_the_types_of_the_function():
    result = call(draw, '{"points": [{"x": 1}, {"x": 2, "y": 3}], "scale": 2}')
    assert (result.ok, result.text) == (True, "red: [(1, 0), (2, 3)] 2.0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"points": 3}', "'points'"),
        ('{"points": [], "colour": "green"}', "'colour'"),
        ("{}", "needs the parameter 'points'"),
        ('{"points": [], "size": 1}', "no parameter 'size'"),
        ('{"points": [], "points": []}', "twice"),
        ("3", "must be a JSON object"),
        ('{"points": [{"x": NaN}]}', "'points'"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wrong(arguments, said):
    result = call(draw, arguments)
    assert not result.ok
    assert said in result.text


def test_whatever_a_tool_raises_is_told_to_the_model():
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError("by zero")

    assert call(broken, "") == ToolResult(text="Error: by zero", ok=False)


def test_an_exception_that_cannot_even_say_what_it_is_is_an_error_of_that_call():
    class MuteError(Exception):
        def __str__(self):
            raise ValueError("no words")

    def broken() -> str:
        """Break."""
        raise MuteError

    assert call(broken, "") == ToolResult(text="Error: MuteError", ok=False)


def test_structured_results_become_json():
    def facts() -> dict[str, list[int]]:
        """Give facts."""
        return {"primes": [2, 3]}

    assert call(facts, "{}").text == '{"primes":[2,3]}'


def test_our_credentials_are_taken_out_before_the_model_sees_them():
    def leak(here: Workspace) -> str:
        """Leak."""
        return "key=sk-CANARY-1 and sk-CANARY-1"

    result = call(leak, "{}", Workspace(secrets=["sk-CANARY-1", ""]))
    assert result.text == f"key={MASK} and {MASK}"
    assert "here" not in as_tool(leak).parameters["properties"]
