"""What is secret, and how it is kept out of what is shown, written or given to a model.

Two questions have their one answer here. *Which values are secret?* `is_secret` has the list of names, and `secrets_in`
finds the values in headers, environments, parameters, arguments and URLs. *How do they go?* A `Redactor` replaces the
exact values it was given, in the forms in which programs show them: as they are, inside JSON, in a repr, in a URL, in
HTML, in hex, and in base64 wherever in the encoded text they are. It guesses nothing: a rule that looks for what looks
like a key misses some vendors and mangles what users wrote. Text is redacted before it is cut, never after: half a key
no longer matches. Text that comes in pieces goes through a `RedactedStream`, which holds back what may be the beginning
of a secret.

Not found: other forms (split by something, reversed, compressed, encrypted). Not taken for secrets are values that
protect nothing and are also words: those under eight characters (`EMPTY`, `none`), usual placeholders, and single words
in variables that nobody names as a key (`DB_PASSWORD=postgres`). `tests/test_redact.py` proves it.
"""

import base64
import json
import re
from binascii import Error as BadBase64
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

MASK = "[secret]"
SHORTEST = 8
PLACEHOLDERS = frozenset(
    {
        *("anything", "lm-studio", "no-api-key", "no-key-required", "not-needed", "not-required", "placeholder"),
        *("sk-no-key-required", "token-abc123", "your-api-key"),
    }
)
"""Keys that endpoints without keys are given."""

# ── which values are secret ──────────────────────────────────────────────────────────────────────────────────────

_WORDS = (
    "auth|authorization|authentication|bearer|jwt|key|apikeys?|api_keys|pass|pwd|creds?|credentials?|sig|signature|pat"
    "|(?:api|access|account|auth|client|deploy|encryption|license|master|private|secret|service|session|signing|ssh)key"
    "|[a-z]*(?:token|secrets?|passw(?:or)?d|passphrase|cookie)"
)
_NAME = re.compile(rf"(?<![a-z])(?<!cache_)(?:{_WORDS})(?![a-z])(?!_env$)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|apikey|api-key|key|bot)\s+(\S+)", re.IGNORECASE)
_OPAQUE = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16,}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
"""Letters mixed with digits, longer than words are; or a UUID."""
_PUBLIC = re.compile(r"model|deployment|version|region|commit", re.IGNORECASE)
"""Names of what may look random and is none."""
_PATH = re.compile(r"[/~.]\S*|<.*>")
"""A path, or a token such as `<|end|>`: what a name with `key` or `token` in it often holds."""
_WORD = re.compile(r"[A-Za-z\s_-]{0,15}|[0-9.,]{0,11}")
"""A word or a number: such a password would be replaced in every text that speaks of other things."""
_USERINFO = re.compile(r"(?P<before>://)(?P<said>[^/@\s?#]*)@|(?P<start>^|[\s\"'=/])(?P<pair>[^/@\s:\"'=]+:[^/@\s]+)@")
_QUERY = re.compile(r"(?P<before>^|[?&;#])(?P<name>[^=&;\s#?]+)=(?P<said>[^&\s#\"'<>]+)")
_PERCENT = re.compile("%[0-9A-F]{2}")
_FLAG = re.compile(r"(--?[^=\s]+)(?:=(.*))?", re.DOTALL)


def names_a_secret(name: str) -> bool:
    """Whether a header, variable, parameter or flag of this name holds a secret.

    >>> [names_a_secret(name) for name in ("X-Api-Key", "GITHUB_TOKEN", "clientSecret", "Authorization", "DB_PASSWORD")]
    [True, True, True, True, True]
    >>> [names_a_secret(name) for name in ("max_tokens", "GIT_AUTHOR_NAME", "KEYBOARD", "api_key_env", "tokenizer")]
    [False, False, False, False, False]
    """
    return _NAME.search(_CAMEL.sub("_", name).lower().replace("-", "_")) is not None


def is_secret(name: str, value: Any, *, opaque: bool = False) -> bool:
    """Whether a named value of a config is secret: by its name, or by the scheme before it.

    opaque: also if it looks random; for headers, environments and queries, which hold keys under any name
    """
    if not isinstance(value, str) or not name or "://" in value:  # of an address only the credentials in it are
        return False
    if _SCHEME.fullmatch(value.strip()) or (opaque and _OPAQUE.search(value) and not _PUBLIC.search(name)):
        return True
    return bool(value) and names_a_secret(name) and not _PATH.fullmatch(value)


