"""One small case for each fault that was found at the borders, so that a failure names itself."""

import json
import re
import shutil

import pytest
import yaml

from stemma import Call, MessageGraph, open_store
from truth.paths import CommandFailed, export, imported, stemma
from truth.readers import TEXT_PRESETS, TOKEN_PRESETS, read_export, records, report_of, token_rows

ANSWER = {"role": "assistant", "content": "S9q the answer"}
PARSED = [preset for preset in TEXT_PRESETS if preset not in ("openai", "parquet")]


def asked(*more):
    return MessageGraph([{"role": "user", "content": "C1q question"}, *more])


def call(**fields):
    return Call(**{"model": "m", "finish_reason": "stop"} | fields)


def saved(tmp_path, *graphs, **metadata):
    with open_store(tmp_path / "found.db") as store:
        for number, graph in enumerate(graphs):
            store.save(graph, f"g{number}", metadata=metadata)
    return tmp_path / "found.db"


def trained(preset, folder):
    """The turns that a trainer would train."""
    return [turn for row in read_export(preset, folder).rows for turn in row.turns if turn.trained]


def after_one_reply(tmp_path, reply, preset, *options, **fields):
    """The export of a conversation in which `reply` stands before a plain answer."""
    graph = asked()
    graph.record(reply, call(**fields))
    graph.append({"role": "user", "content": "C2q and then?"})
    graph.record(ANSWER, call())
    return export(saved(tmp_path, graph), preset, tmp_path / preset, *options)


def left_out(folder):
    return {reason: about["replies"] for reason, about in report_of(folder)["left_out"].items()}


# ── what is no chat message ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_anthropic_blocks_are_trained_as_thought_text_and_calls(tmp_path, preset):
    graph = asked()
    blocks = [
        {"type": "thinking", "thinking": "S1q hm", "signature": "c2ln"},
        {"type": "text", "text": "S2q I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "S3q"}},
    ]
    graph.record({"role": "assistant", "content": blocks}, call())
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "C2q found"}
    graph.append({"role": "user", "content": [result, {"type": "text", "text": "C3q go on"}]})
    graph.record({"role": "assistant", "content": [{"type": "text", "text": "S4q done"}]}, call())
    folder = export(saved(tmp_path, graph), preset, tmp_path / preset)
    one, two = trained(preset, folder)
    assert [found.name for found in one.calls] == ["search"]
    assert "tool_use" not in one.text
    assert one.marks() == ("S1q", "S2q", "S3q")
    assert two.text.replace("<think>\n</think>\n", "") == "S4q done"


@pytest.mark.parametrize("preset", ["openai", "trl", "axolotl"])
def test_results_of_anthropic_calls_are_tool_messages_with_their_ids(tmp_path, preset):
    graph = asked()
    use = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "S3q"}}
    graph.record({"role": "assistant", "content": [use]}, call())
    graph.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "C2q found"}]}
    )
    graph.record(ANSWER, call())
    (record,) = records(export(saved(tmp_path, graph), preset, tmp_path / preset))
    messages = record["messages"] if "messages" in record else [*record["prompt"], *record["completion"]]
    (result,) = [message for message in messages if message["role"] == "tool"]
    assert (result["tool_call_id"], result["content"]) == ("toolu_1", "C2q found")
    assert next(m for m in messages if m.get("tool_calls"))["tool_calls"][0]["id"] == "toolu_1"


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_responses_items_are_trained_as_thought_text_and_calls(tmp_path, preset):
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "S1q hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "S2q I look"}]},
        {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": '{"q": "S3q"}'},
    ]
    graph = asked()
    graph.record({"role": "assistant", "content": items}, call())
    (turn,) = trained(preset, export(saved(tmp_path, graph), preset, tmp_path / preset))
    assert turn.marks() == ("S1q", "S2q", "S3q")
    assert [found.name for found in turn.calls] == ["search"]
    assert "function_call" not in turn.text


