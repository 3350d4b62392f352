"""Reading RETURNN's learning-rate file, K27 among others."""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy
import pytest
from returnn.learning_rate_control import LearningRateControl

from syncopate.errors import ReadError
from syncopate.returnn_io.learning_rates import (
    EpochScores,
    LearningRates,
    data_set_of,
    parse_learning_rates,
    read_learning_rates,
)

K27 = """\
{
1: EpochData(learningRate=0.01, error={
':meta:distributed': '<DistributedContext size=2 reduce_type=param>',
':meta:effective_learning_rate': np.float64(0.001),
':meta:epoch_num_train_steps': 26,
':meta:epoch_train_time_secs': 0,
'dev_loss_ce': 0.5,
'dev_loss_ce:exp': float('inf'),
'train_loss_ce': 0.6,
}),
2: EpochData(learningRate=0.01, error={'dev_loss_ce': float('nan'), 'train_loss_ce': nan}),
3: EpochData(learningRate=0.02, error={'train_loss_ce': 0.4}),
4: EpochData(learningRate=0.03, error={}),
}
"""


def parse(text: str) -> LearningRates:
    return parse_learning_rates(text, source="learning_rates")


def parse_error(error: str) -> EpochScores:
    """:param error: source of the error argument of the only epoch"""
    return parse(f"{{1: EpochData(learningRate=0.1, error={error})}}").epochs[1]


def numbers(epochs: list[EpochScores]) -> list[int]:
    return [epoch.epoch for epoch in epochs]


def test_k27_states_of_epochs() -> None:
    rates = parse(K27)
    assert list(rates.epochs) == [1, 2, 3, 4]
    assert numbers(rates.trained) == [1, 2, 3]
    assert numbers(rates.complete) == [1, 2]
    assert numbers(rates.diverged) == [2]
    assert numbers(rates.planned) == [4]
    assert rates.world_size == 2
    best = rates.best("dev_loss_ce")
    assert best is not None
    assert best.epoch == 1
    assert rates.last_complete == rates.epochs[2]


def test_k27_throughput_of_a_zero_second_epoch_is_not_available() -> None:
    first = parse(K27).epochs[1]
    assert first.num_train_steps == 26
    assert first.train_time_s == 0
    assert first.steps_per_s is None


def test_k27_scores_and_meta_are_kept_apart() -> None:
    first = parse(K27).epochs[1]
    assert first.scores == {"dev_loss_ce": 0.5, "dev_loss_ce:exp": math.inf, "train_loss_ce": 0.6}
    assert list(first.scores) == ["dev_loss_ce", "dev_loss_ce:exp", "train_loss_ce"]
    assert first.meta["effective_learning_rate"] == 0.001
    assert first.data_sets == ("dev", "train")
    assert parse(K27).score_names == ["dev_loss_ce", "dev_loss_ce:exp", "train_loss_ce"]
    assert parse(K27).main_score_names == ["dev_loss_ce", "train_loss_ce"]