def secrets_in(value: Any, name: str = "", *, opaque: bool = False) -> list[str]:
    """The secret values in a config: headers, an environment, parameters, arguments, an address; see `is_secret`.

    >>> secrets_in({"Authorization": "Bearer abc", "X-Team": "red", "url": "https://me:pw@example.org/?key=k"})
    ['Bearer abc', 'abc', 'pw', 'k']
    >>> secrets_in(["serve", "--api-token", "x", "--port=1", "--secret=y"])
    ['x', 'y']
    """
    if isinstance(value, Mapping):
        return [one for key, inner in value.items() for one in secrets_in(inner, str(key), opaque=opaque)]
    if isinstance(value, list | tuple):
        return [one for flag, item in _flagged(value) for one in secrets_in(item, flag or name, opaque=opaque)]
    if not isinstance(value, str):
        return []
    return [*(_credentials(value) if is_secret(name, value, opaque=opaque) else ()), *_secrets_in_text(value)]


def environment_secrets(environ: Mapping[str, str]) -> list[str]:
    """The secrets of a process' environment: variables of such names, and addresses with credentials in them.

    >>> environment_secrets({"GITHUB_TOKEN": "ghp_1", "DB_PASSWORD": "postgres", "DB": "postgres://me:pw1@db/x"})
    ['ghp_1', 'pw1']
    """
    named = [value for name, value in environ.items() if is_secret(name, value) and not _WORD.fullmatch(value)]
    found = [one for value in named for one in _credentials(value)]
    return [*found, *(one for value in environ.values() if "@" in value for one in _secrets_in_text(value))]


def without_secrets(value: Any, name: str = "") -> Any:
    """A value of a config as it may be shown and written: what `secrets_in` finds there is replaced.

    >>> without_secrets("https://me:pw@example.org/search?key=1&format=json")
    'https://[secret]@example.org/search?key=[secret]&format=json'
    >>> without_secrets(["serve", "--api-token", "x", "--port=1", "--secret=y"])
    ['serve', '--api-token', '[secret]', '--port=1', '--secret=[secret]']
    """
    if isinstance(value, Mapping):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [
            f"{flag}={without_secrets(item, flag)}" if item is not given else without_secrets(item, flag or name)
            for given, (flag, item) in zip(value, _flagged(value), strict=True)
        ]
    if isinstance(value, str):
        return MASK if is_secret(name, value) else _text_without_secrets(value)
    return value


def _credentials(value: str) -> Iterator[str]:
    """A secret value, and the credential behind the scheme in it."""
    value = value.strip()
    yield value
    if scheme := _SCHEME.fullmatch(value):
        yield scheme[1]
        try:
            pair = base64.b64decode(scheme[1], validate=True).decode()
        except (BadBase64, ValueError):
            return
        if ":" in pair:
            yield pair.partition(":")[2]


def _secrets_in_text(text: str) -> Iterator[str]:
    """Credentials in addresses, as they are there and as they are meant."""
    for found in _USERINFO.finditer(text):
        user, _, password = (found["said"] or found["pair"] or "").partition(":")
        yield from dict.fromkeys([password or user, unquote(password or user)])
    for found in _QUERY.finditer(text):
        if is_secret(found["name"], unquote_plus(found["said"]), opaque=True):
            yield from dict.fromkeys([found["said"], unquote_plus(found["said"])])


def _text_without_secrets(text: str) -> str:
    text = _USERINFO.sub(lambda found: f"{found['before'] or found['start']}{MASK}@", text)
    return _QUERY.sub(
        lambda found: (
            f"{found['before']}{found['name']}={MASK}"
            if is_secret(found["name"], unquote_plus(found["said"]), opaque=True)
            else found[0]
        ),
        text,
    )


