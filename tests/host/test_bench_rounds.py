"""Turns: the order of measurements, what noise discards, what is repeated and for how long."""

import asyncio

import pytest
from fake_peer import FakeMeter, FakePeer

from pagelm.host.bench.rounds import TRIES, Turns, figures
from pagelm.host.bench.sample import Sample


def take(subjects, rounds, noise=(), **options):
    turns = Turns(FakeMeter(noise), **{"calm_s": 0, "look_s": 0} | options)
    return asyncio.run(turns.take(subjects, rounds)), turns.meter


def test_rates_leave_the_first_token_to_the_prompt():
    sample = Sample(prompt_tokens=100, gen=11, first_s=2.0, total_s=7.0)
    assert sample.prefill_tok_s == 50.0
    assert sample.decode_tok_s == 2.0  # the ten others in five seconds


def test_everyone_is_measured_once_a_round_in_the_same_order():
    order = []
    subjects = [FakePeer(name, order=order) for name in "abc"]
    found, _ = take(subjects, 3)
    assert "".join(order) == "abc" + "abc" * 3  # a warm-up each, then the rounds
    assert {name: len(measured) for name, measured in found.items()} == {"a": 3, "b": 3, "c": 3}


def test_warm_up_does_not_count():
    found, _ = take([FakePeer("a", [(9.0, 99.0), (1.0, 2.0), (2.0, 3.0), (4.0, 5.0)])], 3)
    assert figures(found["a"])["ttft_s"] == 2.0
    assert figures(found["a"])["prefill_tok_s"] == {"p50": 8.0, "min": 4.0, "max": 16.0}


@pytest.mark.parametrize(("noise", "runs"), [(0.15, 1), (0.16, 2)])
def test_noise_above_the_limit_discards_and_repeats(noise, runs):
    peer = FakePeer("a", [(1.0, 2.0), (3.0, 6.0), (1.0, 2.0)])
    found, _ = take([peer], 1, [noise, 0.0])
    (one,) = found["a"]
    assert peer.order == ["a"] * (1 + runs)
    assert (one.sample.first_s, one.noisy, len(one.discarded)) == ((3.0, 1.0)[runs - 1], False, runs - 1)


def test_repeats_happen_at_once_and_keep_the_order_of_the_others():
    order = []
    take([FakePeer("a", order=order), FakePeer("b", order=order)], 1, [0.5, 0.5, 0.0, 0.0])
    assert "".join(order) == "ab" + "aaab"


def test_what_never_gets_quiet_is_tried_a_bounded_number_of_times_and_marked():
    said = []
    peer = FakePeer("a", [(9.0, 10.0), (1.0, 2.0), (2.0, 3.0), (4.0, 5.0)])
    found, _ = take([peer], 1, [0.9, 0.3, 0.6], say=said.append)
    (one,) = found["a"]
    assert len(peer.order) == 1 + TRIES == 4
    assert (one.noisy, one.other_cores, one.sample.first_s) == (True, 0.3, 2.0)  # the quietest
    assert [other for _, other in one.discarded] == [0.9, 0.6]
    assert figures(found["a"])["noisy_rounds"] == [1]
    assert "none of 3 was quiet" in said[-1]


def test_limit_is_the_callers():
    assert not take([FakePeer("a")], 1, [0.9], max_noise=1.0)[0]["a"][0].discarded


def test_where_noise_is_unknown_every_run_counts_and_none_is_marked():
    found, _ = take([FakePeer("a")], 2, [None, None])
    got = figures(found["a"])
    assert (got["other_cores"], got["noisy_rounds"], got["discarded"]) == (None, [], [])


def test_noise_is_that_of_all_but_the_one_whose_turn_it_is():
    _, meter = take([FakePeer("a", roots=(1, 2)), FakePeer("b", roots=(3,))], 1)
    assert meter.watched == [{1, 2}, {3}]


def test_a_run_waits_for_the_machine_to_come_to_rest():
    peer = FakePeer("a")
    found, meter = take([peer], 1, [0.9, 0.9, 0.1, 0.05], calm_s=60)
    assert len(peer.order) == 2  # three looks, then the run, which was quiet
    assert len(meter.watched) == 4 and found["a"][0].other_cores == 0.05


def test_the_wait_for_rest_ends():
    found, meter = take([FakePeer("a")], 1, [0.9] * 1_000_000, calm_s=0.02)
    assert found["a"][0].noisy and len(meter.watched) < 1_000_000
