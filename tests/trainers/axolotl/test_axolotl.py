"""Axolotl's own loader and strategy give loss to exactly the trained messages, and show all others once."""

import json

import pytest

from converted import about, as_converted, record_of
from stemma.formats.axolotl import AXOLOTL, AXOLOTL_TURNS
from stemma.formats.axolotl import axolotl_row as converted_row
from stemma.formats.export import export
from stemma.formats.hermes import to_trajectory
from stemma.formats.training import TrainingRow
from stemma.formats.trajectory_presets import HERMES
from trainers.axolotl.conftest import config_of, loaded, template_of, texts_and_trained, tokenized, tokenizer
from trainers.trl.samples import CANARY, TOOLS, rows, said

axolotl_row = record_of(converted_row)
PLAIN = """\
{%- if tools %}{{ '<|im_start|>tools\\n' }}{{ tools | tojson }}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.name %}{{ '[' + message.name + ' ' + message.tool_call_id + '] ' }}{% endif %}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}"""
"""A template that writes every field it is given, so that what it writes can be foretold to the letter."""


def as_plain(row: TrainingRow) -> tuple[str, list[str]]:
    """What `PLAIN` must make of a row, from its API messages, and the stretches that must carry loss."""
    text = f"<|im_start|>tools\n{json.dumps(row.tools)}<|im_end|>\n" if row.tools else ""
    names = {call["id"]: call["function"]["name"] for m in row.messages for call in m.get("tool_calls") or []}
    trained = []
    for at, message in enumerate(row.messages):
        thought = f"<think>{message['reasoning']}</think>" if message.get("reasoning") else ""
        origin = f"[{names[message['tool_call_id']]} {message['tool_call_id']}] " if message["role"] == "tool" else ""
        turn = origin + thought + (message.get("content") or "") + "".join(map(_call, message.get("tool_calls") or []))
        text += f"<|im_start|>{message['role']}\n{turn}<|im_end|>\n"
        trained += [f"{turn}<|im_end|>"] if at in row.trained else []
    return text, trained


def _call(call) -> str:
    function = {**call["function"], "arguments": json.loads(call["function"]["arguments"])}
    return f"<tool_call>{json.dumps({**call, 'function': function})}</tool_call>"


def test_loss_falls_on_exactly_the_trained_messages_and_every_turn_is_shown_once(tmp_path):
    source = list(rows())
    report = export(source, AXOLOTL, tmp_path)
    assert (report.written, report.left_out) == (len(source), {})
    words = tokenizer(PLAIN)
    found = texts_and_trained(tokenized(config_of(tmp_path), words), words)
    assert found == [as_plain(row) for row in source]
    assert sum(len(trained) for _, trained in found) == report.trained_messages == 8
    assert CANARY not in (tmp_path / "train.jsonl").read_text()


def test_axolotl_turns_gives_each_trained_message_a_row_that_ends_with_it(tmp_path):
    source = list(rows())
    report = export(source, AXOLOTL_TURNS, tmp_path)
    words = tokenizer(PLAIN)
    found = texts_and_trained(tokenized(config_of(tmp_path), words), words)
    wanted = [(as_plain(row)[0], trained) for row in source for trained in as_plain(row)[1]]
    assert report.written == len(found) == len(wanted) == 8
    for (text, trained), (whole, reply) in zip(found, wanted, strict=True):
        assert trained == [reply]
        assert text.endswith(f"{reply}\n")
        assert whole.startswith(text)


@pytest.mark.parametrize("name", ["qwen_25", "qwen3", "qwen3_5", "exaone4"])
def test_templates_of_real_models_train_what_was_said_and_called_and_nothing_else(tmp_path, name):
    source = list(rows())
    export(source, AXOLOTL, tmp_path)
    words = tokenizer(template_of(name))
    for (text, trained), row in zip(
        texts_and_trained(tokenized(config_of(tmp_path), words), words), source, strict=True
    ):
        assert len(trained) == len(row.trained)
        for part, at in zip(trained, row.trained, strict=True):
            assert all(piece in part for piece in pieces(row.messages[at]))
        everything = [piece for message in row.messages for piece in pieces(message)]
        for at, message in enumerate(row.messages):
            for piece in pieces(message):
                assert text.count(piece) == sum(other.count(piece) for other in everything)
                assert at in row.trained or piece not in "".join(trained)