def test_derived_scores_do_not_make_an_epoch_diverged() -> None:
    assert not parse_error("{'dev_loss_ce': 800.0, 'dev_loss_ce:exp': float('inf')}").is_diverged
    assert not parse_error("{'train_loss_ce': 1.0, 'train_loss_grad_norm:p2': nan}").is_diverged
    for value in ("nan", "inf", "-inf", "np.float32(nan)"):
        assert parse_error(f"{{'train_loss_ce': {value}, 'dev_loss_ce': 0.1}}").is_diverged


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("0.25", 0.25),
        ("-0.25", -0.25),
        ("+3", 3.0),
        ("7", 7.0),
        ("1e-07", 1e-07),
        ("nan", math.nan),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("float('nan')", math.nan),
        ("float('inf')", math.inf),
        ("float('-inf')", -math.inf),
        ("np.float64(0.1)", 0.1),
        ("np.float64(-0.1)", -0.1),
        ("np.float64(nan)", math.nan),
        ("np.float64(-inf)", -math.inf),
        ("np.float64('nan')", math.nan),
        ("numpy.float32(0.5)", 0.5),
        ("np.float16(2)", 2.0),
        ("np.longdouble('0.5')", 0.5),
        ("np.int64(5)", 5.0),
    ],
)
def test_values_of_scores(source: str, value: float) -> None:
    read = parse_error(f"{{'dev_loss_ce': {source}}}").scores["dev_loss_ce"]
    assert isinstance(read, float)
    assert read == value or (math.isnan(read) and math.isnan(value))
    assert str(parse(f"{{1: EpochData(learningRate={source})}}").epochs[1].learning_rate) == str(read)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("True", True),
        ("None", None),
        ("'a: {b}'", "a: {b}"),
        ("'it' 's'", "its"),
        ("-3", -3),
        ("[1, -2.5, 'x', None,]", [1, -2.5, "x", None]),
        ("()", ()),
        ("(1,)", (1,)),
        ("{'a': {1: [True]}, (1, 2): None, -1: 2}", {"a": {1: [True]}, (1, 2): None, -1: 2}),
        ("np.True_", True),
        ("numpy.False_", False),
        ("np.str_('x')", "x"),
        ("np.int64(-5)", -5),
        ("np.bool_(True)", True),
    ],
)
def test_values_of_meta(source: str, value: object) -> None:
    read = parse_error(f"{{':meta:note': {source}}}").meta["note"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "call",
    [
        "EpochData(learningRate=0.1, error={'dev_loss_ce': 0.5})",
        "EpochData(learning_rate=0.1, error={'dev_loss_ce': 0.5})",
        "EpochData(0.1, {'dev_loss_ce': 0.5})",
        "EpochData(0.1, error={'dev_loss_ce': 0.5,},)",
        "EpochData(error={'dev_loss_ce': 0.5}, learningRate=0.1)",
    ],
)
def test_ways_to_write_an_epoch(call: str) -> None:
    epoch = parse(f"{{1: {call},}}").epochs[1]
    assert (epoch.learning_rate, epoch.scores) == (0.1, {"dev_loss_ce": 0.5})


@pytest.mark.parametrize("call", ["EpochData(0.1)", "EpochData(0.1, error=None)", "EpochData(0.1, error={})"])
def test_ways_to_write_a_planned_epoch(call: str) -> None:
    epoch = parse(f"{{1: {call}}}").epochs[1]
    assert epoch.is_planned
    assert epoch.data_sets == ()


def test_planned_epoch_without_a_learning_rate_of_old_files() -> None:
    assert parse("{1: EpochData(learningRate=None)}").epochs[1].learning_rate is None


def test_the_oldest_format_has_one_nameless_score() -> None:
    rates = parse("{1: EpochData(learningRate=0.1, error=2.5), 2: EpochData(learningRate=0.1, error=nan)}")
    assert rates.epochs[1].scores == {"old_format_score": 2.5}
    assert rates.epochs[1].data_sets == ()
    assert numbers(rates.complete) == [1, 2]
    assert numbers(rates.diverged) == [2]


@pytest.mark.parametrize(
    ("score", "data_set"),
    [
        ("dev_loss_ce", "dev"),
        ("dev_loss_frame_error", "dev"),
        ("dev_loss_ctc-0", "dev"),
        ("devtrain_loss_ce:exp", "devtrain"),
        ("dev_other_loss_ce", "dev_other"),
        ("dev-other_loss_ce", "dev-other"),
        ("train_score", "train"),
        ("dev_error", "dev"),
        ("dev_error_ctc", "dev"),
        ("dev_score_output/output_prob", "dev"),
        ("test_clean_score_output", "test_clean"),
        ("devtrain_score_output", "devtrain"),
        ("train_loss_grad_norm:p2", "train"),
        ("old_format_score", None),
        ("dev_lossless", None),
        ("wer", None),
    ],
)
def test_data_sets(score: str, data_set: str | None) -> None:
    assert data_set_of(score) == data_set


def test_an_epoch_without_one_data_set_is_not_complete() -> None:
    rates = parse(
        "{1: EpochData(0.1, {'train_score': 1.0, 'dev_score': 1.0, 'dev_error': 0.5}),"
        " 2: EpochData(0.1, {'train_score': 1.0, 'dev_score': 1.0, 'devtrain_score': 1.0}),"
        " 3: EpochData(0.1, {'train_score': 1.0})}"
    )
    assert numbers(rates.complete) == [2]


def test_epochs_are_ascending_whatever_the_order_of_the_file() -> None:
    assert list(parse("{10: EpochData(0.1), 2: EpochData(0.1)}").epochs) == [2, 10]


def test_best_in_both_directions_and_the_earliest_of_equals() -> None:
    values = [0.3, 0.1, math.nan, 0.1, 0.9, 0.9, -math.inf]
    rates = parse(
        "{"
        + ",".join(f"{i}: EpochData(0.1, {{'dev_acc_score': float('{v}')}})" for i, v in enumerate(values, start=1))
        + "}"
    )
    lowest, highest = rates.best("dev_acc_score"), rates.best("dev_acc_score", lower_is_better=False)
    assert lowest is not None
    assert highest is not None
    assert (lowest.epoch, highest.epoch) == (2, 5)


