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
from stemma.formats.tokenizer import FILE, open_tokenizer, settings_beside, special_tokens, template_beside

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
    settings = _settings(file)
    if "auto_map" in settings and not trust_remote_code:
        raise BadTokenizer(
            f"{name} brings code of its own, which is not run, and trust_remote_code is false; {_ADVICE}"
        )
    return FileCounter(
        await asyncio.to_thread(_load, file), name, template_beside(file, settings), special_tokens(settings)
    )


def _find(path: Path, hub: Path) -> Path:
    if path.is_dir() and (path / FILE).is_file():
        return path / FILE
    if path.is_file():
        return path
    kept = hub / f"models--{str(path).replace('/', '--')}"
    try:
        commit = (kept / "refs" / "main").read_text().strip()
    except OSError:
        raise NotFound(f"there is no tokenizer {str(path)!r} on this machine; {_ADVICE}") from None
    file = kept / "snapshots" / commit / FILE
    if not file.is_file():
        raise NotFound(f"{path} is in the hub's cache without a tokenizer.json; {_ADVICE}")
    return file


def _load(file: Path) -> Any:
    try:
        return open_tokenizer(file)
    except BadRecord as problem:
        raise BadTokenizer(str(problem)) from problem


def _settings(file: Path) -> dict[str, Any]:
    try:
        return settings_beside(file)
    except BadRecord as problem:
        raise BadTokenizer(str(problem)) from problem


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
