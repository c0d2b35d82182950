"""YAML that means one thing: no anchors, no aliases, no key twice, no objects; every value knows its line.

>>> tree = read_yaml("a: {b: 1}", "x.yaml")
>>> [(pair.key, pair.line) for pair in pairs(tree, "x.yaml")]
[('a', 1)]

`tests/cli/test_settings.py` proves it.
"""

from typing import Any, NamedTuple

import yaml

from stemma.errors import StemmaError


class BadSettings(StemmaError, ValueError):
    """A config file, an environment variable or a flag that cannot be used; which one and where is said."""


class Pair(NamedTuple):
    """One `key: value` of a mapping."""

    key: str
    node: yaml.Node
    line: int


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not read", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(problem="a key must be a plain text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands here twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return node


def read_yaml(text: str | bytes, file: str) -> yaml.Node | None:
    """The tree of a document; None if it is empty."""
    try:
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        said = ": ".join(part for part in (problem.context, problem.problem) if part)
        raise BadSettings(f"{file}:{mark.line + 1 if mark else 1}: {said}") from None
    except yaml.YAMLError as problem:
        raise BadSettings(f"{file}: {problem}") from None
    except RecursionError:
        raise BadSettings(f"{file}: nested too deeply") from None
    return node


def pairs(node: yaml.Node | None, file: str) -> list[Pair]:
    """The pairs of a mapping; an empty document, or a key with nothing behind it, has none."""
    if node is None or is_nothing(node):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise BadSettings(f"{file}:{line_of(node)}: settings are wanted here, as `key: value`")
    return [Pair(key.value, value, line_of(key)) for key, value in node.value]


def is_nothing(node: yaml.Node) -> bool:
    """Whether a key has nothing behind it, or null."""
    return node.tag == "tag:yaml.org,2002:null"


def line_of(node: yaml.Node) -> int:
    """Counted from 1."""
    return int(node.start_mark.line) + 1


def value_of(node: yaml.Node, file: str) -> Any:
    """The plain value of a node."""
    builder = yaml.constructor.SafeConstructor()
    try:
        return builder.construct_document(node)
    except yaml.MarkedYAMLError as problem:
        raise BadSettings(f"{file}:{line_of(node)}: {problem.problem}") from None
    except (ValueError, RecursionError) as problem:  # 2024-99-99, a number of ten thousand digits
        raise BadSettings(f"{file}:{line_of(node)}: {problem}") from None
