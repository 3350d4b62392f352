from __future__ import annotations

from syncopate.compare.syncs import SyncCount, count_syncs, sync_warnings, updates_per_epoch
from syncopate.sweep.record import LevelRecord
from tests.compare.helpers import run_record

NODE_10 = LevelRecord(group="the ranks of a node", kind="parameters", every=10)
WORLD_40 = LevelRecord(group="all ranks", kind="parameters", every=40)
WORLD_500 = LevelRecord(group="all ranks", kind="parameters", every=500)


def test_left_over_micro_batches_make_no_update() -> None:
    assert updates_per_epoch([26, 25, 2], accum_grad=3) == [8, 8, 0]


def test_updates_are_unknown_if_any_number_is() -> None:
    assert updates_per_epoch([26, None], accum_grad=1) is None
    assert updates_per_epoch([26], accum_grad=None) is None
    assert updates_per_epoch([], accum_grad=1) is None


def test_k20_periods_start_anew_in_each_epoch() -> None:
    """K20: 3 epochs of 95 updates: 2 x 40 fit into each, 7 x 40 into all 285; 9 x 10 and 28 x 10."""
    assert count_syncs((NODE_10, WORLD_40), [95, 95, 95]) == (
        SyncCount(group="the ranks of a node", kind="parameters", every=10, planned=28, observed=27),
        SyncCount(group="all ranks", kind="parameters", every=40, planned=7, observed=6),
    )


def test_syncs_of_unknown_updates_are_unknown() -> None:
    (count,) = count_syncs((WORLD_40,), None)
    assert (count.planned, count.observed) == (None, None)


def test_k20_a_period_longer_than_an_epoch_is_warned_about() -> None:
    """K20: period 500, 300 updates per epoch."""
    run = run_record(levels=(NODE_10, WORLD_500))
    assert sync_warnings(run, [300, 300]) == [
        "the level that combines parameters of all ranks every 500 updates never fires in 2 of 2 epochs, which have 300"
        " updates each, since RETURNN counts periods per epoch; they are still averaged at each epoch end."
        ' epoch_end="view" is the mode in which the phase counts across epochs; a later version trains it'
    ]
    (count,) = count_syncs((WORLD_500,), [300, 300])
    assert (count.planned, count.observed) == (1, 0)


def test_k20_the_warning_says_what_an_epoch_end_does() -> None:
    (as_is,) = sync_warnings(run_record(levels=(WORLD_500,), epoch_end="as_is"), [300, 700, 310])
    assert "in 2 of 3 epochs, which have 300 to 310 updates each" in as_is
    assert "whether they are averaged at an epoch end depends on RETURNN's behavior_version." in as_is
    (never,) = sync_warnings(run_record(levels=(WORLD_500,), epoch_end=None), [300])
    assert "nothing combines them at an epoch end either." in never
    (other,) = sync_warnings(run_record(levels=(WORLD_500,), epoch_end="outer"), [300])
    assert "what an epoch end does is epoch_end='outer'." in other


def test_a_period_that_just_fits_is_not_warned_about() -> None:
    run = run_record(levels=(WORLD_500,))
    assert sync_warnings(run, [500, 501]) == []
    assert sync_warnings(run, None) == []


def test_an_epoch_without_any_update_is_warned_about() -> None:
    run = run_record(accum_grad=16)
    assert sync_warnings(run, [0, 3]) == [
        "1 of 2 epochs make no update at all: they have fewer micro-batches than the 16 of one update"
    ]