def test_best_without_a_finite_value_or_a_trained_epoch_is_none() -> None:
    assert parse("{1: EpochData(0.1, {'dev_loss_ce': nan})}").best("dev_loss_ce") is None
    assert parse("{1: EpochData(0.1)}").best("dev_loss_ce") is None
    assert parse("{}").best("dev_loss_ce") is None
    assert parse("{}").last_complete is None


def test_best_of_an_unknown_score_lists_those_there_are() -> None:
    with pytest.raises(ReadError) as caught:
        parse(K27).best("dev_los_ce")
    assert str(caught.value) == (
        "learning_rates: no epoch has the score 'dev_los_ce' (did you mean 'dev_loss_ce'?);"
        " the file has ['dev_loss_ce', 'dev_loss_ce:exp', 'train_loss_ce']"
    )


def test_steps_per_second_needs_both_numbers() -> None:
    steps, time_s = "':meta:epoch_num_train_steps': 30", "':meta:epoch_train_time_secs': np.float64(12.0)"
    assert parse_error(f"{{{steps}, {time_s}}}").steps_per_s == 2.5
    assert parse_error(f"{{{steps}}}").steps_per_s is None
    assert parse_error(f"{{{time_s}}}").steps_per_s is None
    assert parse_error("{':meta:epoch_num_train_steps': True, ':meta:epoch_train_time_secs': None}").steps_per_s is None


def test_world_size_is_the_one_of_the_last_trained_epoch_that_tells() -> None:
    def epoch(number: int, noted: str, scores: str = "'train_loss_ce': 1.0") -> str:
        return f"{number}: EpochData(0.1, {{{noted}{scores}}}),"

    two = "':meta:distributed': '<DistributedContext size=2 reduce_type=grad>', "
    sixteen = "':meta:distributed': '<SyncopateContext size=16 reduce_type=sync>', "
    alone = "':meta:distributed': None, "
    foreign = "':meta:distributed': 'size=5', "
    assert parse("{" + epoch(1, two) + epoch(2, sixteen) + "}").world_size == 16
    assert parse("{" + epoch(1, two) + epoch(2, sixteen, scores="") + "}").world_size == 2
    assert parse("{" + epoch(1, sixteen) + epoch(2, "") + epoch(3, foreign) + "}").world_size == 16
    assert parse("{" + epoch(1, alone) + "}").world_size == 1
    assert parse("{" + epoch(1, "") + "}").world_size is None


