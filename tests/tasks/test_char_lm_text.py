"""The text of char_lm: its split, its windows, its files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from returnn.datasets import init_dataset

from syncopate.errors import ComponentError, ConfigError
from syncopate.tasks.char_lm.config import char_lm
from syncopate.tasks.char_lm.text import (
    NEWLINE,
    SPACE,
    UNKNOWN,
    WINDOW,
    cut_windows,
    drop_repeated_paragraphs,
    make_vocab,
    prepare,
    python_reference,
    replace_rare,
    split_sections,
)

# Every topic has letters of its own, so a window tells where it comes from.
TOPICS = {name: (name * 7 + " ") * 40 for name in ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st")}


def lines(path: Path) -> list[str]:
    text = path.read_bytes().decode("utf8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The files made of this Python's own reference."""
    folder = tmp_path_factory.mktemp("text") / "made"
    prepare(folder)
    return folder


def test_files_of_the_python_reference(reference):
    made = files(reference)
    assert sorted(made) == ["dev.txt", "references.json", "text.json", "train.txt", "vocab"]
    train, dev, vocab = lines(reference / "train.txt"), lines(reference / "dev.txt"), lines(reference / "vocab")
    info = json.loads((reference / "text.json").read_text())
    assert info == {
        "digest": hashlib.sha256(
            (reference / "train.txt").read_bytes() + (reference / "dev.txt").read_bytes()
        ).hexdigest(),
        "python_version": ".".join(map(str, sys.version_info[:3])) + ("+" if "+" in sys.version.split()[0] else ""),
        "window": WINDOW,
        "vocabulary_size": len(vocab),
        "num_train_topics": info["num_train_topics"],
        "num_train_sequences": len(train),
        "num_train_characters": len(train) * WINDOW,
        "num_dev_topics": info["num_dev_topics"],
        "num_dev_sequences": len(dev),
        "num_dev_characters": len(dev) * WINDOW,
    }
    assert len(train) + len(dev) > 3000
    assert 0.08 < len(dev) / (len(train) + len(dev)) <= 0.1
    assert vocab[0] == UNKNOWN
    assert len(set(vocab)) == len(vocab)
    assert set("".join(train + dev)) <= set(vocab)
    references = json.loads((reference / "references.json").read_text())
    assert {name: score["unit"] for name, score in references.items()} == {
        "unigram": "nats/char",
        "bigram": "nats/char",
    }
    assert 1.0 < references["bigram"]["value"] < references["unigram"]["value"] < 4.0


def test_every_line_is_a_window_without_whitespace(reference):
    for line in lines(reference / "train.txt") + lines(reference / "dev.txt"):
        assert len(line) == WINDOW
        assert not any(char.isspace() for char in line)


def test_returnn_reads_every_window_as_it_was_written(reference):
    config = char_lm(max_train_sequences=None).resolved(lambda file: str(reference / file.name)).config
    vocab = lines(reference / "vocab")
    for part in ("train", "dev"):
        dataset = init_dataset({**config[part], "seq_ordering": "default"})
        dataset.init_seq_order(epoch=1)
        expected = lines(reference / f"{part}.txt")
        for seq_idx, line in enumerate(expected):
            dataset.load_seqs(seq_idx, seq_idx + 1)
            assert "".join(vocab[index] for index in dataset.get_data(seq_idx, "data")) == line
        assert not dataset.is_less_than_num_seqs(len(expected))


def test_a_section_is_never_in_both(tmp_path):
    prepare(tmp_path, topics=TOPICS, dev_fraction=0.3, min_count=1)
    letters = {part: set("".join(lines(tmp_path / f"{part}.txt"))) - {SPACE} for part in ("train", "dev")}
    # Letters of dev alone are unknown to a vocabulary made of train: three sections of ten, and nothing of the others.
    assert letters["dev"] == {UNKNOWN}
    assert len(letters["train"]) == 14
    info = json.loads((tmp_path / "text.json").read_text())
    assert (info["num_train_topics"], info["num_dev_topics"]) == (7, 3)


def test_sections_are_dealt_once_and_dev_keeps_its_size():
    sections = {f"s{size:02}": ["w"] * size for size in range(1, 31)}
    for seed in range(20):
        train, dev = split_sections(sections, seed=seed, dev_fraction=0.2)
        assert sorted(train + dev) == sorted(sections)
        # The room that is left is smaller than the smallest section in train.
        room = 0.2 * 465 - sum(len(sections[name]) for name in dev)
        assert 0 <= room < min(len(sections[name]) for name in train)


def test_the_smallest_section_goes_to_dev_if_none_fits():
    train, dev = split_sections({"a": ["w"] * 5, "b": ["w"] * 4, "c": ["w"] * 6}, seed=1, dev_fraction=0.1)
    assert (sorted(train), dev) == (["a", "c"], ["b"])


def test_what_a_section_quotes_is_in_the_longest_one_alone():
    quoted = "A paragraph\n   that is quoted."
    topics = {
        "short": f"Short.\n\n{quoted}",
        "long": f"Long.\n\n{quoted}\n\nAnd so on, for long.",
        "copy": "Short.\n\n \n",
    }
    assert drop_repeated_paragraphs(topics) == {
        "copy": "",
        "long": f"Long.\n\n{quoted}\n\nAnd so on, for long.",
        "short": "Short.",
    }


