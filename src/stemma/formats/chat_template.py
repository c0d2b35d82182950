"""Chat templates: programs of strangers, run in jinja's immutable sandbox with what such templates expect.

Needs `pip install 'stemmata[tokens]'`. `tests/formats/test_token_render.py` and `tests/compress/test_counting.py` prove
that it renders.
"""

from typing import Any

from stemma.errors import MissingExtra


def compile_template(source: str) -> Any:
    """The template, ready to `render(messages=…, tools=…, add_generation_prompt=…)`; the date is kept from it."""
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as problem:
        raise MissingExtra("a chat template needs jinja2: pip install 'stemmata[tokens]'") from problem

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: ""
    return environment.from_string(source)