BROKEN = {
    "another_call": ("open('x')", "learning_rates:3: RETURNN writes nothing like this: \"open('x')\""),
    "call_of_epoch_data": ("EpochData(0.1)", "learning_rates:3: RETURNN writes nothing like this: 'EpochData(0.1)'"),
    "import": ("__import__('os').system('true')", "learning_rates:3: RETURNN writes nothing like this: "),
    "attribute": ("np.pi", "learning_rates:3: RETURNN writes nothing like this: 'np.pi'"),
    "numpy_function": ("np.exp(1.0)", "learning_rates:3: RETURNN writes nothing like this: 'np.exp(1.0)'"),
    "deep_attribute": ("np.core.float64(1)", "learning_rates:3: RETURNN writes nothing like this: "),
    "name": ("NaN", "learning_rates:3: RETURNN writes nothing like this: 'NaN'"),
    "comprehension": ("[x for x in (1,)]", "learning_rates:3: RETURNN writes nothing like this: '[x for x in (1,)]'"),
    "lambda": ("lambda: 1", "learning_rates:3: RETURNN writes nothing like this: 'lambda: 1'"),
    "star": ("[*(1, 2)]", "learning_rates:3: RETURNN writes nothing like this: '*(1, 2)'"),
    "sum": ("1 + 2", "learning_rates:3: RETURNN writes nothing like this: '1 + 2'"),
    "not": ("not 1", "learning_rates:3: RETURNN writes nothing like this: 'not 1'"),
    "invert": ("~1", "learning_rates:3: RETURNN writes nothing like this: '~1'"),
    "minus_string": ("-'x'", "learning_rates:3: what follows a sign must be a number, got: \"'x'\""),
    "f_string": ("f'{1}'", "learning_rates:3: RETURNN writes nothing like this: \"f'{1}'\""),
    "bytes": ("b'x'", "learning_rates:3: RETURNN writes nothing like this: \"b'x'\""),
    "complex": ("1j", "learning_rates:3: RETURNN writes nothing like this: '1j'"),
    "ellipsis": ("...", "learning_rates:3: RETURNN writes nothing like this: '...'"),
    "set": ("{1, 2}", "learning_rates:3: RETURNN writes nothing like this: '{1, 2}'"),
    "walrus": ("(x := 1)", "learning_rates:3: RETURNN writes nothing like this: 'x := 1'"),
    "comparison": ("1 < 2", "learning_rates:3: RETURNN writes nothing like this: '1 < 2'"),
    "condition": ("1 if 1 else 2", "learning_rates:3: RETURNN writes nothing like this: '1 if 1 else 2'"),
    "item": ("[1][0]", "learning_rates:3: RETURNN writes nothing like this: '[1][0]'"),
    "float_of_word": ("float('many')", "learning_rates:3: is no number (could not convert string to float: 'many'): "),
    "float_of_list": ("float([1])", "learning_rates:3: RETURNN writes no such argument: 'float([1])'"),
    "float_keyword": ("float(x=1)", "learning_rates:3: RETURNN writes nothing like this: 'float(x=1)'"),
    "float_of_two": ("np.float64(1, 2)", "learning_rates:3: RETURNN writes nothing like this: 'np.float64(1, 2)'"),
    "int_of_float": ("np.int64(1.5)", "learning_rates:3: RETURNN writes no such argument: 'np.int64(1.5)'"),
    "list_as_key": ("{[1]: 2}", "learning_rates:3: cannot be the key of a dict: '[1]'"),
    "double_star": ("{**{}}", "learning_rates:3: expected 'key: value', got '**' before: '{}'"),
    "deep": ("[" * 50 + "]" * 50, "learning_rates:3: more than 20 levels of nesting: "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_returnn_never_writes_is_an_error_with_file_line_and_source(name: str) -> None:
    source, message = BROKEN[name]
    with pytest.raises(ReadError) as caught:
        parse(f"{{\n1: EpochData(learningRate=0.1, error={{\n':meta:note': {source},\n}}),\n}}")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "learning_rates:1: expected a dict {epoch: EpochData(...), ...}, got: '[1]'"),
        ("{1: EpochData(0.1),\n1: EpochData(0.2)}", "learning_rates:2: this epoch is there twice: '1'"),
        ("{0: EpochData(0.1)}", "learning_rates:1: an epoch must be an int of at least 1, got: '0'"),
        ("{-1: EpochData(0.1)}", "learning_rates:1: an epoch must be an int of at least 1, got: '-1'"),
        ("{1.0: EpochData(0.1)}", "learning_rates:1: an epoch must be an int of at least 1, got: '1.0'"),
        ("{True: EpochData(0.1)}", "learning_rates:1: an epoch must be an int of at least 1, got: 'True'"),
        ("{\n**{1: EpochData(0.1)}}", "learning_rates:2: expected 'key: value', got '**' before: "),
        ("{1: 0.5}", "learning_rates:1: epoch 1 must be EpochData(...), got: '0.5'"),
        ("{1: x.EpochData(0.1)}", "learning_rates:1: epoch 1 must be EpochData(...), got: 'x.EpochData(0.1)'"),
        ("{1: EpochData()}", "learning_rates:1: epoch 1 has no learning rate: 'EpochData()'"),
        ("{1: EpochData('x')}", "learning_rates:1: the learning rate of epoch 1 must be a number, got: \"'x'\""),
        ("{1: EpochData(*[0.1])}", "learning_rates:1: RETURNN writes nothing like this: '*[0.1]'"),
        ("{1: EpochData(0.1, {}, {})}", "learning_rates:1: epoch 1 has too many arguments: "),
        (
            "{1: EpochData(0.1,\nlearningRate=0.1)}",
            "learning_rates:2: epoch 1 has an argument that is unknown or given twice: 'learningRate=0.1'",
        ),
        (
            "{1: EpochData(0.1, **{})}",
            "learning_rates:1: epoch 1 has an argument that is unknown or given twice: '**{}'",
        ),
        ("{1: EpochData(0.1, err={})}", "learning_rates:1: epoch 1 has an argument that is unknown or given twice: "),
        ("{1: EpochData(0.1, 'x')}", "learning_rates:1: the score of epoch 1 must be a number, got: \"'x'\""),
        ("{1: EpochData(0.1, {1: 2})}", "learning_rates:1: a score of epoch 1 must be named by a string, got: '1'"),
        ("{1: EpochData(0.1, {'a': 1,\n'a': 2})}", "learning_rates:2: epoch 1 has this score twice: \"'a'\""),
        ("{1: EpochData(0.1, {'a': True})}", "learning_rates:1: score 'a' of epoch 1 must be a number, got: 'True'"),
        ("{1: EpochData(0.1, {'a': {}})}", "learning_rates:1: score 'a' of epoch 1 must be a number, got: '{}'"),
        ("{1: EpochData(0.1, {'a': 1%s})}" % ("0" * 400), "learning_rates:1: score 'a' of epoch 1 is too large: "),
        ("1 2", "learning_rates:1: was cut off, or RETURNN did not write it (invalid syntax): '1 2'"),
        ("{}\nimport os", "learning_rates:2: was cut off, or RETURNN did not write it (invalid syntax): 'import os'"),
        ("# nothing", "learning_rates:1: was cut off, or RETURNN did not write it (invalid syntax): "),
        ("{1: EpochData(0.1)}\0\0", "learning_rates:1: was cut off, or RETURNN did not write it (source code string"),
        ("'\ud800'", "learning_rates:1: is no text ("),
    ],
)
def test_errors_start_with_file_and_line_and_quote_the_source(text: str, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", ["", " ", "\n \n\t\n"])
def test_an_empty_file_is_called_empty(text: str) -> None:
    with pytest.raises(ReadError, match=r"^learning_rates: is empty; RETURNN writes this file at the end of its first"):
        parse(text)


def test_a_file_that_was_cut_off_anywhere_is_an_error_and_never_half_a_result() -> None:
    text = K27.rstrip()
    for length in range(1, len(text)):
        with pytest.raises(ReadError, match=r"^learning_rates:\d+: was cut off"):
            parse(text[:length])


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000,
        "{1:" * 20_000,
        "-" * 20_000 + "1",
        "-" * 2_000 + "1",
        "not " * 20_000 + "1",
        "1+" * 20_000 + "1",
        "f" + "(a)" * 20_000,
        "{1: EpochData(0.1, {'a': " + "-" * 1_000 + "1})}",
        "9" * 10_000,
    ],
)
def test_hostile_nesting_and_size_are_read_errors_with_short_messages(text: str) -> None:
    with pytest.raises(ReadError, match=r"^learning_rates:1: ") as caught:
        parse(text)
    assert len(str(caught.value)) < 500