NOT_TEXT = {
    "refusal": {"content": None, "refusal": "S1q no"},
    "refusal part": {"content": [{"type": "refusal", "refusal": "S1q no"}]},
    "function_call": {"content": None, "function_call": {"name": "search", "arguments": '{"q": "S1q"}'}},
    "audio": {"content": None, "audio": {"id": "a", "data": "AAAA", "transcript": "S1q"}},
    "image": {"content": [{"type": "text", "text": "S1q"}, {"type": "image_url", "image_url": {"url": "data:,"}}]},
    "custom call": {
        "content": None,
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "shell", "input": "S1q"}}],
    },
    "redacted thinking": {"content": [{"type": "redacted_thinking", "data": "AA"}, {"type": "text", "text": "S1q"}]},
    "empty": {"content": ""},
    "null": {"content": None},
}


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("what", NOT_TEXT)
def test_a_reply_that_is_no_text_is_left_out_and_counted(tmp_path, what, preset):
    folder = after_one_reply(tmp_path, {"role": "assistant", **NOT_TEXT[what]}, preset)
    texts = [turn.text for turn in trained(preset, folder)]
    assert all("S9q" in text for text in texts)
    report = report_of(folder)
    assert report["replies"] == 2
    assert report["trained_messages"] == len(texts)
    assert sum(left_out(folder).values()) == 2 - len(texts)


@pytest.mark.parametrize("preset", PARSED)
@pytest.mark.parametrize("arguments", ['{"q": "S1q', "", "[1]", '"S1q"', "null"])
def test_arguments_that_are_no_object_are_not_trained_as_one(tmp_path, arguments, preset):
    broken = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": arguments}}
    folder = after_one_reply(tmp_path, {"role": "assistant", "content": "S1q", "tool_calls": [broken]}, preset)
    assert not [turn for turn in trained(preset, folder) if turn.calls]
    assert sum(left_out(folder).values()) >= 1


@pytest.mark.parametrize("preset", ["openai", "parquet"])
def test_a_format_that_keeps_arguments_as_text_trains_broken_ones_as_they_were(tmp_path, preset):
    graph = asked()
    broken = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "S1q'}}
    graph.record({"role": "assistant", "content": None, "tool_calls": [broken]}, call())
    (turn,) = trained(preset, export(saved(tmp_path, graph), preset, tmp_path / preset))
    assert turn.calls[0].arguments == '{"q": "S1q'


# ── what nobody may train ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("extra", [{"trainable": False}, {"delivered": False}], ids=str)
def test_an_untrainable_or_undelivered_reply_is_not_trained(tmp_path, extra, preset):
    folder = after_one_reply(tmp_path, {"role": "assistant", "content": "S1q"}, preset, extra=extra)
    assert not [turn for turn in trained(preset, folder) if "S1q" in turn.text]
    assert sum(left_out(folder).values()) + report_of(folder)["trained_messages"] == 2


@pytest.mark.parametrize("extra", [{"trainable": False}, {"delivered": False}], ids=str)
def test_rows_do_not_train_an_untrainable_or_undelivered_reply(extra):
    graph = asked()
    graph.record({"role": "assistant", "content": "S1q"}, call(extra=extra))
    graph.append({"role": "user", "content": "C2q"})
    graph.record(ANSWER, call())
    assert [row.trained for row in graph.rows()] == [(3,)]


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_a_truncated_reply_is_trained_only_if_asked_for(tmp_path, preset):
    cut = {"role": "assistant", "content": "S1q cut off in the mid"}
    for name in ("no", "yes"):
        (tmp_path / name).mkdir()
    folder = after_one_reply(tmp_path / "no", cut, preset, finish_reason="length")
    assert not [turn for turn in trained(preset, folder) if "S1q" in turn.text]
    assert left_out(folder).get("truncated", 0) >= 1
    folder = after_one_reply(tmp_path / "yes", cut, preset, "--keep-truncated", finish_reason="length")
    assert len([turn for turn in trained(preset, folder) if "S1q" in turn.text]) == 1


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_what_cannot_be_carried_leaves_out_what_comes_after_it_and_not_what_came_before(tmp_path, preset):
    graph = asked()
    graph.record({"role": "assistant", "content": "S1q before"}, call())
    graph.append({"role": "ipython", "content": "C2q of a role that no format knows"})
    graph.record(ANSWER, call())
    folder = export(saved(tmp_path, graph), preset, tmp_path / preset)
    texts = [turn.text for turn in trained(preset, folder)]
    assert [text for text in texts if "S1q" in text]
    assert len(texts) + sum(left_out(folder).values()) == 2


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_what_a_file_cannot_say_after_a_reply_does_not_leave_the_reply_out(tmp_path, preset):
    custom = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "H1q"}}
    messages = [
        {"role": "user", "content": "C1q"},
        {"role": "assistant", "content": "S1q"},
        {"role": "user", "content": "C2q"},
        {"role": "assistant", "content": None, "tool_calls": [custom], "weight": 0},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"messages": messages}) + "\n")
    assert [turn.marks() for turn in trained(preset, export(file, preset, tmp_path / preset))] == [("S1q",)]


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_arguments_that_are_null_are_not_trained_as_an_object(tmp_path, preset):
    null = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": None}}
    folder = after_one_reply(tmp_path, {"role": "assistant", "content": "S1q", "tool_calls": [null]}, preset)
    assert not [one for turn in trained(preset, folder) for one in turn.calls if one.arguments in ({}, "{}")]
    assert sum(left_out(folder).values()) + report_of(folder)["trained_messages"] == 2


