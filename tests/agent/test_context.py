"""What is sent: the line, and behind its system message what only this call sees."""

import pytest

from stemma.agent.context import Guidance, with_guidance

USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("system", "sent"),
    [
        ([], "now"),
        ([{"role": "system", "content": "S"}], "S\n\nnow"),
        ([{"role": "system", "content": ""}], "now"),
        ([{"role": "system", "content": None}], "now"),
        (
            [{"role": "system", "content": [{"type": "text", "text": "S"}]}],
            [{"type": "text", "text": "S"}, {"type": "text", "text": "now"}],
        ),
    ],
)
def test_an_ephemeral_prompt_stands_behind_the_system_message_whatever_its_form(system, sent):
    line = [*system, USER]
    before = [dict(message) for message in line]
    told = with_guidance(line, Guidance(ephemeral="now"))
    assert told == [{"role": "system", "content": sent}, USER]
    assert line == before


def test_prefill_stands_after_the_system_message():
    line = [{"role": "system", "content": "S"}, USER]
    hint = {"role": "user", "content": "hint"}
    assert with_guidance(line, Guidance(prefill=[hint])) == [line[0], hint, USER]
    assert Guidance(prefill=[hint]).notes() == {"prefill": [hint]}