def test_no_paragraph_of_the_python_reference_is_in_two_sections():
    def paragraphs(text):
        return {" ".join(paragraph.split()) for paragraph in text.split("\n\n")} - {""}

    sections = [paragraphs(text) for text in drop_repeated_paragraphs(python_reference()).values()]
    assert not any(one & other for one, other in combinations(sections, 2))
    assert set.union(*sections) == set.union(
        *(paragraphs("\n".join(line.rstrip() for line in text.splitlines())) for text in python_reference().values())
    )


def test_windows_follow_each_other_and_a_short_rest_is_dropped():
    assert cut_windows("ab cd\nefgh", window=3) == [f"ab{SPACE}", f"cd{NEWLINE}", "efg"]
    assert cut_windows("abcdef", window=3) == ["abc", "def"]
    assert cut_windows("ab", window=3) == []


@pytest.mark.parametrize("char", ["\t", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", SPACE, NEWLINE])
def test_whitespace_that_would_break_a_line_and_the_symbols_themselves_are_unknown(char):
    assert cut_windows(f"a{char}b", window=3) == [f"a{UNKNOWN}b"]


def test_rare_characters_become_the_unknown_one():
    vocab = make_vocab(["aabb", "abcd", "b" + UNKNOWN + "aa"], min_count=2)
    assert vocab == [UNKNOWN, "a", "b"]
    assert replace_rare(["abcd", "zabz"], vocab) == [f"ab{UNKNOWN * 2}", f"{UNKNOWN}ab{UNKNOWN}"]


def test_a_character_of_dev_alone_is_scored_as_unknown(tmp_path):
    prepare(tmp_path, topics=TOPICS, min_count=1)
    dev_characters = set("".join(lines(tmp_path / "dev.txt")))
    assert dev_characters == {UNKNOWN, SPACE}
    assert dev_characters <= set(lines(tmp_path / "vocab"))


def test_the_split_is_decided_by_the_seed(tmp_path):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        prepare(tmp_path / name, topics=TOPICS, seed=seed)
    assert files(tmp_path / "one") == files(tmp_path / "again")
    assert lines(tmp_path / "one" / "train.txt") != lines(tmp_path / "other" / "train.txt")


def test_another_process_and_another_order_of_topics_give_the_same(tmp_path):
    code = "import sys; from syncopate.tasks.char_lm.text import prepare; prepare(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there")], check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    prepare(tmp_path / "here", topics=dict(reversed(python_reference().items())))
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_the_digest_follows_the_text(tmp_path):
    prepare(tmp_path / "one", topics=TOPICS)
    prepare(tmp_path / "other", topics={**TOPICS, "ab": TOPICS["ab"].replace("b", "a")})
    digests = {json.loads((tmp_path / name / "text.json").read_text())["digest"] for name in ("one", "other")}
    assert len(digests) == 2


def test_train_can_be_shortened_and_dev_stays(tmp_path):
    prepare(tmp_path / "whole", topics=TOPICS, min_count=1)
    prepare(tmp_path / "short", topics=TOPICS, min_count=1, max_train_sequences=3)
    assert lines(tmp_path / "short" / "train.txt") == lines(tmp_path / "whole" / "train.txt")[:3]
    assert len(lines(tmp_path / "short" / "dev.txt")) == len(lines(tmp_path / "whole" / "dev.txt"))
    info = json.loads((tmp_path / "short" / "text.json").read_text())
    assert (info["num_train_topics"], info["num_train_sequences"]) == (1, 3)


def test_text_json_is_written_last_and_nothing_is_left_half_written(tmp_path):
    (tmp_path / "references.json").mkdir()  # so that it cannot be written
    with pytest.raises(OSError):
        prepare(tmp_path, topics=TOPICS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.txt", "references.json", "train.txt", "vocab"]


@pytest.mark.parametrize(
    ("topics", "got"),
    [
        ({}, "0 of 0 topics with 0 characters"),
        ({"a": ""}, "0 of 1 topics with 0 characters"),
        ({"a": "x" * 1000}, "1 of 1 topics with 1000 characters"),
        ({"a": "x" * 64, "b": "y" * 64}, "0 of 2 topics with 128 characters"),
        ({"a": "x" * 100, "b": "x" * 100}, "1 of 2 topics with 200 characters"),
    ],
)
def test_too_little_text(tmp_path, topics, got):
    with pytest.raises(ConfigError) as error:
        prepare(tmp_path / "made", topics=topics)
    assert str(error.value) == (
        "char_lm text: train and dev need at least 2 sections with 65 or more characters of their own,"
        f" got {got}; give more or longer topics, or a window below 65"
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"window": 1}, "char_lm text: window must be an int of at least 2, got 1"),
        ({"min_count": 0}, "char_lm text: min_count must be an int of at least 1, got 0"),
        ({"max_train_sequences": 0}, "char_lm text: max_train_sequences must be an int of at least 1, got 0"),
        ({"max_train_sequences": True}, "char_lm text: max_train_sequences must be an int of at least 1, got True"),
        ({"dev_fraction": 1.0}, "char_lm text: dev_fraction must be between 0 and 1, both excluded, got 1.0"),
        ({"dev_fraction": 0}, "char_lm text: dev_fraction must be between 0 and 1, both excluded, got 0"),
    ],
)
def test_arguments_out_of_range(tmp_path, kwargs, message):
    with pytest.raises(ConfigError) as error:
        prepare(tmp_path, **kwargs)
    assert str(error.value) == message


def test_a_python_without_its_reference_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ComponentError, match=r"has no module pydoc_data\.topics.*; use a Python with its full library"):
        prepare(tmp_path)