def _flagged(arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each argument with the flag that names it: `--token x` and `--token=x`; a flag itself has none."""
    before = ""
    for one in arguments:
        flag = _FLAG.fullmatch(one) if isinstance(one, str) else None
        if flag is None:
            yield before, one
        else:
            yield (flag[1], flag[2]) if flag[2] is not None else ("", one)
        before = flag[1] if flag and flag[2] is None else ""


# ── how they go ──────────────────────────────────────────────────────────────────────────────────────────────────


class Redactor:
    """Replaces the secrets it was given."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part for secret in secrets for part in _lines(secret)} - PLACEHOLDERS
        self.secrets = frozenset(part for part in parts if len(part) >= SHORTEST)
        # The longest first: a form that holds another must go as a whole.
        self._forms = sorted({form for secret in self.secrets for form in _forms(secret)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        self._longest = len(self._forms[0]) if self._forms else 0
        self._in_order = sorted(self._forms)

    def __repr__(self) -> str:
        return f"Redactor({len(self.secrets)} secrets)"

    def plus(self, secrets: Iterable[str]) -> "Redactor":
        """One that replaces these as well."""
        more = frozenset(secrets)
        return self if more <= self.secrets else Redactor(self.secrets | more)

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        return self._pattern.sub(MASK, text) if self._is_in(text) else text

    def start(self, text: str, most: int) -> str:
        """The first `most` characters of what `text` is without the secrets.

        `text` itself may be the start of something longer: what may be the beginning of a secret at its end goes, too.
        """
        if len(text) <= most:
            return self.text(text)
        return self.stream().feed(text)[:most]

    def value(self, value: Any) -> Any:
        """A JSON value without the secrets; the very same object if there was none in it."""
        return self._clean(value) if self._forms and self._holds(value) else value

    def stream(self) -> "RedactedStream":
        """For a text that comes in pieces."""
        return RedactedStream(self)

    def split(self, text: str) -> tuple[str, str]:
        """`text` without its secrets up to where one may have begun, and the rest as it is."""
        if not self._forms:
            return text, ""
        end = len(text) - self._begun(text)
        clean, at = [], 0
        if self._is_in(text):
            for found in self._pattern.finditer(text):
                if found.start() >= end:
                    break
                clean += [text[at : found.start()], MASK]
                at = found.end()
                end = max(end, at)
        return "".join([*clean, text[at:end]]), text[end:]

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        longest = min(self._longest - 1, len(text))
        return next((length for length in range(longest, 0, -1) if self._goes_on(text[-length:])), 0)

    def _goes_on(self, beginning: str) -> bool:
        """Whether a secret begins so and is longer."""
        after = bisect_right(self._in_order, beginning)
        return after < len(self._in_order) and self._in_order[after].startswith(beginning)

    def _is_in(self, text: str) -> bool:
        return len(text) >= SHORTEST and any(
            form in text for form in self._forms
        )  # many times faster than the pattern, where there is nothing

    def _holds(self, value: Any) -> bool:
        if isinstance(value, str):
            return self._is_in(value)
        if isinstance(value, dict):
            return any(map(self._holds, value)) or any(map(self._holds, value.values()))
        return isinstance(value, list) and any(map(self._holds, value))

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(item) for key, item in value.items()}
        return [self._clean(item) for item in value] if isinstance(value, list) else value


class RedactedStream:
    """A text that comes in pieces, without secrets: however it is cut, the pieces joined are the whole redacted."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._held = redactor, ""

    def feed(self, piece: str) -> str:
        """What can be said now; what may be the beginning of a secret is held back."""
        said, self._held = self._redactor.split(self._held + piece)
        return said

    def end(self) -> str:
        """What is left when nothing more comes."""
        held, self._held = self._held, ""
        return self._redactor.text(held)


NOTHING_SECRET = Redactor()


def _lines(secret: str) -> list[str]:
    """A secret, and each line of one that has several, such as a private key: tools show text line by line."""
    secret = secret.strip()
    lines = secret.splitlines()
    return [secret, *(line for line in lines if not line.startswith("-----"))] if len(lines) > 1 else [secret]


def _forms(secret: str) -> set[str]:
    encoded = secret.encode("utf-8", "surrogatepass")
    whole = base64.b64encode(encoded).decode()
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    escaped |= {text.replace("/", "\\/") for text in escaped}  # as PHP and others write JSON
    escaped |= {json.dumps(text)[1:-1] for text in escaped}  # JSON in a text of JSON, such as the arguments of a call
    quoted = {quote(secret, safe=safe, errors="replace") for safe in ("", "/", "/:@!$'()*,+=;")}
    quoted |= {_PERCENT.sub(lambda found: found[0].lower(), text) for text in quoted}
    return {
        *(secret, escape(secret), encoded.hex(), encoded.hex().upper(), whole),
        *(*_inside_base64(encoded), *escaped, *quoted),
    }


def _inside_base64(secret: bytes) -> Iterator[str]:
    """The letters that a secret always becomes when it stands in a longer text: one row for each of three places.

    >>> [row in base64.b64encode(b"user:" + b"a secret").decode() for row in _inside_base64(b"a secret")]
    [False, False, False, False, True, True]
    """
    for before in range(3):
        row = base64.b64encode(bytes(before) + secret).decode()
        # Letters at the edges hold bits of what stands beside the secret.
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        yield row[first:last]
        yield row[first:last].replace("+", "-").replace("/", "_")