@pytest.mark.parametrize("preset", ["trl-turns", "axolotl-turns", "llamafactory-turns"])
def test_a_row_names_differences_of_its_own_context_and_not_of_what_came_later(tmp_path, preset):
    graph = asked()
    graph.record({"role": "assistant", "content": "S1q"}, call())
    graph.append({"role": "developer", "content": "C2q"})
    graph.append({"role": "user", "content": "C3q"})
    graph.record(ANSWER, call())
    rows = read_export(preset, export(saved(tmp_path, graph), preset, tmp_path / preset)).rows
    first = next(row for row in rows if any(turn.trained and "S1q" in turn.text for turn in row.turns))
    assert first.record["on_policy"] is True


# ── our own rows, read back ──────────────────────────────────────────────────────────────────────────────────


def with_context_replies():
    """Three replies, one of them under an edited one, and one that was written by hand."""
    graph = MessageGraph([{"role": "system", "content": "C0q system"}, {"role": "user", "content": "C1q"}])
    graph.record({"role": "assistant", "content": "S1q"}, call())
    graph.append({"role": "user", "content": "C2q"})
    graph.append({"role": "assistant", "content": "H1q"})
    graph.append({"role": "user", "content": "C3q"})
    graph.record({"role": "assistant", "content": "S2q"}, call())
    graph[2]["content"] = "E1q"
    graph.append({"role": "user", "content": "C4q"})
    graph.record({"role": "assistant", "content": "S3q"}, call())
    return graph


@pytest.mark.parametrize("again", TEXT_PRESETS)
@pytest.mark.parametrize("first", ["hermes", "sharegpt", "openai", "axolotl"])
@pytest.mark.parametrize("way", ["import", "file"])
def test_context_is_not_trained_when_our_own_rows_are_read_back(tmp_path, way, first, again):
    folder = export(saved(tmp_path, with_context_replies()), first, tmp_path / "first")
    file = folder / "train.jsonl"
    source = imported(file, tmp_path / "again.db") if way == "import" else file
    found = [mark for turn in trained(again, export(source, again, tmp_path / "again")) for mark in turn.marks()]
    possible = ["S1q"] if again in ("llamafactory", "unsloth") else ["S1q", "S2q", "S3q"]
    assert sorted(found) == possible