def test_the_line_of_an_error_holds_after_text_that_is_not_ascii() -> None:
    text = "{1: EpochData(0.1, {':meta:hostname': 'Köln – β',\n':meta:cpu': 'ß', 'dev_loss_ce': what})}"
    with pytest.raises(ReadError, match=r"^learning_rates:2: RETURNN writes nothing like this: 'what'$"):
        parse(text)


def test_a_missing_file_and_one_that_is_no_text_are_read_errors(tmp_path: Path) -> None:
    path = tmp_path / "learning_rates"
    with pytest.raises(ReadError, match=r"learning_rates: cannot be read: No such file or directory$"):
        read_learning_rates(path)
    path.write_bytes(b"{\n1: \xff\xfe}")
    with pytest.raises(ReadError, match=r"learning_rates:2: is no UTF-8 text: b'\\xff\\xfe}'$"):
        read_learning_rates(path)


def test_a_file_as_the_tensorflow_engine_wrote_it() -> None:
    rates = parse(
        textwrap.dedent(
            """\
              {
              1: EpochData(learningRate=0.0008, error={
              'dev_error_ctc': 0.21,
              'dev_error_decision': 0.0,
              'dev_score_output/output_prob': 0.73,
              'train_score_output/output_prob': 0.49,
              }),
              2: EpochData(learningRate=0.0008, error={
              'dev_error_ctc': 0.22,
              'dev_error_decision': 0.0,
              'dev_score_output/output_prob': 0.72,
              'train_score_output/output_prob': 0.48,
              }),
            }"""
        )
    )
    assert numbers(rates.complete) == [1, 2]
    best = rates.best("dev_score_output/output_prob")
    assert best is not None
    assert best.epoch == 2


