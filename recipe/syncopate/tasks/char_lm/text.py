"""
The text of the task: Python's own language reference, cut into windows of characters, split into train and dev.

The rules, in order:

1. A *section* is one topic of ``pydoc_data.topics``. Many topics quote others in full, so a paragraph (text between
   blank lines, whitespace ignored) is kept only once, in the longest section that has it. Without this about a fifth
   of the text would be there twice, and the dev text would be partly trained on.
2. A section is cut into windows of exactly ``window`` characters. A shorter rest at its end is dropped, so all
   sequences have one length: no padding, and the same number of scored characters in every update.
3. The sections are shuffled with the seed. One goes to dev as long as dev stays within ``dev_fraction`` of all
   windows, else to train. A section is never in both.
4. A space is written as ``␣``, a newline as ``↵``: RETURNN reads one window per line and strips the lines. Any other
   whitespace, and every character with fewer than ``min_count`` occurrences in train, is written as the unknown
   character. So the files hold exactly the symbols that the model sees.

The text differs between Python versions, hence the digest in ``text.json``: only results with one digest compare.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from syncopate.errors import ComponentError, ConfigError
from syncopate.returnn_io.write import write_text
from syncopate.tasks.char_lm.ngram import bigram_entropy, unigram_entropy

SPACE = "␣"
NEWLINE = "↵"
UNKNOWN = "\ufffd"
WINDOW = 65


def prepare(
    out_dir: str | Path,
    *,
    seed: int = 1,
    dev_fraction: float = 0.1,
    window: int = WINDOW,
    min_count: int = 5,
    max_train_sequences: int | None = None,
    topics: Mapping[str, str] | None = None,
) -> None:
    """
    Writes ``train.txt`` and ``dev.txt`` (one window per line), ``vocab`` (one character per line, the unknown one
    first), ``references.json`` (dev cross-entropy of a unigram and of a bigram model, in nats per character, over
    exactly the characters on which the trained model is scored) and, last, ``text.json`` (digest and counts).
    Each file appears complete or not at all.

    :param out_dir: where to write; created if missing
    :param seed: for the split into train and dev. Not the seed of a training: rows with different seeds share one text.
    :param dev_fraction: at most this part of all windows goes to dev, unless the smallest section is already more
    :param window: characters per window
    :param min_count: a character with fewer occurrences in train becomes the unknown one
    :param max_train_sequences: keep only the first so many train windows; for quick trials
    :param topics: name -> text; None is Python's own reference
    :raises ConfigError: if an argument is out of its range, or the text is too short to have both train and dev
    """
    _check_at_least("window", window, 2)
    _check_at_least("min_count", min_count, 1)
    if max_train_sequences is not None:
        _check_at_least("max_train_sequences", max_train_sequences, 1)
    if not 0.0 < dev_fraction < 1.0:
        raise ConfigError(f"char_lm text: dev_fraction must be between 0 and 1, both excluded, got {dev_fraction!r}")
    if topics is None:
        topics = python_reference()
    sections = {name: cut_windows(text, window=window) for name, text in drop_repeated_paragraphs(topics).items()}
    sections = {name: windows for name, windows in sections.items() if windows}
    if len(sections) < 2:
        raise ConfigError(
            f"char_lm text: train and dev need at least 2 sections with {window} or more characters of their own,"
            f" got {len(sections)} of {len(topics)} topics with {sum(map(len, topics.values()))} characters;"
            f" give more or longer topics, or a window below {window}"
        )
    train_names, dev_names = split_sections(sections, seed=seed, dev_fraction=dev_fraction)
    named_train = [(name, window_) for name in train_names for window_ in sections[name]][:max_train_sequences]
    train = [window_ for _, window_ in named_train]
    dev = [window_ for name in dev_names for window_ in sections[name]]

    vocab = make_vocab(train, min_count=min_count)
    train, dev = replace_rare(train, vocab), replace_rare(dev, vocab)
    train_text, dev_text = _as_lines(train), _as_lines(dev)
    references = {
        "unigram": {"value": unigram_entropy(train, dev, vocab_size=len(vocab)), "unit": "nats/char"},
        "bigram": {"value": bigram_entropy(train, dev, vocab_size=len(vocab)), "unit": "nats/char"},
    }
    info = {
        "digest": hashlib.sha256((train_text + dev_text).encode("utf8")).hexdigest(),
        "python_version": platform.python_version(),
        "window": window,
        "vocabulary_size": len(vocab),
        **_counts("train", train, num_topics=len({name for name, _ in named_train})),
        **_counts("dev", dev, num_topics=len(dev_names)),
    }
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    write_text(out_dir / "train.txt", train_text)
    write_text(out_dir / "dev.txt", dev_text)
    write_text(out_dir / "vocab", _as_lines(vocab))
    write_text(out_dir / "references.json", json.dumps(references, indent=2) + "\n")
    write_text(out_dir / "text.json", json.dumps(info, indent=2) + "\n")


def python_reference() -> Mapping[str, str]:
    """
    :return: topic -> text, as ``help()`` of this Python shows it
    :raises ComponentError: if this Python was packaged without it
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as exc:
        raise ComponentError(
            f"char_lm text: Python {platform.python_version()} has no module pydoc_data.topics, which is part of the"
            " standard library; use a Python with its full library, or pass topics"
        ) from exc
    return topics


