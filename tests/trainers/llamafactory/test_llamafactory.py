"""LLaMA-Factory's own loader and templates give loss to exactly the trained messages, and show all others once."""

import json

import pytest

from converted import record_of
from stemma.formats.export import Options, export
from stemma.formats.llamafactory import LLAMAFACTORY, LLAMAFACTORY_TURNS
from stemma.formats.llamafactory import whole_row as converted_row
from stemma.formats.training import TrainingRow
from trainers.llamafactory.conftest import data_arguments, model_arguments, texts_and_trained, training_arguments
from trainers.trl.samples import CANARY, TOOLS, rows, said

whole_row = record_of(converted_row)
QWEN_TOOLS = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function signatures within <tools></tools> XML tags:\n<tools>{tools}\n</tools>\n\nFor each function call, return "
    "a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)


def as_qwen(row: TrainingRow, empty_thought: str = "") -> tuple[str, list[str]]:
    """What Qwen's template makes of a row, from its API messages, and the stretches that must carry loss."""
    text, trained, shown = "", [], ""
    for at, message in enumerate(row.messages):
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            content, role = f"<tool_response>\n{content}\n</tool_response>", "user"
            if shown == "tool":
                text = f"{text.removesuffix('<|im_end|>' + chr(10))}\n{content}<|im_end|>\n"
                continue
        if role == "system" and row.tools:
            content += QWEN_TOOLS.format(tools="".join("\n" + json.dumps(tool) for tool in row.tools))
        given = ""
        if role == "assistant":
            content = _reply(message)
            given = "" if message.get("reasoning") else empty_thought
            trained += [f"{content}<|im_end|>\n"] if at in row.trained else []
        text += f"<|im_start|>{role}\n{given}{content}<|im_end|>\n"
        shown = message["role"]
    return text, trained


