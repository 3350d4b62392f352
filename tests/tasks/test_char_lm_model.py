"""The network of char_lm, and its loss as RETURNN counts it."""

from __future__ import annotations

import pytest
import returnn.frontend as rf
import torch
from returnn.config import Config, global_config_ctx
from returnn.tensor import Dim, Tensor, TensorDict, batch_dim

from syncopate.errors import ConfigError
from syncopate.tasks.char_lm.model import CharLm, ModelOpts, distance_bias, get_model, train_step

VOCAB_SIZE = 11


@pytest.fixture
def model():
    torch.manual_seed(5)
    return CharLm(vocab_size=VOCAB_SIZE, opts=ModelOpts(num_layers=3, dim=24, num_heads=3))


def made_by_returnn(**options):
    """A model as RETURNN asks for it."""
    vocab = {"class": "CharacterTargets", "vocab_file": None, "labels": list("abcdefghijk"), "unknown_label": "a"}
    config = Config({"extern_data": {"data": {"shape": [None], "sparse": True, "vocab": vocab}}, **options})
    with global_config_ctx(config):
        return get_model(epoch=1, step=0, device="cpu", some_argument_of_a_later_version=None)


@pytest.mark.parametrize("changed", [0, 1, 9, 19])
def test_a_character_changes_what_comes_after_it_alone(model, changed):
    chars = torch.randint(VOCAB_SIZE, (2, 20))
    other = chars.clone()
    other[0, changed] = (other[0, changed] + 1) % VOCAB_SIZE
    logits, other_logits = model(chars), model(other)
    # It must not be seen where it is to be predicted itself.
    torch.testing.assert_close(other_logits[0, : changed + 1], logits[0, : changed + 1], rtol=0, atol=0)
    torch.testing.assert_close(other_logits[1], logits[1], rtol=0, atol=0)
    if changed + 1 < 20:
        assert (other_logits[0, changed + 1] - logits[0, changed + 1]).abs().max() > 1e-3


def test_the_first_character_is_predicted_from_the_start_symbol(model):
    logits = model(torch.randint(VOCAB_SIZE, (4, 5)))
    assert logits.shape == (4, 5, VOCAB_SIZE)
    assert torch.equal(logits[:, 0], logits[:1, 0].expand(4, -1))


def test_every_head_prefers_what_is_near(model):
    # Where the contents make no difference, a head's weights fall with the distance by its slope alone.
    weights = torch.softmax(distance_bias(4, num_heads=2, like=torch.zeros(1)), dim=-1)[0]
    e = torch.exp(torch.tensor([-3.0, -2.0, -1.0, 0.0]))
    torch.testing.assert_close(weights[0, 3], e / e.sum())
    torch.testing.assert_close(weights[1, 3], (e**0.5) / (e**0.5).sum())
    assert torch.equal(weights[:, 0], torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(2, -1))


def test_all_ranks_start_with_the_same_parameters():
    torch.manual_seed(1)
    one = made_by_returnn()
    torch.manual_seed(2)
    torch.randn(1000)  # another rank may have drawn other numbers before
    two = made_by_returnn()
    assert one.state_dict().keys() == two.state_dict().keys()
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name


def test_random_seed_of_the_config_decides_the_parameters():
    one, two = (made_by_returnn(random_seed=seed).logits.weight for seed in (1, 2))
    assert not torch.equal(one, two)


def test_making_a_model_leaves_the_random_numbers_of_the_process_alone():
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    made_by_returnn()
    assert torch.equal(torch.randn(3), expected)


def test_the_size_comes_from_the_config_and_the_vocabulary():
    model = made_by_returnn(model_opts={"num_layers": 1, "dim": 6, "num_heads": 2, "dropout": 0.5})
    assert len(model.layers) == 1
    assert model.layers[0].dropout.p == 0.5
    assert model.embedding.weight.shape == (12, 6)  # 11 characters and the start symbol
    assert model.logits.weight.shape == (11, 6)


def test_dropout_acts_in_training_alone(model):
    model = CharLm(vocab_size=VOCAB_SIZE, opts=ModelOpts(dropout=0.5))
    chars = torch.randint(VOCAB_SIZE, (1, 9))
    assert not torch.equal(model(chars), model(chars))
    model.eval()
    assert torch.equal(model(chars), model(chars))


@pytest.mark.parametrize(
    ("opts", "message"),
    [
        (
            {"num_layer": 2},
            "char_lm model_opts: unknown option 'num_layer' (did you mean 'num_layers'?);"
            " allowed are ['num_layers', 'dim', 'num_heads', 'dropout']",
        ),
        ({"dim": 0}, "char_lm model_opts: dim must be an int of at least 1, got 0"),
        ({"num_layers": 2.0}, "char_lm model_opts: num_layers must be an int of at least 1, got 2.0"),
        ({"num_heads": True}, "char_lm model_opts: num_heads must be an int of at least 1, got True"),
        (
            {"dim": 48, "num_heads": 5},
            "char_lm model_opts: num_heads must divide dim, got dim 48 and num_heads 5",
        ),
        ({"dropout": 1}, "char_lm model_opts: dropout must be a number from 0 to below 1, got 1"),
        (["dim"], "char_lm model_opts must be a dict, got ['dim']"),
    ],
)
def test_model_opts_that_cannot_be_meant(opts, message):
    with pytest.raises(ConfigError) as error:
        made_by_returnn(model_opts=opts)
    assert str(error.value) == message


def test_the_loss_is_per_character_and_padding_does_not_count(model):
    lengths = [3, 5]
    chars = torch.randint(VOCAB_SIZE, (2, 5))
    time_dim = Dim(Tensor("time", dims=[batch_dim], dtype="int32", raw_tensor=torch.tensor(lengths, dtype=torch.int32)))
    data = Tensor(
        "data",
        dims=[batch_dim, time_dim],
        dtype="int32",
        sparse_dim=Dim(VOCAB_SIZE, name="vocab"),
        raw_tensor=chars.to(torch.int32),
    )
    batch_dim.dyn_size_ext = Tensor("batch", dims=[], dtype="int32", raw_tensor=torch.tensor(2, dtype=torch.int32))
    rf.select_backend_torch()
    rf.init_train_step_run_ctx(train_flag=True, step=0, epoch=1)
    try:
        train_step(model=model, extern_data=TensorDict([data]), some_argument_of_a_later_version=None)
        losses = rf.get_run_ctx().losses
        assert list(losses) == ["ce"]
        log_probs = torch.log_softmax(model(chars), dim=-1)
        by_hand = [-log_probs[b, t, chars[b, t]].item() for b in range(2) for t in range(lengths[b])]
        assert losses["ce"].get_summed_loss().raw_tensor.item() == pytest.approx(sum(by_hand), rel=1e-5)
        assert int(losses["ce"].get_inv_norm_factor().raw_tensor) == 8
        # What the optimizer minimises is the mean: the learning rate does not depend on the size of a batch.
        assert rf.get_run_ctx().total_loss().raw_tensor.item() == pytest.approx(sum(by_hand) / 8, rel=1e-5)
    finally:
        batch_dim.reset_eager()


def test_random_guessing_costs_the_log_of_the_number_of_characters(model):
    """A fresh model knows nothing, so its loss is near log V: the scale of the start is right."""
    chars = torch.randint(VOCAB_SIZE, (50, 20))
    loss = torch.nn.functional.cross_entropy(model(chars).flatten(0, 1), chars.flatten())
    assert float(loss.detach()) == pytest.approx(torch.log(torch.tensor(VOCAB_SIZE)).item(), abs=0.4)
