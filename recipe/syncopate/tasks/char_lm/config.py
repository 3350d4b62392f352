"""The RETURNN config of the task, with the text it trains on declared beside it."""

from __future__ import annotations

from typing import Any

from syncopate.errors import ConfigError
from syncopate.returnn_io.training_config import ProducedFile, TrainingConfig
from syncopate.tasks.char_lm.text import UNKNOWN, WINDOW, prepare


def char_lm(
    *,
    learning_rate: float = 1e-2,
    max_seqs: int = 16,
    num_layers: int = 2,
    dim: int = 48,
    num_heads: int = 4,
    dropout: float = 0.0,
    max_train_sequences: int | None = 4096,
) -> TrainingConfig:
    """
    The defaults are for half a minute on two CPU cores: four ranks make 64 updates per pass, and after four passes
    every scheme is far below the bigram entropy.

    :param learning_rate: of AdamW, constant. Four ranks under DDP and one rank alone both train well with the default.
    :param max_seqs: windows per rank and update
    :param num_layers: layers of the Transformer
    :param dim: its width
    :param num_heads: its attention heads, a divisor of ``dim``
    :param dropout: in training
    :param max_train_sequences: train on the first so many windows only, None for all. The default is most of the text,
        and 2, 4 or 8 ranks share it in equal updates: the last one of a pass is not on the few windows that are left.
    :raises ConfigError: if ``max_seqs`` is none
    """
    if isinstance(max_seqs, bool) or not isinstance(max_seqs, int) or max_seqs < 1:
        raise ConfigError(f"char_lm: max_seqs must be an int of at least 1, got {max_seqs!r}")
    # What is at its default is left out, so that every config of the same text shares one folder.
    text_kwargs = {} if max_train_sequences is None else {"max_train_sequences": max_train_sequences}

    def made(name: str) -> ProducedFile:
        return ProducedFile(make=prepare, name=name, kwargs=text_kwargs)

    vocab = {"class": "CharacterTargets", "vocab_file": made("vocab"), "unknown_label": UNKNOWN}

    def windows(name: str, *, seq_ordering: str) -> dict[str, Any]:
        # The dtype is given as RETURNN's own choice depends on the number of characters.
        return {
            "class": "LmDataset",
            "corpus_file": made(name),
            "orth_vocab": vocab,
            "seq_ordering": seq_ordering,
            "dtype": "int32",
        }

    config = {
        "backend": "torch",
        "behavior_version": 38,
        "train": windows("train.txt", seq_ordering="random"),
        "dev": windows("dev.txt", seq_ordering="default"),
        # The number of characters is known once the text is there: RETURNN reads it from the vocabulary.
        "extern_data": {"data": {"shape": [None], "sparse": True, "dtype": "int32", "vocab": vocab}},
        "max_seqs": max_seqs,
        "batch_size": max_seqs * WINDOW,
        # The data is too small to be worth a process of its own on every rank. And without one, a resumed epoch draws
        # the same random numbers as one that follows another.
        "torch_dataloader_opts": {"num_workers": 0},
        "model_opts": {"num_layers": num_layers, "dim": dim, "num_heads": num_heads, "dropout": dropout},
        "learning_rate": learning_rate,
        "optimizer": {"class": "adamw", "betas": [0.9, 0.98], "epsilon": 1e-8, "weight_decay": 0.01},
        "gradient_clip_global_norm": 1.0,
    }
    return TrainingConfig(
        config=config,
        post_config={"cleanup_old_models": {"keep_last_n": 2, "keep_best_n": 1, "keep": []}},
        imports=("from syncopate.tasks.char_lm.model import get_model, train_step",),
        reports=("dev_loss_ce",),
        references=made("references.json"),
        statistics=made("text.json"),
    )
