"""The presets that write tokens, by name, each imported when it is asked for."""

from importlib import import_module

from stemma.formats.token_preset import TokenPreset

_HOMES = {
    "tokens": ("stemma.formats.tokens", "TOKENS"),
    "atropos": ("stemma.formats.atropos", "ATROPOS"),
    "trl-grpo": ("stemma.formats.trl_grpo", "TRL_GRPO"),
    "verl": ("stemma.formats.verl", "VERL"),
    "slime": ("stemma.formats.slime", "SLIME"),
    "skyrl": ("stemma.formats.skyrl", "SKYRL"),
    "tinker": ("stemma.formats.tinker", "TINKER"),
    "tree": ("stemma.formats.tree", "TREE"),
}

TOKEN_NAMES = tuple(_HOMES)


def token_preset(name: str) -> TokenPreset | None:
    """The preset for a trainer that takes tokens; None if that name is none."""
    if name not in _HOMES:
        return None
    module, attribute = _HOMES[name]
    found: TokenPreset = getattr(import_module(module), attribute)
    return found
