"""Which counter a name means: `open_counter` finds it on this machine, or says what to give.

    tokenizer.json, or a folder with one    the file, its chat template beside it
    org/name                                the same, from the hub's cache on this machine; nothing is downloaded
    model.gguf                              llama.cpp in this process: pip install 'stemmata[local]'
    http://host:port                        an endpoint with /tokenize
    estimate                                four bytes a token

A tokenizer that brings code of its own is counted with by its tokenizer.json alone, or refused, as asked.
"""

import asyncio
from pathlib import Path
from typing import Any

from stemma.compress.counting import ESTIMATE, Counter, Estimate, FileCounter
from stemma.compress.endpoint_counter import EndpointCounter
from stemma.compress.errors import BadTokenizer
from stemma.errors import BadRecord, MissingExtra, NotFound
from stemma.formats.jsonl import from_line

_FILE = "tokenizer.json"
_ADVICE = (
    "give --tokenizer a tokenizer.json or its folder, a GGUF, the URL of an endpoint with /tokenize, a hub id that is "
    "in the cache of this machine, or `estimate` (four bytes a token)"
)


async def open_counter(name: str, *, hub: Path, trust_remote_code: bool = True) -> Counter:
    """The counter that `name` means; `hub` is where the hub's client keeps what it has downloaded."""
    if name == ESTIMATE:
        return Estimate()
    if name.startswith(("http://", "https://")):
        return await EndpointCounter.open(name)
    path = Path(name)
    if path.suffix == ".gguf":
        return await _gguf(path)
    file = _find(path, hub)
    settings = _beside(file)
    if "auto_map" in settings and not trust_remote_code:
        raise BadTokenizer(
            f"{name} brings code of its own, which is not run, and trust_remote_code is false; {_ADVICE}"
        )
    return FileCounter(await asyncio.to_thread(_load, file), name, _template(file, settings), _special(settings))


def _find(path: Path, hub: Path) -> Path:
    if path.is_dir() and (path / _FILE).is_file():
        return path / _FILE
    if path.is_file():
        return path
    kept = hub / f"models--{str(path).replace('/', '--')}"
    try:
        commit = (kept / "refs" / "main").read_text().strip()
    except OSError:
        raise NotFound(f"there is no tokenizer {str(path)!r} on this machine; {_ADVICE}") from None
    file = kept / "snapshots" / commit / _FILE
    if not file.is_file():
        raise NotFound(f"{path} is in the hub's cache without a tokenizer.json; {_ADVICE}")
    return file


def _load(file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise MissingExtra("counting tokens needs tokenizers: pip install 'stemmata[tokens]'") from problem
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as problem:  # the library raises nothing narrower
        raise BadTokenizer(f"{file} is no tokenizer.json: {problem}") from problem
    tokenizer.no_truncation()  # files made for training often carry a limit, beyond which nothing would count
    tokenizer.no_padding()
    return tokenizer


def _beside(file: Path) -> dict[str, Any]:
    """What tokenizer_config.json says; nothing if it is not there."""
    config = file.with_name("tokenizer_config.json")
    if not config.is_file():
        return {}
    try:
        return from_line(config.read_bytes())
    except BadRecord as problem:
        raise BadTokenizer(f"{config}: {problem}") from problem


def _template(file: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file beside the tokenizer, or in its settings, alone or under the name `default`."""
    own = file.with_name("chat_template.jinja")
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = next((one.get("template") for one in found if one.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _special(settings: dict[str, Any]) -> dict[str, str]:
    """The tokens that templates name: bos_token and its like."""
    tokens = {name: value for name, value in settings.items() if name.endswith("_token")}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


async def _gguf(path: Path) -> Counter:
    """llama.cpp's own tokenizer: the engine is started with the smallest window, and asked as any endpoint is."""
    if not path.is_file():
        raise NotFound(f"there is no {path}; {_ADVICE}")
    try:
        import xllamacpp
    except ImportError as problem:
        raise MissingExtra("counting with a GGUF needs llama.cpp: pip install 'stemmata[local]'") from problem
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 256, 1, False, 0
    server = await asyncio.to_thread(xllamacpp.Server, params)
    return await EndpointCounter.open(server.listening_address, name=path.name, engine=server)