@pytest.mark.parametrize("weight", [0, 1, None, 0.0, True, False])
def test_a_weight_means_the_same_to_import_and_to_export(tmp_path, weight):
    answer = {"role": "assistant", "content": "S1q", "weight": weight}
    entries = [
        {"messages": [{"role": "user", "content": "C1q"}, answer]},
        {"conversations": [{"from": "human", "value": "C2q"}, {"from": "gpt", "value": "S2q", "weight": weight}]},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    ways = {}
    for name, source in {"file": file, "import": imported(file, tmp_path / "rows.db")}.items():
        try:
            folder = export(source, "openai", tmp_path / name)
        except CommandFailed:  # nothing to train may be an error
            ways[name] = []
        else:
            ways[name] = sorted(turn.text for turn in trained("openai", folder))
    assert ways["file"] == ways["import"]
    if weight is not None:
        assert ways["file"] == (["S1q", "S2q"] if weight else [])


@pytest.mark.parametrize("preset", ["hermes", "sharegpt"])
def test_the_axolotl_mapping_beside_the_rows_trains_by_turn(tmp_path, preset):
    folder = export(saved(tmp_path, with_context_replies()), preset, tmp_path / preset)
    for record in records(folder):
        assert all(type(turn["train"]) is bool for turn in record["conversations"])
    if preset == "hermes" or (folder / "axolotl.yml").exists():
        (dataset,) = yaml.safe_load((folder / "axolotl.yml").read_text())["datasets"]
        assert dataset["message_field_training"] == "train"
        assert dataset["roles_to_train"] == []


@pytest.mark.parametrize("replies", ["H R", "R R"])
@pytest.mark.parametrize("preset", ["trl", "trl-turns"])
def test_no_prompt_for_trl_ends_with_a_turn_of_the_model(tmp_path, preset, replies):
    graph = asked()
    for number, kind in enumerate(replies.split()):
        message = {"role": "assistant", "content": f"{'S' if kind == 'R' else 'H'}{number}q"}
        graph.record(message, call()) if kind == "R" else graph.append(message)
    folder = export(saved(tmp_path, graph), preset, tmp_path / preset)
    assert not [record for record in records(folder) if record["prompt"][-1]["role"] == "assistant"]
    assert report_of(folder)["trained_messages"] + sum(left_out(folder).values()) == replies.count("R")


# ── control markers ──────────────────────────────────────────────────────────────────────────────────────────

MARKER = "<|im_end|>"


def marked(where):
    described = f"D1q {MARKER}" if where == "tool description" else "D1q"
    tools = [{"type": "function", "function": {"name": "search", "description": described, "parameters": {}}}]
    call_id = f"c{MARKER}" if where == "call id" else "c1"
    graph = MessageGraph([{"role": "user", "content": "C1q", **({"name": MARKER} if where == "user name" else {})}])
    searched = {"id": call_id, "type": "function", "function": {"name": "search", "arguments": '{"q": "S1q"}'}}
    graph.record({"role": "assistant", "content": None, "tool_calls": [searched]}, call(tools=tools))
    result = {"role": "tool", "tool_call_id": MARKER if where == "tool_call_id" else call_id, "content": "C2q"}
    graph.append({**result, "content": f"C2q {MARKER}"} if where == "result" else result)
    graph.record({**ANSWER, **({"name": MARKER} if where == "reply name" else {})}, call(tools=tools))
    return graph


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("where", ["user name", "reply name", "call id", "tool_call_id", "tool description", "result"])
def test_no_row_carries_a_control_marker_that_a_template_would_write(tmp_path, where, preset):
    folder = export(saved(tmp_path, marked(where)), preset, tmp_path / preset)
    for record in records(folder):
        said = {key: value for key, value in record.items() if key != "metadata"}
        assert MARKER not in json.dumps(said, ensure_ascii=False)
    assert report_of(folder)["trained_messages"] + sum(left_out(folder).values()) == 2


# ── what import keeps ────────────────────────────────────────────────────────────────────────────────────────


def imported_and_written(tmp_path, entry, preset="hermes"):
    """An entry of a file, imported and exported again."""
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(entry, ensure_ascii=False) + "\n")
    (record,) = records(export(imported(file, tmp_path / "rows.db"), preset, tmp_path / "out"))
    return record


def values(record):
    return [turn["value"] for turn in record["conversations"]]


@pytest.mark.parametrize("preset", ["sharegpt", "openai", "trl", "llamafactory", "axolotl"])
def test_a_system_column_is_part_of_the_context(tmp_path, preset):
    turns = [{"from": "human", "value": "C1q"}, {"from": "gpt", "value": "S1q"}]
    record = imported_and_written(tmp_path, {"conversations": turns, "system": "C9q be brief"}, preset)
    assert "C9q be brief" in json.dumps({key: value for key, value in record.items() if key != "metadata"})


def test_a_system_turn_that_is_not_generated_is_written_again(tmp_path):
    turns = [{"from": "system", "value": "C9q be brief"}, {"from": "human", "value": "C1q"}]
    turns += [{"from": "gpt", "value": "<think>\n</think>\nS1q"}]
    assert values(imported_and_written(tmp_path, {"conversations": turns}))[0] == "C9q be brief"


def hermes_row(tmp_path):
    """A row as `--for hermes` writes it."""
    graph = asked()
    searched = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "S1q"}'}}
    graph.record({"role": "assistant", "content": None, "tool_calls": [searched]}, call())
    graph.append({"role": "tool", "tool_call_id": "c1", "content": "C2q"})
    graph.record(ANSWER, call())
    (record,) = records(export(saved(tmp_path, graph), "hermes", tmp_path / "made"))
    return record


def test_a_notice_after_the_generated_prompt_is_written_again(tmp_path):
    record = hermes_row(tmp_path)
    record["conversations"][0]["value"] += "\n\nC9q Some of your previous tool responses may be summarized."
    assert values(imported_and_written(tmp_path, record))[0] == record["conversations"][0]["value"]


@pytest.mark.parametrize(
    "value",
    [
        '<think>\nS1q\n</think>\nS2q before\n<tool_call>\n{"name": "a", "arguments": {"q": "S3q"}}\n</tool_call>\nS4q',
        '<think>\n</think>\n<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\nS1q between\n'
        '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>',
        '<think>\n</think>\n<tool_call>\n{"name": "a", "arguments": {"q": "S1q"}, "id": "x", "y": "S2q"}\n</tool_call>',
        '<think>\n</think>\n<tool_call>\n{"arguments": {"q": "S1q"}, "name": "a"}\n</tool_call>',
    ],
    ids=["text after a call", "text between calls", "extra keys in a call", "keys in another order"],
)
def test_a_turn_that_was_read_is_written_again_as_it_was(tmp_path, value):
    turns = [{"from": "human", "value": "C1q"}, {"from": "gpt", "value": value}]
    assert values(imported_and_written(tmp_path, {"conversations": turns}))[-1] == value


def test_completed_and_timestamp_are_what_the_file_says(tmp_path):
    turns = [{"from": "human", "value": "C1q"}, {"from": "gpt", "value": "<think>\n</think>\nS1q"}]
    entry = {"conversations": turns, "completed": False, "timestamp": "2026-11-16T08:00:00.000001", "model": "m"}
    record = imported_and_written(tmp_path, entry)
    assert (record["completed"], record["timestamp"]) == (False, "2026-11-16T08:00:00.000001")


# ── the context that a format shows ──────────────────────────────────────────────────────────────────────────


def test_hermes_says_that_its_system_prompt_is_not_the_one_that_was_used(tmp_path):
    graph = MessageGraph([{"role": "system", "content": "C0q own prompt"}, {"role": "user", "content": "C1q"}])
    graph.record(ANSWER, call())
    folder = export(saved(tmp_path, graph), "hermes", tmp_path / "hermes")
    assert [record["on_policy"] for record in records(folder)] == [False]
    assert report_of(folder)["off_policy"] == 1


THOUGHTFUL = {**ANSWER, "reasoning": "S8q a thought, so that no empty one is added"}


def test_hermes_writes_the_prompt_that_was_used_if_asked_for(tmp_path):
    graph = MessageGraph([{"role": "system", "content": "C0q own prompt"}, {"role": "user", "content": "C1q"}])
    graph.record(THOUGHTFUL, call())
    (record,) = records(export(saved(tmp_path, graph), "hermes", tmp_path / "hermes", "--system", "own"))
    assert record["conversations"][0] == {"from": "system", "value": "C0q own prompt", "train": False}
    assert record["on_policy"] is True


