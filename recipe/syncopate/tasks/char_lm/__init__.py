"""
A character language model on text that every machine with Python has: the language reference behind ``help()``.

- :mod:`.text` cuts the text into train and dev windows and measures what unigrams and bigrams reach on dev.
- :mod:`.config` tells RETURNN to train on them.
- :mod:`.model` is the network; only the training process imports it, since it needs torch and RETURNN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncopate.tasks.char_lm.config import char_lm

__all__ = ["char_lm"]


def __getattr__(name: str) -> Any:
    # Loaded when it is first used: a training process imports this package for its model alone.
    if name == "char_lm":
        from syncopate.tasks.char_lm.config import char_lm

        return char_lm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
