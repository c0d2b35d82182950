"""`stemma doctor`: what this machine has, and what a model can do. `tests/cli/test_doctor.py` asks real endpoints.

Exits with 1 if the model that is named, by a flag or by a setting, does not answer. What is optional and missing is
told with the command that brings it, and is no failure.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemma.cli.options import JsonOption
from stemma.cli.screen import Screen, pad

if TYPE_CHECKING:
    from stemma.models.doctor import Examination, Finding
    from stemma.models.protocol import Model, Reply

_STYLES = {"yes": "green", "no": "red", "unknown": "yellow"}


def doctor(
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model to ask, as for chat.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Its endpoint.")] = None,
    json: JsonOption = False,
) -> None:
    """Look at this machine, and ask a model what it can do: a few short questions, which cost a little.

    Exits with 1 if the model cannot be used.
    """
    import asyncio

    from stemma.cli.choosing import choose_model
    from stemma.cli.settings import load_settings
    from stemma.cli.surroundings import look_around

    settings = load_settings({"model": model})
    asked = base_url or settings.get("model")
    chosen = choose_model(settings, base_url=base_url) if asked else None
    here = asyncio.run(look_around(settings))
    found = asyncio.run(_examine(chosen)) if chosen is not None else None
    _print_json(here, found) if json else _print(here, found)
    if found is not None and found["chat"].answer != "yes":
        raise typer.Exit(1)


async def _examine(model: "Model") -> "Examination":
    """All that can be found out about an endpoint; of any other model, what one reply shows."""
    from stemma.models.doctor import examine
    from stemma.models.hermes_model import HermesModel
    from stemma.models.openai_api import OpenAIModel

    behind = model.model if isinstance(model, HermesModel) else model
    try:
        return await (examine(behind) if isinstance(behind, OpenAIModel) else _one_reply(model))
    finally:
        await model.close()


async def _one_reply(model: "Model") -> "Examination":
    from stemma.errors import StemmaError
    from stemma.models.doctor import Examination, Finding
    from stemma.models.protocol import Request

    question = {"role": "user", "content": "Name a colour."}
    try:
        findings = _shown_by(await model.reply(Request(messages=[question])))
    except StemmaError as problem:
        findings = [Finding("chat", "no", str(problem))]
    return Examination(model=model.name, findings=findings, context_window=model.context_window)


def _shown_by(reply: "Reply") -> "list[Finding]":
    from stemma.models.doctor import Finding

    call = reply.call
    return [
        Finding("chat", "yes", f"{call.seconds:.1f} s" if call.seconds else ""),
        Finding("token ids", "yes" if call.sampled_ids is not None else "no"),
        Finding("logprobs", "yes" if call.logprobs is not None else "no"),
    ]


def _print_json(here: "list[Finding]", found: "Examination | None") -> None:
    import msgspec

    Screen().json({"here": msgspec.to_builtins(here), "model": msgspec.to_builtins(found)})


def _print(here: "list[Finding]", found: "Examination | None") -> None:
    screen = Screen()
    screen.line(("this machine", "bold"))
    _table(screen, here)
    if found is None:
        screen.line(("no model was named; ask one with -m, see `stemma models`", "dim"))
        return
    window = f", a window of {found.context_window:,} tokens" if found.context_window else ""
    screen.line((found.model, "bold"), window)
    _table(screen, found.findings)


def _table(screen: Screen, findings: "list[Finding]") -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        answer: Any = (pad(finding.answer, 7), _STYLES[finding.answer])
        screen.line(f"  {pad(finding.name, width)}  ", answer, f"  {finding.detail}")
