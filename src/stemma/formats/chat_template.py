"""Chat templates: programs of strangers, run in jinja's immutable sandbox with what such templates expect.

As transformers runs them: `tojson` writes plain JSON (jinja's own escapes `<`, `>` and `&` for web pages, which no
model has seen), and `{% generation %}` marks what trainers train and writes nothing itself. Needs
`pip install 'stemmata[tokens]'`. `tests/formats/test_template_check.py` and `tests/formats/test_token_render.py` prove
that it renders.
"""

import json
from typing import Any

from stemma.errors import BadRecord, MissingExtra


def compile_template(source: str) -> Any:
    """The template, ready to `render(messages=…, tools=…, add_generation_prompt=…)`; the date is kept from it."""
    error = template_error()
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise error(message)

    extensions = [loopcontrols, _generation_tag()]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: ""
    try:
        return environment.from_string(source)
    except error as problem:
        raise BadRecord(f"the chat template is none that jinja reads: {problem}") from problem


def template_error() -> type[Exception]:
    """What a template raises that refuses a conversation."""
    try:
        from jinja2 import TemplateError
    except ImportError as problem:
        raise MissingExtra("a chat template needs jinja2: pip install 'stemmata[tokens]'") from problem
    return TemplateError


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _generation_tag() -> Any:
    from jinja2.ext import Extension

    class Generation(Extension):
        """`{% generation %}…{% endgeneration %}`: what stands between is written as it is."""

        tags = {"generation"}  # noqa: RUF012  jinja's own way to name them

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation
