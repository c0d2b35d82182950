"""A chat template's effects on the rows of an export are counted: what it drops, what it adds, what is too long."""

import json

import pytest

from stemma import Call, MessageGraph
from stemma.errors import BadRecord
from stemma.formats.chat_template import compile_template
from stemma.formats.export import export
from stemma.formats.presets import preset
from stemma.formats.template_check import TemplateInspector
from stemma.formats.training import rows_of_graph

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'stemmata[tokens]'")
pytest.importorskip("jinja2", reason="needs jinja2: pip install 'stemmata[tokens]'")

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}"
WHOLE = (
    "{{ tools | tojson if tools else '' }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
)
EMPTY_THINK = PLAIN.replace(
    "{{ m.content }}", "{% if m.role == 'assistant' %}<think>\n\n</think>{% endif %}{{ m.content }}"
)


@pytest.fixture
def folder(tmp_path):
    def write(template):
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        words.enable_truncation(2)
        words.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        return tmp_path

    return write


def rows():
    graph = MessageGraph([{"role": "system", "content": "be kind"}, {"role": "user", "content": "where <b>is</b> it?"}])
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"for": "the <cat>"}'}}
    said = {"role": "assistant", "content": None, "reasoning": "thinking hard", "tool_calls": [call]}
    graph.record(said, Call(model="m", tools=TOOLS))
    graph.append({"role": "tool", "tool_call_id": "c", "content": "on the mat"})
    graph.record({"role": "assistant", "content": "there"}, Call(model="m", tools=TOOLS))
    return list(rows_of_graph(graph, {}, name="talk"))


def report(folder, out, max_length=None, name="trl"):
    return export(rows(), preset(name), out, inspector=TemplateInspector(folder, max_length))


def test_a_template_that_writes_everything_drops_nothing(folder, tmp_path):
    assert report(folder(WHOLE), tmp_path / "out").template == {"rows": 1}


def test_what_a_template_drops_is_counted(folder, tmp_path):
    found = report(folder(PLAIN), tmp_path / "out").template
    assert found == {"rows": 1, "tools dropped": 1, "reasoning dropped": 1, "tool calls dropped": 2}


def test_an_empty_thought_that_nobody_sampled_is_counted(folder, tmp_path):
    assert report(folder(EMPTY_THINK), tmp_path / "out").template["empty think added"] == 2


def test_a_template_that_refuses_a_row_is_counted(folder, tmp_path):
    refusing = "{{ raise_exception('no system role') }}"
    assert report(folder(refusing), tmp_path / "out").template == {"rows": 1, "rows refused": 1}


def test_replies_that_end_beyond_the_longest_row_are_left_out_and_the_others_stay(folder, tmp_path):
    whole = report(folder(WHOLE), tmp_path / "whole")
    assert whole.tokens > 20
    short = report(folder(WHOLE), tmp_path / "short", max_length=whole.tokens - 1)
    assert (short.written, short.trained_messages) == (1, 1)
    assert short.left_out["over-long"].replies == 1
    assert "would be cut" in short.left_out["over-long"].detail


def test_tokens_are_counted_as_hermes_text_where_there_is_no_template(folder, tmp_path):
    where = folder(PLAIN)
    (where / "tokenizer_config.json").unlink()
    made = report(where, tmp_path / "out", name="hermes")
    assert made.template is None
    assert made.tokens == sum(len(turn["value"].split()) for turn in made.sample["conversations"])


def test_templates_write_json_as_models_see_it_and_may_mark_what_is_generated():
    template = compile_template("{% generation %}{{ x | tojson }}{% endgeneration %}|{{ x | tojson(indent=1) }}")
    assert template.render(x={"a": "<é>"}) == '{"a": "<é>"}|{\n "a": "<é>"\n}'


@pytest.mark.parametrize(
    "template", ["{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"]
)
def test_a_template_that_fails_in_any_way_refuses_the_row(folder, tmp_path, template):
    told = report(folder(template), tmp_path / "out")
    assert told.template == {"rows": 1, "rows refused": 1}
    assert told.trained_messages == 2


@pytest.mark.parametrize("template", [WHOLE, None])
@pytest.mark.parametrize("max_length", [None, 1000])
@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("openai", {"role": "user", "content": "q"}),
        ("parquet", {"role": "user", "content": [{"type": "image"}]}),
        ("parquet", {"role": "narrator", "content": "q"}),
    ],
)
def test_rows_that_a_template_was_not_written_for_are_written_as_without_one(
    folder, tmp_path, template, max_length, name, before
):
    broken = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{cut"}}
    graph = MessageGraph([before])
    graph.record({"role": "assistant", "content": "", "tool_calls": [broken]}, Call(model="m"))
    inspector = TemplateInspector(folder(template), max_length)
    told = export(rows_of_graph(graph, {}, name="talk"), preset(name), tmp_path / "out", inspector=inspector)
    assert (told.trained_messages, told.left_out) == (1, {})
    assert told.template is None if template is None else told.template["rows"] == 1


def test_what_is_no_template_is_said_at_once(folder):
    with pytest.raises(BadRecord, match="chat template"):
        TemplateInspector(folder("{% for %}"))
