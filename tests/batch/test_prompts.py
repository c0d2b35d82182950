import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.agent.limits import Limits
from stemma.batch.prompts import BadPrompt, as_row, read_rows


def test_a_text_is_a_prompt():
    row = as_row("Hi!", 3)
    assert (row.index, row.text, row.turns) == (3, "Hi!", (({"role": "user", "content": "Hi!"},),))


def test_a_list_of_texts_is_asked_one_after_the_other():
    row = as_row({"prompt": ["one", "two"]}, 0)
    assert [turn[0]["content"] for turn in row.turns] == ["one", "two"]


def test_a_list_of_messages_is_one_turn_and_its_system_message_the_system_prompt():
    said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi!"}]
    row = as_row({"prompt": said}, 0)
    assert (row.system, row.turns) == ("Be kind.", ((said[1],),))
    assert row.text == "Hi!"


def test_a_row_names_its_tools_place_limits_and_files():
    row = as_row(
        {
            "prompt": "p",
            "tools": "file, web",
            "image": "debian",
            "cwd": "/src",
            "limits": {"turns": 3},
            "files": {"a/b.txt": "x"},
            "id": 7,
        },
        0,
    )
    assert (row.toolsets, row.image, row.cwd, row.id) == (("file", "web"), "debian", "/src", "7")
    assert (row.limits, row.files, row.metadata) == (Limits(turns=3), {"a/b.txt": "x"}, {})
    assert as_row({"prompt": "p", "docker_image": "debian"}, 0).image == "debian"
    assert as_row({"prompt": "p", "toolsets": []}, 0).toolsets == (), "no tools is not the same as not said"
    assert as_row("p", 0).toolsets is None


@given(
    st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(-(2**53), 2**53), st.lists(st.booleans())))
)
def test_all_other_columns_are_carried_along(columns):
    own = {"prompt", "system", "toolsets", "tools", "limits", "image", "docker_image", "cwd", "files", "id"}
    others = {name: value for name, value in columns.items() if name not in own}
    assert as_row({**others, "prompt": "p"}, 0).metadata == others


def test_the_key_is_of_what_a_row_says_and_of_nothing_else():
    one, two = as_row({"prompt": "p", "a": 1, "b": 2}, 0), as_row({"b": 2, "a": 1, "prompt": "p"}, 9)
    assert one.key == two.key
    assert as_row({"prompt": "p", "a": 1, "b": 3}, 0).key != one.key
    assert as_row("p", 0).key == as_row({"prompt": "p"}, 0).key


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({}, "`prompt` is a text"),
        ({"prompt": "  "}, "`prompt` is a text"),
        ({"prompt": []}, "`prompt` is a text"),
        ({"prompt": ["one", 2]}, "`prompt` is a text"),
        ({"prompt": [{"content": "no role"}]}, "`prompt` is a text"),
        ({"prompt": [{"role": "system", "content": "alone"}]}, "nothing to answer"),
        ({"prompt": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "system": "c"}, "one of"),
        ({"prompt": "p", "system": 3}, "`system` is a text"),
        ({"prompt": "p", "tools": 3}, "`toolsets` is a list of names"),
        ({"prompt": "p", "limits": {"turns": "many"}}, "turns"),
        ({"prompt": "p", "files": ["a"]}, "`files` is an object"),
        ({"prompt": "p", "files": {"../a": "x"}}, "does not lie inside"),
        ({"prompt": "p", "files": {"/etc/a": "x"}}, "does not lie inside"),
        ({"prompt": "p", "x": float("nan")}, "row 5"),
        ({"prompt": "p", "x": object()}, "row 5"),
        (17, "row 5"),
        ({"prompt": "p", "limits": {"turn": 3}}, "`limits` has no key 'turn'; it takes turns, tokens, seconds, cost"),
        ({"prompt": "p", "limits": [3]}, "`limits` is an object"),
        ({"prompt": [{"role": "user", "content": "a"}, {"role": "function", "content": "b"}]}, "'function'"),
        ({"prompt": [{"role": "narrator", "content": "a"}]}, "message 0 has the role 'narrator'"),
        ({"prompt": [{"role": "assistant", "content": "a", "tool_calls": 5}]}, "cannot be written as a trajectory"),
    ],
)
def test_a_row_that_cannot_be_asked_is_named_with_the_reason(row, complaint):
    with pytest.raises(BadPrompt, match=complaint) as refused:
        as_row(row, 4)
    assert "row 5" in str(refused.value)


def test_rows_of_a_file_are_read_one_at_a_time_and_the_bad_one_is_named_with_its_file(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"prompt": 3}\n')
    rows = read_rows(file)
    assert next(rows).text == "a"
    with pytest.raises(BadPrompt, match=r"p\.jsonl, row 2"):
        next(rows)


@pytest.mark.parametrize("limits", [{"turns": 0}, {"turns": -1}, {"seconds": -0.5}, {"tokens": 0}])
def test_a_limit_that_allows_nothing_is_refused(limits):
    with pytest.raises(BadPrompt, match="greater than 0"):
        as_row({"prompt": "q", "limits": limits}, 0)
