"""The presets that write text, by name, each imported when it is asked for; for tokens see `token_presets`."""

from importlib import import_module

from stemma.errors import NotFound
from stemma.formats.export import Preset
from stemma.formats.token_presets import TOKEN_NAMES

_HOMES = {
    "hermes": ("stemma.formats.trajectory_presets", "HERMES"),
    "sharegpt": ("stemma.formats.trajectory_presets", "SHAREGPT"),
    "openai": ("stemma.formats.openai", "OPENAI"),
    "trl": ("stemma.formats.trl", "TRL"),
    "trl-turns": ("stemma.formats.trl", "TRL_TURNS"),
    "axolotl": ("stemma.formats.axolotl", "AXOLOTL"),
    "axolotl-turns": ("stemma.formats.axolotl", "AXOLOTL_TURNS"),
    "llamafactory": ("stemma.formats.llamafactory", "LLAMAFACTORY"),
    "llamafactory-turns": ("stemma.formats.llamafactory", "LLAMAFACTORY_TURNS"),
    "unsloth": ("stemma.formats.unsloth", "UNSLOTH"),
    "parquet": ("stemma.formats.parquet", "PARQUET"),
}

NAMES = tuple(_HOMES)
_HOMES["hermes-own"] = ("stemma.formats.trajectory_presets", "HERMES_OWN")
SYSTEMS = ("generated", "own")
"""Which system prompt the preset `hermes` writes: its own form's, or the one that the model saw."""


def preset(name: str, system: str = "generated") -> Preset:
    """The preset for a trainer, or `NotFound` listing them."""
    if name not in _HOMES:
        raise NotFound(f"there is no preset {name!r}; choose one of {', '.join((*NAMES, *TOKEN_NAMES))}")
    module, attribute = _HOMES["hermes-own" if (name, system) == ("hermes", "own") else name]
    found: Preset = getattr(import_module(module), attribute)
    return found
