"""A user's functions are tools, of a file or an installed package; what is wrong with them is told with its place."""

import asyncio
import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest

from stemma.tools.running import run_tool
from stemma.tools.toolsets import ToolTaken
from stemma.tools.user_tools import BadTools, installed_tools, load_tools

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_tools.py"


def file(tmp_path, text):
    path = tmp_path / "my_tools.py"
    path.write_text(text)
    return path


def test_the_example_file_works():
    tools = {tool.name: tool for tool in load_tools(EXAMPLE)}
    assert list(tools) == ["word_count", "days_between"]
    counted = asyncio.run(run_tool(tools, "word_count", '{"text": "to be or not", "longer_than": 2}'))
    assert counted.text == "1"
    apart = asyncio.run(run_tool(tools, "days_between", '{"first": "2024-02-28", "last": "2024-03-14"}'))
    assert apart.text == '{"days":15,"weeks":2}'


def test_only_public_functions_with_a_docstring_that_the_file_defines_are_tools(tmp_path):
    path = file(
        tmp_path,
        "from textwrap import dedent\nimport json\n"
        "class Thing:\n    'A class.'\n"
        "def shown(a: int) -> int:\n    'Shown.'\n    return a\n"
        "def _hidden(a: int) -> int:\n    'Hidden.'\n"
        "def silent(a): return a\n"
        "async def later() -> str:\n    'Later.'\n    return 'late'\n",
    )
    tools = {tool.name: tool for tool in load_tools(path)}
    assert list(tools) == ["shown", "later"]
    assert asyncio.run(run_tool(tools, "later", "{}")).text == "late"


def test_a_list_of_tools_decides_if_there_is_one(tmp_path):
    text = (
        "from stemma.tools.tool import as_tool\n"
        "def a() -> str:\n    'A.'\n"
        "def b() -> str:\n    'B.'\n"
        "def c() -> str:\n    'C.'\n"
        "TOOLS = [c, as_tool(a, toolset='letters')]\n"
    )
    assert [(tool.name, tool.toolset) for tool in load_tools(file(tmp_path, text))] == [
        ("c", "custom"),
        ("a", "letters"),
    ]


def test_types_of_the_files_own_work_also_when_written_as_text(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n    y: int = 0\n"
        "def far(point: Point) -> int:\n    'How far it is.'\n    return point.x + point.y\n"
    )
    (tool,) = load_tools(file(tmp_path, text))
    assert asyncio.run(run_tool({"far": tool}, "far", '{"point": {"x": 3, "y": 4}}')).text == "7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = (\n", r"my_tools\.py:2: SyntaxError"),
        ("\n\nimport no_such_module\n", r"my_tools\.py:3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return 1 / 0\n\nf()\n", r"my_tools\.py:2: ZeroDivisionError"),
        ("import json\njson.loads('{')\n", r"my_tools\.py:2: JSONDecodeError"),
        ("x = 1\n", "has no tools"),
        ("TOOLS = []\n", "has no tools"),
        ("TOOLS = [3]\n", "3 is neither a function nor a Tool"),
        ("def f(a):\n    'F.'\n", r"my_tools\.py: f: the parameter 'a' needs a type"),
        ("def f(a: 'Nowhere'):\n    'F.'\n", r"my_tools\.py: name 'Nowhere' is not defined"),
        ("def f(a: object()):\n    'F.'\n", r"my_tools\.py: "),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path, text, said):
    with pytest.raises(BadTools, match=said):
        load_tools(file(tmp_path, text))


def test_a_file_that_is_not_there_or_no_python_is_told(tmp_path):
    with pytest.raises(BadTools, match="no file"):
        load_tools(tmp_path / "missing.py")
    (tmp_path / "tools.txt").write_text("")
    with pytest.raises(BadTools, match=r"end in \.py"):
        load_tools(tmp_path / "tools.txt")


def test_a_tool_cannot_take_the_name_of_a_shipped_one(tmp_path):
    with pytest.raises(ToolTaken, match="'terminal' is the name of a tool of stemma"):
        load_tools(file(tmp_path, "def terminal(command: str) -> str:\n    'Mine.'\n"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package as pip would: its module and its dist-info, in a folder on the path."""

    def install(entries, text):
        (tmp_path / "weather_of_test.py").write_text(text)
        info = tmp_path / "weather_of_test-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-of-test\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[stemma.tools]\n" + entries)
        monkeypatch.syspath_prepend(tmp_path)
        invalidate_caches()

    yield install
    sys.modules.pop("weather_of_test", None)


WEATHER = """
from stemma.tools.tool import as_tool

def forecast(place: str) -> str:
    "Say how the weather will be."
    return f"rain in {place}"

def past(place: str) -> str:
    "Say how the weather was."

THERMOMETER = as_tool(past, toolset="weather")
BOTH = [forecast, THERMOMETER]
"""


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ("a = weather_of_test:forecast", [("forecast", "custom")]),
        ("a = weather_of_test:THERMOMETER", [("past", "weather")]),
        ("a = weather_of_test:BOTH", [("forecast", "custom"), ("past", "weather")]),
        ("b = weather_of_test:forecast\na = weather_of_test:past", [("past", "custom"), ("forecast", "custom")]),
    ],
)
def test_installed_packages_offer_functions_tools_and_lists(package, entries, found):
    package(entries, WEATHER)
    tools = installed_tools()
    assert [(tool.name, tool.toolset) for tool in tools] == found
    if tools[0].name == "forecast":
        told = asyncio.run(run_tool({"forecast": tools[0]}, "forecast", '{"place": "Bergen"}'))
        assert told.text == "rain in Bergen"


@pytest.mark.parametrize(
    ("entries", "text", "said"),
    [
        ("a = weather_of_test:missing", WEATHER, "the tool 'a' of the package weather-of-test cannot be loaded"),
        ("a = weather_of_test:forecast", "raise RuntimeError('no sun')", "RuntimeError: no sun"),
        ("a = weather_of_test:x", "x = 3", "3 is neither a function nor a Tool"),
    ],
)
def test_a_package_whose_tools_cannot_be_used_is_named(package, entries, text, said):
    package(entries, text)
    with pytest.raises(BadTools, match=said):
        installed_tools()


def test_without_such_packages_there_are_no_installed_tools():
    assert installed_tools() == []
