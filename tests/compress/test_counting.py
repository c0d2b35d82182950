"""Tokens: each kind of tokenizer counts what it should, templates included, and none runs code or goes out."""

import asyncio
import json
from pathlib import Path

import pytest

from compress.endpoint import endpoint
from compress.rows import Words
from compress.tokenizer_files import save, tokenizer
from stemma.compress.counters import open_counter
from stemma.compress.errors import BadTokenizer
from stemma.compress.stream import counted, job
from stemma.errors import MissingExtra, NotFound

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
)
TURNS = [
    {"from": "system", "value": "You are a tool."},
    {"from": "human", "value": "Run the tests!"},
    {"from": "gpt", "value": '<tool_call>\n{"name": "run"}\n</tool_call>'},
    {"from": "tool", "value": "2 passed, 1 failed 中文"},
]


def using(name, do, hub=Path("nowhere"), **more):
    async def go():
        counter = await open_counter(str(name), hub=hub, **more)
        try:
            return await do(counter)
        finally:
            await counter.close()

    return asyncio.run(go())


def count(name, *texts, **more):
    return using(name, lambda counter: counter.count(list(texts)), **more)


def total(name, turns=TURNS, **more):
    async def do(counter):
        return (await counted([job(turns, None)], counter))[0].total

    return using(name, do, **more)


def encoded(text):
    return len(tokenizer().encode(text, add_special_tokens=False))


def test_a_tokenizer_file_counts_as_the_library_does(tmp_path):
    folder = save(tmp_path)
    texts = [turn["value"] for turn in TURNS] * 50
    assert count(folder, *texts) == [encoded(text) for text in texts]
    assert count(folder / "tokenizer.json", "a b") == [encoded("a b")]
    assert count(folder, "\ud800 lone") == [encoded("? lone")]


@pytest.mark.parametrize("where", ["config", "list", "file"])
def test_the_chat_template_is_counted_as_if_it_were_rendered(tmp_path, where):
    folder = save(tmp_path)
    config = {"bos_token": {"content": "<|im_end|>"}}
    if where == "config":
        config["chat_template"] = CHATML
    elif where == "list":
        config["chat_template"] = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]
    else:
        (folder / "chat_template.jinja").write_text(CHATML)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    names = {"human": "user", "gpt": "assistant"}
    whole = "<|im_end|>" + "".join(
        f"<|im_start|>{names.get(turn['from'], turn['from'])}\n{turn['value']}<|im_end|>\n" for turn in TURNS
    )
    assert total(folder) == encoded(whole)


def test_a_template_that_refuses_an_order_still_counts_its_frames(tmp_path):
    folder = save(tmp_path)
    (folder / "chat_template.jinja").write_text(STRICT)
    bare = sum(encoded(turn["value"]) for turn in TURNS)
    assert bare + 2 * len(TURNS) <= total(folder) <= bare + 3 * len(TURNS), "rather too much than too little"


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path):
    folder = save(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    assert total(folder) == sum(encoded(turn["value"]) for turn in TURNS)


def test_a_hub_id_is_found_in_the_cache_of_this_machine_only(tmp_path):
    kept = tmp_path / "models--org--name"
    save(kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    assert count("org/name", "a b", hub=tmp_path) == [encoded("a b")]
    with pytest.raises(NotFound, match=r"no tokenizer 'org/other' on this machine.*estimate"):
        count("org/other", "a", hub=tmp_path)
    (kept / "snapshots" / "abc" / "tokenizer.json").unlink()
    with pytest.raises(NotFound, match=r"without a tokenizer.json"):
        count("org/name", "a", hub=tmp_path)


def test_code_of_a_tokenizer_is_not_run_and_may_be_refused(tmp_path):
    folder = save(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert count(folder, "a b", trust_remote_code=True) == [encoded("a b")]
    with pytest.raises(BadTokenizer, match="code of its own"):
        count(folder, "a b", trust_remote_code=False)
    assert not (tmp_path / "ran").exists()


def test_a_limit_in_the_file_does_not_cut_what_is_counted(tmp_path):
    made = tokenizer()
    made.enable_truncation(3)
    try:
        save(tmp_path)
    finally:
        made.no_truncation()
    text = "one two three four five six seven"
    assert count(tmp_path, text) == [encoded(text)]


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_an_endpoint_counts(engine):
    with endpoint() as served:
        served.engine = engine
        assert count(served.url, "a b c", "", "d") == [3, 0, 1]
        assert count(f"{served.url}/v1", "a b") == [2]
        served.template = "{% for m in messages %}open {{ m.content }} close {% endfor %}"
        assert total(served.url) == sum(len(turn["value"].split()) for turn in TURNS) + 2 * len(TURNS)


def test_an_endpoint_that_does_not_count_is_told_at_once():
    with endpoint() as served:
        served.engine = "other"
        with pytest.raises(BadTokenizer, match="no token count"):
            count(served.url, "a")
    with pytest.raises(BadTokenizer, match="cannot be reached"):
        count("http://127.0.0.1:9", "a")


def test_a_gguf_needs_the_extra_or_counts(tmp_path):
    with pytest.raises(NotFound, match=r"there is no .*gone\.gguf"):
        count(tmp_path / "gone.gguf", "a")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    try:
        import xllamacpp  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"stemmata\[local\]"):
            count(tmp_path / "m.gguf", "a")


def test_an_estimate_is_four_bytes_a_token():
    assert count("estimate", "", "abcd", "abcde", "中文") == [0, 1, 2, 2]


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadTokenizer, match=r"is no tokenizer\.json"):
        count(tmp_path, "a")


def test_tools_offered_beside_the_turns_count():
    async def go():
        plain, more = await counted([job(TURNS, None), job(TURNS, None, "one two three")], Words())
        return more.total - plain.total

    assert asyncio.run(go()) == 3