def same(read: object, expected: object) -> bool:
    """:return: equal, NaN being equal to itself, and numpy's scalars to the Python values they hold"""
    if isinstance(expected, numpy.generic):
        expected = expected.item()
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(read, float) and math.isnan(read)
    if isinstance(expected, Mapping):
        return (
            isinstance(read, Mapping)
            and read.keys() == expected.keys()
            and all(same(read[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list | tuple):
        return type(read) is type(expected) and len(read) == len(expected) and all(map(same, read, expected))
    return type(read) is type(expected) and read == expected


SPECIAL = [0.0, -0.0, 1e-300, -1e300, math.nan, math.inf, -math.inf]
TEXTS = ["", "it's", 'a "quote"', "tab\t, line\n, nul\0", "ünï – code", "\\", "}), {", "<DistributedContext size=3 x>"]


def any_float(rng: random.Random) -> float:
    value = rng.choice([rng.uniform(-1e3, 1e3), rng.choice(SPECIAL), float(rng.randint(-5, 5))])
    return rng.choice([value, numpy.float64(value)])


def any_meta(rng: random.Random, depth: int = 0) -> object:
    numpy_scalar = rng.choice(
        [
            numpy.float64(rng.random()),
            numpy.int64(rng.randint(-9, 9)),
            numpy.bool_(True),
            numpy.str_("x"),
            numpy.uint8(7),
        ]
    )
    plain = [None, True, False, rng.randint(-(10**20), 10**20), any_float(rng), rng.choice(TEXTS), numpy_scalar]
    if depth < 3 and rng.random() < 0.4:
        items = [any_meta(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        # RETURNN writes a tuple of one with str() in place of repr(), which it cannot read again itself.
        pair = (any_meta(rng, depth + 1), any_meta(rng, depth + 1))
        return rng.choice([items, pair, (), {f"{rng.choice(TEXTS)}{i}": item for i, item in enumerate(items)}])
    return rng.choice(plain)


def test_whatever_returnn_saves_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "learning_rates"
    names = [
        "train_loss_ce",
        "dev_loss_ce",
        "dev_loss_ce:exp",
        "dev_other_loss_fer",
        "devtrain_score_output",
        "dev_error",
    ]
    rng = random.Random(1)
    for _ in range(100):
        path.unlink(missing_ok=True)
        control = LearningRateControl(default_learning_rate=1.0, filename=str(path))
        for epoch in rng.sample(range(1, 1000), k=rng.randint(0, 6)):
            control.epoch_data[epoch] = LearningRateControl.EpochData(
                learning_rate=any_float(rng),
                error={name: any_float(rng) for name in rng.sample(names, k=rng.randint(0, len(names)))},
                meta={f"note {i}": any_meta(rng) for i in range(rng.randint(0, 4))},
            )
        control.save()

        rates = read_learning_rates(path)

        assert list(rates.epochs) == sorted(control.epoch_data)
        for number, expected in control.epoch_data.items():
            epoch = rates.epochs[number]
            assert same(epoch.learning_rate, expected.learning_rate)
            assert same(epoch.scores, expected.error)
            assert same(epoch.meta, expected.meta)


def test_a_numpy_nan_is_read_though_returnn_cannot_load_what_it_saved(tmp_path: Path) -> None:
    path = tmp_path / "learning_rates"
    control = LearningRateControl(default_learning_rate=0.1, filename=str(path))
    control.set_default_learning_rate_for_epoch(1, 0.1)
    control.set_epoch_error(1, {"dev_loss_ce": numpy.float64("nan"), "train_loss_ce": numpy.float64("-inf")})
    control.save()
    assert "float('np.float64(nan)')" in path.read_text()
    scores = read_learning_rates(path).epochs[1].scores
    assert math.isnan(scores["dev_loss_ce"])
    assert scores["train_loss_ce"] == -math.inf


def test_epochs_that_returnn_plans_and_scores_itself(tmp_path: Path) -> None:
    path = tmp_path / "learning_rates"
    control = LearningRateControl(default_learning_rate=0.1, default_learning_rates=[0.1, 0.2, 0.3], filename=str(path))
    control.set_epoch_error(
        1, {"train_score": {"cost:output": 1.5}, "dev_error": {"error:output": 0.5, "error:b": 0.6}}
    )
    control.set_epoch_error(2, {"train_loss_ce": numpy.float64(1.25)})
    control.save()
    rates = read_learning_rates(str(path))
    assert rates.epochs[1].scores == {"train_score": 1.5, "dev_error_b": 0.6, "dev_error_output": 0.5}
    assert [epoch.learning_rate for epoch in rates.epochs.values()] == [0.1, 0.2, 0.3]
    assert (numbers(rates.complete), numbers(rates.planned)) == ([1], [3])