def _reply(message) -> str:
    thought = f"<think>\n{message['reasoning']}\n</think>\n\n" if message.get("reasoning") else ""
    content = message.get("content") or ""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    calls = [json.dumps({"name": f["name"], "arguments": json.loads(f["arguments"])}) for f in functions]
    blocks = [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
    return thought + "\n".join([content, *blocks] if content else blocks)


def before_context_turns(row: TrainingRow) -> TrainingRow | None:
    """The part of a row in which all turns of the model are trained."""
    context = [at for at, m in enumerate(row.messages) if m["role"] == "assistant" and at not in row.trained]
    trained = tuple(at for at in row.trained if at < min(context, default=len(row.messages)))
    if not trained:
        return None
    return TrainingRow(id=row.id, messages=row.messages[: trained[-1] + 1], trained=trained, tools=row.tools)


@pytest.mark.parametrize("template", ["qwen3_nothink", "qwen3"])
def test_loss_falls_on_exactly_the_trained_messages_and_every_turn_is_shown_once(tmp_path, template):
    source = list(rows())
    report = export(source, LLAMAFACTORY, tmp_path)
    kept = [part for row in source if (part := before_context_turns(row))]
    assert report.written == len(kept) == 4
    left_out = {reason: (met.replies, met.rows) for reason, met in report.left_out.items()}
    assert left_out == {"context turn of the model": (2, 2)}
    empty = "<think>\n\n</think>\n\n" if template == "qwen3" else ""
    assert texts_and_trained(tmp_path, template) == [as_qwen(row, empty) for row in kept]
    assert CANARY not in (tmp_path / "train.jsonl").read_text()


@pytest.mark.parametrize("template", ["qwen3_nothink", "qwen3"])
def test_llamafactory_turns_trains_every_trained_message_once_and_no_context(tmp_path, template):
    source = list(rows())
    report = export(source, LLAMAFACTORY_TURNS, tmp_path)
    assert (report.written, report.left_out) == (8, {})
    empty = "<think>\n\n</think>\n\n" if template == "qwen3" else ""
    cut = [
        TrainingRow(id=row.id, messages=row.messages[: at + 1], trained=(at,), tools=row.tools)
        for row in source
        for at in row.trained
    ]
    assert texts_and_trained(tmp_path, template) == [as_qwen(row, empty) for row in cut]


WORDLESS = [
    {"role": "system", "content": "the system"},
    {"role": "user", "content": "the question"},
    said(None, None, [("search", {"q": "the query"})]),
    {"role": "tool", "tool_call_id": "call_search_0", "content": "the result"},
    said("the answer"),
]


@pytest.mark.parametrize("preset", [LLAMAFACTORY, LLAMAFACTORY_TURNS], ids=lambda preset: preset.name)
def test_a_call_without_words_loads_with_every_template_for_text(tmp_path, preset):
    from llamafactory.data.template import TEMPLATES

    export([TrainingRow(id="r", messages=WORDLESS, trained=(2, 4), tools=TOOLS)], preset, tmp_path)
    names = [name for name, template in TEMPLATES.items() if type(template.mm_plugin).__name__ == "BasePlugin"]
    assert len(names) > 60
    for name in names:
        found = texts_and_trained(tmp_path, name)
        for text, trained in found:
            assert "the question" in text, name
            assert not any(word in "".join(trained) for word in ("question", "result", "system")), name
        learnt = "".join(part for _, trained in found for part in trained)
        assert (learnt.count("the query"), learnt.count("the answer")) == (1, 1), name


@pytest.mark.parametrize("template", ["llama3", "glm4_moe", "deepseek3", "chatml", "phi4", "seed_oss"])
def test_a_call_with_thought_and_words_loads_with_templates_of_other_families(tmp_path, template):
    messages = [*WORDLESS[:2], said("the words", "the thought", [("search", {"q": "a"}), ("search", {"q": "b"})])]
    export([TrainingRow(id="r", messages=messages, trained=(2,), tools=TOOLS)], LLAMAFACTORY, tmp_path)
    ((_, trained),) = texts_and_trained(tmp_path, template)
    places = ["".join(trained).find(word) for word in ("the thought", "the words", '"a"', '"b"')]
    if template in ("glm4_moe", "seed_oss"):  # arguments in tags of their own, without quotation marks
        places = ["".join(trained).find(word) for word in ("the thought", "the words", ">a<", ">b<")]
    assert -1 not in places
    assert places == sorted(places)


def test_text_that_looks_like_the_end_of_a_call_stays_in_its_argument(tmp_path):
    query = "</tool_call> {{content}} <tool_call>"
    messages = [*WORDLESS[:2], said("words", None, [("search", {"q": query})])]
    export(
        [TrainingRow(id="r", messages=messages, trained=(2,))],
        LLAMAFACTORY,
        tmp_path,
        options=Options(allow_markers=True),
    )
    ((_, trained),) = texts_and_trained(tmp_path, "qwen3_nothink")
    call = {"name": "search", "arguments": {"q": query}}
    assert trained == [f"words\n<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>\n"]


def test_what_stands_between_two_replies_is_one_turn_in_which_nothing_is_lost(tmp_path):
    messages = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
        said(None, None, [("search", {"q": "x"})]),
        {"role": "tool", "tool_call_id": "call_search_0", "content": "found"},
        {"role": "user", "content": "hurry"},
        said("done"),
        {"role": "user", "content": "unanswered"},
    ]
    export([TrainingRow(id="r", messages=messages, trained=(2, 5))], LLAMAFACTORY, tmp_path)
    ((text, trained),) = texts_and_trained(tmp_path, "qwen3_nothink")
    assert "<|im_start|>user\none\n\ntwo<|im_end|>" in text
    assert "<|im_start|>user\n<tool_response>\nfound\n</tool_response>\nhurry<|im_end|>" in text
    assert "unanswered" not in text
    assert trained[1:] == ["done<|im_end|>\n"]


def test_rows_are_converted_whole_though_the_first_call_comes_after_the_first_ten_megabytes(tmp_path):
    from datasets import disable_progress_bars
    from llamafactory.data.loader import _load_single_dataset
    from llamafactory.data.parser import get_dataset_list

    disable_progress_bars()
    long = TrainingRow(id="p", messages=[{"role": "user", "content": "x" * 4_000}, said("yes")], trained=(1,))
    metadata = {"reward": 0.5, "tags": ["a", 1, None]}
    late = TrainingRow(id="c", messages=WORDLESS, trained=(2, 4), tools=TOOLS, metadata=metadata)
    export([long] * 3_000 + [late] * 5, LLAMAFACTORY, tmp_path)
    written = (tmp_path / "train.jsonl").read_bytes()
    assert min(written.index(b"function_call"), written.index(b"reward")) > 11 << 20
    (dataset,) = get_dataset_list(["stemma"], str(tmp_path))
    arguments = data_arguments(tmp_path, "qwen")
    found = _load_single_dataset(dataset, model_arguments(tmp_path), arguments, training_arguments(tmp_path))
    assert len(found) == 3_005
    turns = [turn["value"] for turn in whole_row(late)["conversations"]]
    for row in found.select(range(3_000, 3_005)):
        assert [turn["content"] for turn in row["_prompt"] + row["_response"]] == turns
        assert (row["_system"], json.loads(row["_tools"])) == ("the system", TOOLS)
