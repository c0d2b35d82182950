"""A page becomes text that can be read, whatever it is, in time that grows with its size and not faster."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.tools.web_text import decode, readable

PAGE = """<!DOCTYPE html><html><head><title>Prime
 numbers</title><style>p { color: red }</style><script>if (a<b) document.write("<p>no</p>") <!-- </script></head>
<body><!-- a comment with <b>markup</b> --><h1>Primes &amp; more</h1>
<p>See   <a href="/seven">the
<b>seven</b></a>, <a href="#top">top</a> and <a href="javascript:x()">this</a>.<br>Next line.</p>
<ul><li>two<li>three</ul><pre>
  keep
    this</pre>
<table><tr><th>n</th><th>prime</th></tr><tr><td>4</td><td>no</td></tr></table>
<noscript>turn it on</noscript><svg><text>drawn</text></svg>5 < 7 <3</body></html>"""


def test_title_headings_lists_tables_and_links_are_kept_and_scripts_are_not():
    page = readable(PAGE, "http://example.org/a/b")
    assert page.title == "Prime numbers"
    assert page.text == (
        "# Primes & more\n\nSee [the seven](http://example.org/seven), top and this.\nNext line.\n\n- two\n- three\n\n"
        "  keep\n    this\n\n| n | prime\n| 4 | no\n\n5 < 7 <3"
    )


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("é".encode(), "", "é"),
        ("é".encode("latin-1"), "iso-8859-1", "é"),
        ("é".encode("utf-16"), "latin-1", "é"),
        (b'<meta charset="windows-1251">\xe6', "", '<meta charset="windows-1251">ж'),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">\x82\xa0', "", None),
        (b"\xff\xfe", "", ""),
        (b"a\xffb", "", "a\ufffdb"),
        (b"a", "no-such-charset", "a"),
        (b"61", "hex", "61"),
        (b"a", "undefined", "a"),
        (b"a", "zip\0", "a"),
    ],
)
def test_charsets_are_read_from_the_page_or_its_server_and_wrong_ones_do_no_harm(body, charset, text):
    found = decode(body, charset)
    assert found == text if text is not None else found.endswith("あ")


MARKUP = [
    "<", ">", "<!", "<!--", "-->", "</", "<a ", "<a b=", "<a b='", "'", '"', "&", "&#", "&amp", "<![", "<![CDATA[",
    "<?", "<!doctype ", "<script>", "</script>", "<style", "<title>", "</title", "<pre>", "<svg>", "<li>", "<a>",
    "</a>", "<a href='//[x'>", "\0", "İ", "x", " ", "\n", "<h1>", "<p>", "<td>", "<textarea>", "<plaintext>",
]  # fmt: skip


@given(st.lists(st.sampled_from(MARKUP) | st.text(st.characters())).map("".join))
def test_any_text_at_all_is_read_without_an_error(html):
    page = readable(html, "http://example.org/")
    assert isinstance(page.text, str)


@given(st.text(st.characters(exclude_characters="<>&\r", exclude_categories=["Cs", "Cc", "Z"]), min_size=1))
def test_plain_text_comes_out_as_it_went_in(text):
    assert readable(f"<p>{text}</p>").text == text


@pytest.mark.parametrize("piece", MARKUP)
def test_a_page_of_one_piece_repeated_is_read_in_linear_time(piece):
    begun = time.process_time()
    readable(piece * (100_000 // len(piece)) + ">")
    assert time.process_time() - begun < 3
