"""Nothing that a terminal would act on gets through `visible`; everything else does."""

import sys
import unicodedata

import pytest

from stemma.cli.screen import as_json, cut, pad, visible

SIGNS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Formats that are seen: signs which stand around the digits and letters that follow."""

ORDINARY = ["é", "日本語", "😀", "❤️", "→", "\xa0", "\u3000", "e\u0301", "\\x1b", "؟", "שלום", "\ufffd", "\ue000"]


def test_every_control_format_surrogate_and_separator_is_spelt_out():
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in SIGNS:
            assert visible(chr(code)).startswith("\\"), hex(code)


def test_every_noncharacter_is_spelt_out():
    for plane in range(0, sys.maxunicode + 1, 0x10000):
        assert visible(chr(plane + 0xFFFE)) == (f"\\u{plane + 0xFFFE:04x}" if not plane else f"\\U{plane + 0xFFFE:08x}")
        assert visible(chr(plane + 0xFFFF)).endswith("ffff")
    assert visible("\ufdd0\ufdef") == "\\ufdd0\\ufdef"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str):
    assert visible(text) == text


def test_a_block_keeps_newlines_and_tabs_and_nothing_else():
    assert visible("a\n\tb\r\x0b\x1b", block=True) == "a\n\tb\\r\\x0b\\x1b"
    assert visible("a\n\tb") == "a\\n\\tb"


def test_a_cut_text_is_never_wider_than_it_may_be():
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語です", 6) == "日本…"
    assert cut("abc", 0) == "…"
    assert pad("日", 4) + "|" == "日  |"
    assert pad("7", 3, right=True) == "  7"


def test_json_is_ascii_without_controls():
    text = as_json({"\x7f\ud800": "\x1b\x9b\u202e\u2028é\udfff"})
    assert text.isascii()
    assert not any(ord(char) < 0x20 and char != "\n" for char in text)
    assert "\x7f" not in text
