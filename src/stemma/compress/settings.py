"""How to compress: the sections and keys of `trajectory_compression.yaml`, with the defaults people know.

Each key has an effect, and `tests/compress/test_settings.py` shows it; an unknown one is an error. `summarization` is
None while nobody has configured it. Two keys mean what is safe rather than what their names might:

    trust_remote_code    no code of a tokenizer is ever run. A tokenizer that brings its own code is counted with by its
                         tokenizer.json alone if this is true, and refused if it is false.
    save_over_limit      rows that stay over the target are in the output if this is true; else in a file beside it.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from stemma.compress.errors import BadSettings
from stemma.compress.plan import Protection

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
T = TypeVar("T")


class Tokenizer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tokens are counted with."""

    name: str = "moonshotai/Kimi-K2-Thinking"
    """A tokenizer.json or its folder, a hub id in the local cache, a GGUF, an endpoint's URL, or `estimate`."""
    trust_remote_code: bool = True
    """Whether to count by the tokenizer.json of a tokenizer that brings code; the code is not run."""


class Compression(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far."""

    target_max_tokens: Positive = 15_250
    summary_target_tokens: Positive = 750


class Summarization(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that summarises, and how patiently it is asked."""

    model: str = "google/gemini-3-flash-preview"
    base_url: str = "https://openrouter.ai/api/v1"
    api_key_env: str = "OPENROUTER_API_KEY"
    temperature: Seconds = 0.3
    max_retries: Positive = 3
    """How often one summary is asked for, in all."""
    retry_delay: Seconds = 2
    """Seconds before the second attempt; the wait doubles."""


class Output(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the result looks."""

    add_summary_notice: bool = True
    summary_notice_text: str = "\n\nSome of your previous tool responses may be summarized to preserve context."
    output_suffix: str = "_compressed"


class Processing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much at once, and what is left alone."""

    num_workers: Positive = 4
    """How many batches of rows are counted at the same time."""
    max_concurrent_requests: Positive = 50
    """How many summaries are asked for at the same time."""
    skip_under_target: bool = True
    """False: rows under the target are compressed as well, all that is not protected."""
    save_over_limit: bool = True
    per_trajectory_timeout: Annotated[float, Meta(gt=0)] = 300
    """Seconds; a row that takes longer stays as it is and counts as failed."""


class Metrics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told of it."""

    enabled: bool = True
    """Write a report beside the output."""
    per_trajectory: bool = True
    """Put `compression_metrics` into each row."""
    output_file: str = "compression_metrics.json"
    """The name of the report of a folder or a store; that of a file is named after the output."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything."""

    tokenizer: Tokenizer = Tokenizer()
    compression: Compression = Compression()
    protected_turns: Protection = Protection()
    summarization: Summarization | None = None
    output: Output = Output()
    processing: Processing = Processing()
    metrics: Metrics = Metrics()


def settings_of(value: Any, file: str = "the settings") -> Settings:
    """Settings from what a YAML file holds, or `BadSettings` naming the key."""
    if isinstance(value, dict):  # a section with nothing in it is one with its defaults
        value = {name: {} if section is None else section for name, section in value.items()}
    try:
        settings = msgspec.convert({} if value is None else value, Settings)
    except msgspec.ValidationError as problem:
        raise BadSettings(f"{file}: {problem}; the keys are those of configs/trajectory_compression.yaml") from problem
    if settings.protected_turns.last_n_turns < 0:
        raise BadSettings(f"{file}: protected_turns.last_n_turns is negative")
    if not _is_file_name(settings.metrics.output_file) or "/" in settings.output.output_suffix:
        raise BadSettings(f"{file}: metrics.output_file and output.output_suffix are parts of a file's name, no paths")
    return settings


def _is_file_name(name: str) -> bool:
    return bool(name) and "/" not in name and name not in (".", "..")


def changed(section: T, **values: Any) -> T:
    """The section with those of `values` that are not None."""
    return msgspec.structs.replace(section, **{key: value for key, value in values.items() if value is not None})  # type: ignore[type-var]
