"""A page as text that a model can read: title, headings, lists, tables and links; no scripts, no styles, no markup.

    <h1>Primes</h1> <p>See <a href="/7">seven</a>.  →  # Primes

                                                       See [seven](http://example.org/7).

The standard library's parser needs time that grows with the square of some broken pages (an unended comment in every
line). `_tame` takes out what it trips over before it sees the page, so reading is linear in the page's size; and it is
done slice by slice, so that no single step keeps other threads waiting.
`tests/tools/test_web_text.py` and `tests/tools/test_heartbeat.py` prove it.
"""

import codecs
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin

import msgspec

_LONGEST_TAG = 20_000
_LONGEST_LINK = 10_000
_SLICE = 1 << 16
_SKIPPED = {"noscript", "template", "svg", "math", "iframe", "object", "canvas", "select"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer",
    "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_RAW = re.compile(r"(script|style)(?=[\s/>])", re.IGNORECASE)
_RAW_ENDS = {name: re.compile(rf"</{name}[^>]*>", re.IGNORECASE) for name in ("script", "style")}
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_BARE = re.compile(r"&(?![#a-zA-Z]|\Z)")
"""An ampersand that begins no reference. Where it is written as one, each that is left is a step of its own."""
_NO_CHARSETS = ("punycode", "idna")
"""Codecs for names, which take time that grows with the square of a page."""
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class Page(msgspec.Struct, frozen=True):
    """What a page says."""

    title: str
    text: str


def decode(body: bytes, charset: str = "") -> str:
    """The text of a page: as its own first bytes say, else as its server said, else as it says inside, else UTF-8."""
    for mark, name in _MARKS.items():
        if body.startswith(mark):
            return body.decode(name, "replace")
    declared = _DECLARED.search(body, 0, 2048)
    named = charset or (declared[1].decode("ascii") if declared else "utf-8")
    try:
        return body.decode("utf-8" if codecs.lookup(named).name in _NO_CHARSETS else named, "replace")
    except (LookupError, ValueError):  # a charset that nobody knows, or that is none
        return body.decode("utf-8", "replace")


def readable(html: str, base: str = "") -> Page:
    """The page that `html` is; links are made whole by `base`, its address."""
    reader = _Reader(base)
    for piece in _slices(_tame(html)):
        reader.feed(_BARE.sub("&amp;", piece))
    reader.close()
    return Page(title=" ".join(reader.title.split()), text=reader.text())


def _slices(text: str, at: int = 0) -> Iterator[str]:
    for start in range(at, len(text), _SLICE):
        yield text[start : start + _SLICE]


def _tame(html: str) -> str:
    """`html` without comments, declarations, scripts and styles, in which every `<` begins a tag that ends."""
    pieces, at, last = [], 0, html.rfind(">")
    while -1 < (start := html.find("<", at)) < last:
        pieces.append(html[at:start])
        kept, at = _next(html, start)
        pieces.append(kept)
    pieces += (piece.replace("<", "&lt;") for piece in _slices(html, at))
    return "".join(pieces)


def _next(html: str, start: int) -> tuple[str, int]:
    """What stays of whatever begins at `start`, and where to go on."""
    after = html[start + 1 : start + 3]
    if html.startswith("<!--", start):
        return "", _behind("-->", html, start)
    if after[:1] in ("!", "?"):
        return "", _behind(">", html, start)
    if not after.lstrip("/")[:1].isalpha():
        return "&lt;", start + 1
    if raw := _RAW.match(html, start + 1):
        end = _RAW_ENDS[raw[1].lower()].search(html, raw.end())
        return "", end.end() if end else len(html)
    end_of_tag = html.index(">", start) + 1  # there is one: the caller saw it
    return html[start:end_of_tag] if end_of_tag - start <= _LONGEST_TAG else "", end_of_tag


def _behind(mark: str, html: str, start: int) -> int:
    found = html.find(mark, start)
    return len(html) if found == -1 else found + len(mark)


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = base
        self._pieces: list[str] = []
        self._skipping = self._in_title = self._verbatim = 0
        self._link: tuple[str, int] | None = None
        """Where the open link leads, and where its text begins; a link inside a link ends the outer one."""

    def text(self) -> str:
        """All that was said, without spaces at the ends of lines, and never two empty lines together."""
        lines: list[str] = []
        for line in _lines("".join(self._pieces)):
            said = line.rstrip()
            if said or (lines and lines[-1]):
                lines.append(said)
        return "\n".join(lines).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping += 1
        elif tag == "title":
            self._in_title += 1
        elif tag == "a":
            self._link = (dict(attrs).get("href") or "", len(self._pieces))
        elif tag in ("td", "th"):
            self._add(" | ")
        elif tag in ("br", "tr", "li"):
            self._add("\n- " if tag == "li" else "\n")
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._add("\n\n" + _HEADINGS.get(tag, ""))
            self._verbatim += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skipping = max(self._skipping - 1, 0)
        elif tag == "title":
            self._in_title = 0
        elif tag == "a":
            self._end_link()
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._add("\n\n")
            self._verbatim = 0 if tag == "pre" else self._verbatim

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data[:1000] if len(self.title) < 1000 else ""
        else:
            for piece in _slices(data):
                self._add(piece if self._verbatim else re.sub(r"\s+", " ", piece))

    def _add(self, text: str) -> None:
        if self._skipping:
            return
        at_start = not self._pieces or self._pieces[-1].endswith(("\n", " "))
        self._pieces.append(text.lstrip(" ") if at_start and not self._verbatim else text)

    def _end_link(self) -> None:
        """What was said inside a link, with where it leads."""
        link, self._link = self._link, None
        if link is None or not (target := _whole(self._base, link[0])):
            return
        inside = self._pieces[link[1] :]
        if sum(map(len, inside)) > _LONGEST_LINK:  # a page that never ended it
            return
        if said := " ".join("".join(inside).split()):
            self._pieces[link[1] :] = [f"[{said}]({target})"]


def _lines(text: str) -> Iterator[str]:
    held = ""
    for piece in _slices(text):
        *whole, held = (held + piece).split("\n")
        yield from whole
    yield held


def _whole(base: str, href: str) -> str:
    """The address that a link leads to; nothing if it leads nowhere that could be read."""
    try:
        target = urljoin(base, href.strip())
    except ValueError:
        return ""
    return target if target.startswith(("http://", "https://")) and not href.startswith("#") else ""