def test_hermes_is_on_policy_where_the_conversation_used_that_prompt(tmp_path):
    graph = asked()
    graph.record(THOUGHTFUL, call())
    (record,) = records(export(saved(tmp_path, graph), "hermes", tmp_path / "one"))
    assert record["on_policy"] is False
    prompt = record["conversations"][0]["value"]
    graph = MessageGraph([{"role": "system", "content": prompt}, {"role": "user", "content": "C1q"}])
    graph.record(THOUGHTFUL, call())
    (tmp_path / "two").mkdir()
    (record,) = records(export(saved(tmp_path / "two", graph), "hermes", tmp_path / "again"))
    assert record["on_policy"] is True


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def token_graph(*, split=False, finish_reason="stop", number=0, **fields):
    """Two turns with ids of their own; `split` breaks the prefix, so that two rows are needed."""
    base = 100 * number
    graph = MessageGraph([{"role": "user", "content": f"C{number}q"}])
    tokens = {"prompt_ids": [1, 2], "sampled_ids": [base + 3, base + 4], "logprobs": [-0.5, -0.25]}
    graph.record({"role": "assistant", "content": "S1q"}, call(**tokens, **fields))
    graph.append({"role": "user", "content": "C9q"})
    prompt = [1, 2, base + (33 if split else 3), base + 4, 5]
    tokens = {"prompt_ids": prompt, "sampled_ids": [base + 6, base + 7], "logprobs": [-0.125, -1.0]}
    graph.record({"role": "assistant", "content": "S2q"}, call(**tokens, **fields | {"finish_reason": finish_reason}))
    return graph


def group(tmp_path, *graphs):
    with open_store(tmp_path / "group.db") as store:
        for number, graph in enumerate(graphs):
            store.save(graph, f"sample-{number}", metadata={"group": "prompt-1", "reward": number / 4})
    return tmp_path / "group.db"


def test_token_rows_say_how_they_were_sampled(tmp_path):
    store = group(tmp_path, token_graph(params={"temperature": 0.7, "top_p": 0.9}, finish_reason="length"))
    (record,) = records(export(store, "tokens", tmp_path / "tokens"))
    assert (record["temperature"], record["top_p"]) == (pytest.approx(0.7), pytest.approx(0.9))
    assert record["finish_reason"] == "length"
    assert "constrained" in record


@pytest.mark.parametrize("preset", TOKEN_PRESETS)
def test_a_truncated_reply_keeps_its_tokens(tmp_path, preset):
    store = group(tmp_path, token_graph(finish_reason="length"), token_graph(number=1))
    rows = token_rows(preset, export(store, preset, tmp_path / preset))
    trained_ids = [token for row in rows for token, on in zip(row.ids, row.trained, strict=True) if on]
    assert trained_ids == [3, 4, 6, 7, 103, 104, 106, 107]


def test_skyrl_groups_samples_of_one_prompt(tmp_path):
    store = group(tmp_path, token_graph(), token_graph(number=1))
    (output,) = records(export(store, "skyrl", tmp_path / "skyrl"))
    ids = [(one["instance_id"], one["repetition_id"]) for one in output["trajectory_ids"]]
    assert len({instance for instance, _ in ids}) == 1
    assert len(set(ids)) == 2


def test_skyrl_rows_of_a_split_rollout_are_steps_of_one_sample(tmp_path):
    store = group(tmp_path, token_graph(split=True), token_graph(number=1, split=True))
    (output,) = records(export(store, "skyrl", tmp_path / "skyrl"))
    ids = [(one["instance_id"], one["repetition_id"]) for one in output["trajectory_ids"]]
    assert len(ids) == 4
    assert len(set(ids)) == 2
    assert output["is_last_step"] == [False, True, False, True]


def test_trl_grpo_has_as_many_rows_a_group_as_it_has_generations(tmp_path):
    store = group(tmp_path, token_graph(split=True), token_graph(number=1), token_graph(number=2))
    folder = export(store, "trl-grpo", tmp_path / "grpo")
    by_rollout = [record["rollout_id"] for record in records(folder)]
    assert len(by_rollout) == len(set(by_rollout))


def test_slime_numbers_are_numbers_and_the_status_follows_the_finish_reason(tmp_path):
    store = group(tmp_path, token_graph(finish_reason="length"), token_graph(number=1))
    one, two = records(export(store, "slime", tmp_path / "slime"))
    assert all(type(record[name]) is int for record in (one, two) for name in ("index", "group_index"))
    assert one["group_index"] == two["group_index"]
    assert one["index"] != two["index"]
    assert (one["status"], two["status"]) == ("truncated", "completed")