def pieces(message) -> list[str]:
    """What every template that knows tools writes of a message as it stands."""
    calls = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    content = message.get("content") or ""
    # JSON results and structured arguments are written differently by each template.
    said_once = [] if content.startswith("{") else [content]
    return [piece for piece in (*said_once, *(str(a["q"]) for a in calls if isinstance(a["q"], str))) if piece]


@pytest.mark.parametrize("name", ["qwen3", "gemma4"])
def test_axolotl_turns_trains_thoughts_and_no_results_where_templates_rewrite_history(tmp_path, name):
    source = list(rows())
    export(source, AXOLOTL_TURNS, tmp_path)
    words = tokenizer(template_of(name))
    found = texts_and_trained(tokenized(config_of(tmp_path), words), words)
    messages = [row.messages[at] for row in source for at in row.trained]
    for (_, trained), message in zip(found, messages, strict=True):
        assert len(trained) == 1
        assert "result" not in trained[0]
        if name == "qwen3":
            assert message["reasoning"] in trained[0]


def test_rows_load_as_they_are_though_the_first_call_comes_after_the_first_ten_megabytes(tmp_path):
    long = TrainingRow(id="p", messages=[{"role": "user", "content": "x" * 4_000}, said("yes")], trained=(1,))
    called = [{"role": "user", "content": "?"}, said(None, "thought", [("search", {"q": 0.41, "n": [1, None]})])]
    metadata = {"reward": 0.5, "tags": ["a", 1, None]}
    late = TrainingRow(id="c", messages=called, trained=(1,), tools=TOOLS, metadata=metadata)
    report = export([long] * 3_000 + [late] * 5, AXOLOTL, tmp_path)
    assert report.written == 3_005
    written = (tmp_path / "train.jsonl").read_bytes()
    assert min(written.index(b"tool_calls"), written.index(b"reward")) > 11 << 20
    found = loaded(config_of(tmp_path))
    assert as_converted(found[2_999]) == axolotl_row(long)
    assert [as_converted(row) for row in found.skip(3_000)] == [axolotl_row(late)] * 5
    assert [about(row)["metadata"] for row in found.skip(2_999)] == [{}] + [metadata] * 5


def test_a_row_that_is_too_long_is_an_error_and_not_dropped(tmp_path):
    from axolotl.utils.data.utils import handle_long_seq_in_dataset

    export(rows(), AXOLOTL, tmp_path)
    config = config_of(tmp_path)
    prepared = tokenized(config, tokenizer(PLAIN))
    assert len(handle_long_seq_in_dataset(prepared, 4_096, config)) == len(list(rows()))
    with pytest.raises(ValueError, match="exceeds the maximum"):
        handle_long_seq_in_dataset(prepared, 100, config)


def test_with_the_hermes_mapping_axolotl_trains_the_sampled_turns_of_hermes_rows_and_no_others(tmp_path):
    source = list(rows())
    export(source, HERMES, tmp_path)
    words = tokenizer(template_of("chatml"))
    found = texts_and_trained(tokenized(config_of(tmp_path), words), words)
    for (text, trained), row in zip(found, source, strict=True):
        turns = to_trajectory(row.messages, row.tools)
        roles = {"human": "user", "tool": "user", "gpt": "assistant", "system": "system"}
        assert text == "".join(f"<|im_start|>{roles[t['from']]}\n{t['value']}<|im_end|>\n" for t in turns)
        of_model = [turn["value"] for turn in turns if turn["from"] == "gpt"]
        replies = [at for at, message in enumerate(row.messages) if message["role"] == "assistant"]
        sampled = [value for value, at in zip(of_model, replies, strict=True) if at in row.trained]
        assert trained == [f"{value}<|im_end|>" for value in sampled]
    assert sum(len(trained) for _, trained in found) == 8