def drop_repeated_paragraphs(topics: Mapping[str, str]) -> dict[str, str]:
    """
    :param topics: name -> text
    :return: the same by name, each paragraph only in the longest topic that has it (of equals, the first by name)
    """
    seen = set()
    kept: dict[str, str] = {}
    for name, text in sorted(topics.items(), key=lambda item: (-len(item[1]), item[0])):
        paragraphs = []
        for paragraph in "\n".join(line.rstrip() for line in text.splitlines()).split("\n\n"):
            key = " ".join(paragraph.split())
            if key and key not in seen:
                seen.add(key)
                paragraphs.append(paragraph.strip("\n"))
        kept[name] = "\n\n".join(paragraphs)
    return dict(sorted(kept.items()))


def cut_windows(text: str, *, window: int) -> list[str]:
    """
    :param text: of one section
    :param window: characters per window
    :return: the windows, free of whitespace; a shorter rest is dropped
    """
    symbols = "".join(_symbol(char) for char in text)
    return [symbols[start : start + window] for start in range(0, len(symbols) - window + 1, window)]


def split_sections(
    sections: Mapping[str, Sequence[str]], *, seed: int, dev_fraction: float
) -> tuple[list[str], list[str]]:
    """
    :param sections: name -> windows, at least 2 sections with at least one window each
    :param seed: for the order in which the sections are dealt
    :param dev_fraction: dev gets at most this part of the windows, but at least the smallest section
    :return: names in train, names in dev
    """
    names = sorted(sections)
    random.Random(seed).shuffle(names)
    room = dev_fraction * sum(map(len, sections.values()))
    dev: list[str] = []
    for name in names:
        if len(sections[name]) <= room:
            dev.append(name)
            room -= len(sections[name])
    if not dev:
        dev = [min(names, key=lambda name: len(sections[name]))]
    return [name for name in names if name not in dev], dev


def make_vocab(train: Sequence[str], *, min_count: int) -> list[str]:
    """
    :param train: the train windows
    :param min_count: a character needs so many occurrences
    :return: the unknown character, then the others in the order of their code points
    """
    counts = Counter(char for window in train for char in window)
    return [UNKNOWN, *sorted(char for char, count in counts.items() if count >= min_count and char != UNKNOWN)]


def replace_rare(windows: Sequence[str], vocab: Sequence[str]) -> list[str]:
    """
    :param windows: as cut
    :param vocab: see :func:`make_vocab`
    :return: the windows with the unknown character for all that is not in the vocabulary
    """
    known = set(vocab)
    return ["".join(char if char in known else UNKNOWN for char in window) for window in windows]


def _symbol(char: str) -> str:
    if char == " ":
        return SPACE
    if char == "\n":
        return NEWLINE
    # The two symbols themselves would be ambiguous if they were in the text.
    return UNKNOWN if char.isspace() or char in (SPACE, NEWLINE) else char


def _check_at_least(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"char_lm text: {name} must be an int of at least {minimum}, got {value!r}")


def _counts(part: str, windows: Sequence[str], *, num_topics: int) -> dict[str, int]:
    return {
        f"num_{part}_topics": num_topics,
        f"num_{part}_sequences": len(windows),
        f"num_{part}_characters": sum(map(len, windows)),
    }


def _as_lines(items: Sequence[str]) -> str:
    return "".join(f"{item}\n" for item in items)
