"""
The network of the task: a small causal Transformer over characters, for RETURNN's torch engine.

Each position gets a start symbol or the character before, and predicts the character at it. Position enters as a linear
penalty on the attention to what is far away (ALiBi), with another slope per head: nothing about distances has to be
learned, so a few hundred updates do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import returnn.frontend as rf
import torch
from returnn.config import get_global_config
from returnn.tensor import Tensor, TensorDict
from returnn.torch.data.extern_data import extern_data_template_from_config_opts
from torch import nn
from torch.nn import functional

from syncopate.errors import ConfigError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class ModelOpts:
    """
    What ``model_opts`` in the RETURNN config may say.

    :param num_layers: Transformer layers
    :param dim: width of the model; the hidden layer of the feed-forward part is twice as wide
    :param num_heads: attention heads, a divisor of ``dim``
    :param dropout: in training, on the output of every attention and feed-forward part
    :raises ConfigError: if a value is out of its range
    """

    num_layers: int = 2
    dim: int = 48
    num_heads: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_layers", "dim", "num_heads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"char_lm model_opts: {name} must be an int of at least 1, got {value!r}")
        if self.dim % self.num_heads:
            raise ConfigError(
                f"char_lm model_opts: num_heads must divide dim, got dim {self.dim} and num_heads {self.num_heads}"
            )
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise ConfigError(f"char_lm model_opts: dropout must be a number from 0 to below 1, got {self.dropout!r}")

    @classmethod
    def from_dict(cls, opts: Mapping[str, object]) -> ModelOpts:
        """
        :param opts: ``model_opts`` of the RETURNN config
        :raises ConfigError: on an option that does not exist
        """
        if not isinstance(opts, Mapping):
            raise ConfigError(f"char_lm model_opts must be a dict, got {opts!r}")
        allowed = [field.name for field in fields(cls)]
        for name in opts:
            if name not in allowed:
                raise ConfigError(
                    f"char_lm model_opts: unknown option {name!r}{did_you_mean(name, allowed)}; allowed are {allowed}"
                )
        return cls(**cast(dict[str, Any], dict(opts)))


class CharLm(nn.Module):
    """
    Characters in, the logits of each of them out.

    :param vocab_size: number of characters; the start symbol is one more, which is never predicted
    :param opts: size of the network
    """

    def __init__(self, *, vocab_size: int, opts: ModelOpts) -> None:
        super().__init__()
        self.start_symbol = vocab_size
        self.num_heads = opts.num_heads
        self.embedding = nn.Embedding(vocab_size + 1, opts.dim)
        self.layers = nn.ModuleList([_Layer(opts) for _ in range(opts.num_layers)])
        self.norm = nn.LayerNorm(opts.dim)
        self.logits = nn.Linear(opts.dim, vocab_size)

    def forward(self, chars: torch.Tensor) -> torch.Tensor:
        """
        :param chars: [batch, time], int64
        :return: [batch, time, vocab]: the logits of the character at each time, from the characters before it
        """
        history = functional.pad(chars[:, :-1], (1, 0), value=self.start_symbol)
        x = self.embedding(history)
        bias = distance_bias(chars.shape[1], num_heads=self.num_heads, like=x)
        for layer in self.layers:
            x = layer(x, bias)
        return cast(torch.Tensor, self.logits(self.norm(x)))


class _Layer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, opts: ModelOpts) -> None:
        super().__init__()
        self.num_heads = opts.num_heads
        self.attention_norm = nn.LayerNorm(opts.dim)
        self.attention_in = nn.Linear(opts.dim, 3 * opts.dim)
        self.attention_out = nn.Linear(opts.dim, opts.dim)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(opts.dim), nn.Linear(opts.dim, 2 * opts.dim), nn.ReLU(), nn.Linear(2 * opts.dim, opts.dim)
        )
        self.dropout = nn.Dropout(opts.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self._attention(self.attention_norm(x), bias))
        result: torch.Tensor = x + self.dropout(self.feed_forward(x))
        return result

    def _attention(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        heads = self.attention_in(x).view(batch, time, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return cast(torch.Tensor, self.attention_out(attended.transpose(1, 2).reshape(batch, time, dim)))


def distance_bias(time: int, *, num_heads: int, like: torch.Tensor) -> torch.Tensor:
    """
    :param time: number of positions
    :param num_heads: the slopes are 1, 1/2, 1/4, ... from head to head
    :param like: gives device and type
    :return: [1, head, to, from]: minus slope times distance, minus infinity for what comes later
    """
    position = torch.arange(time, device=like.device)
    distance = position[:, None] - position[None, :]
    slopes = 2.0 ** -torch.arange(num_heads, device=like.device, dtype=like.dtype)
    bias = -slopes[:, None, None] * distance
    return bias.masked_fill(distance < 0, float("-inf"))[None]


def get_model(*, epoch: int, step: int, **_kwargs: object) -> CharLm:
    """
    Called by RETURNN. The initial parameters depend on ``random_seed`` of the config and on nothing else: not on the
    rank, and not on what was drawn before. DDP would broadcast those of rank 0, but parameter averaging starts from
    what each rank has.
    """
    del epoch, step
    config = get_global_config()
    opts = ModelOpts.from_dict(config.typed_value("model_opts", {}))
    data = extern_data_template_from_config_opts(config.typed_value("extern_data"))["data"]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.int("random_seed", 42))
        return CharLm(vocab_size=data.sparse_dim.dimension, opts=opts)


def train_step(*, model: CharLm, extern_data: TensorDict, **_kwargs: object) -> None:
    """Called by RETURNN, in training and evaluation. The loss "ce" is in nats per character."""
    data: Tensor = extern_data["data"]
    batch_dim, time_dim = data.dims
    chars = data.raw_tensor.long()
    logits = model(chars)
    loss = functional.cross_entropy(logits.flatten(0, 1), chars.flatten(), reduction="none").view_as(chars)
    # RETURNN leaves out padding, sums over a batch or an epoch and divides by the number of characters.
    rf.get_run_ctx().mark_as_loss(loss, "ce", dims=[batch_dim, time_dim], use_normalized_loss=True)