def words_tokenizer(tmp_path, *, truncated):
    """A word a token; with a truncation to 8 tokens as some models ship it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, **{f"w{number}": number + 1 for number in range(100)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if truncated:
        tokenizer.enable_truncation(8)
    folder = tmp_path / f"tokenizer-{truncated}"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    return folder / "tokenizer.json"


def test_a_truncation_in_the_tokenizer_does_not_cut_counts(tmp_path):
    graph = MessageGraph([{"role": "user", "content": " ".join(f"w{number}" for number in range(100))}])
    graph.record({"role": "assistant", "content": "w1 w2"}, call())
    store = saved(tmp_path, graph)
    counts = [
        report_of(export(store, "trl", tmp_path / f"out-{truncated}", "--tokenizer",
                         str(words_tokenizer(tmp_path, truncated=truncated))))["tokens"]
        for truncated in (False, True)
    ]  # fmt: skip
    assert counts[0] == counts[1] > 100


def test_a_truncation_in_the_tokenizer_does_not_cut_distilled_contexts(tmp_path):
    graph = MessageGraph([{"role": "user", "content": " ".join(f"w{number}" for number in range(100))}])
    tokens = {"prompt_ids": [*range(1, 101), 50], "sampled_ids": [2, 3], "logprobs": [-1.0, -1.0]}
    graph.record({"role": "assistant", "content": "w1 w2"}, call(**tokens, extra={"ephemeral": "X1q"}))
    options = ("--distill", "--tokenizer", str(words_tokenizer(tmp_path, truncated=True)))
    (row,) = token_rows("tokens", export(saved(tmp_path, graph), "tokens", tmp_path / "tokens", *options))
    assert len(row.ids) == 102


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("trl", ("--distill",)),
        ("trl", ("--with-ephemeral",)),
        ("tokens", ("--allow-markers",)),
        ("tokens", ("--keep-truncated",)),
        ("trl", ("--system", "own")),
    ],
    ids=str,
)
def test_a_flag_without_effect_is_an_error(tmp_path, preset, options):
    store = group(tmp_path, token_graph())
    with pytest.raises(CommandFailed):
        export(store, preset, tmp_path / "out", *options)


def test_only_replies_of_the_model_that_was_asked_for_are_trained(tmp_path):
    graph = asked()
    graph.record({"role": "assistant", "content": "S1q"}, call(model="one"))
    graph.append({"role": "user", "content": "C2q"})
    graph.record({"role": "assistant", "content": "S2q"}, call(model="two"))
    try:
        folder = export(saved(tmp_path, graph), "trl", tmp_path / "trl", "--model", "two")
    except CommandFailed:
        return  # an error says so, too
    assert [turn.text for turn in trained("trl", folder)] == ["S2q"]
    assert left_out(folder) == {"other model": 1}


def test_merge_keeps_a_reward_that_was_set_in_a_copy(tmp_path):
    graph = asked()
    graph.record(ANSWER, call())
    one = saved(tmp_path, graph, reward=0.0)
    two = tmp_path / "copy.db"
    shutil.copy(one, two)
    with open_store(two) as store:
        store.save(store.load("g0"), "g0", metadata={"reward": 1.0})
    try:
        said = stemma("merge", one, two)
    except CommandFailed as problem:
        said = str(problem)
    with open_store(one) as store:
        kept = [store.metadata(name).get("reward") for name in store.names()]
    assert 1.0 in kept or re.search(r"conflict|differ", said)


def test_a_folder_that_is_exported_into_itself_does_not_multiply_its_rows(tmp_path):
    folder = export(saved(tmp_path, with_context_replies()), "openai", tmp_path / "data")
    first = len(list(records(folder)))
    for _ in range(2):
        try:
            export(folder, "openai", folder)
        except CommandFailed:
            break
    assert len(list(records(folder))) == first


def test_an_export_of_nothing_readable_is_an_error(tmp_path):
    (tmp_path / "broken.jsonl").write_text("no json\n{\n")
    with pytest.raises(CommandFailed):
        export(tmp_path / "broken.jsonl", "trl", tmp_path / "out")


def test_an_export_of_a_run_that_is_not_there_is_an_error(tmp_path):
    graph = asked()
    graph.record(ANSWER, call())
    store = saved(tmp_path, graph)
    for preset in ("trl", "tokens"):
        with pytest.raises(CommandFailed):
            export(store, preset, tmp_path / preset, "--run", "nowhere")
