"""Logs of loops, and what the journal says of passes."""

import copy

import numpy as np
import pytest

from skvbgp._core.journal import Journal, begin_log, do_once, use_journal
from skvbgp._core.parallel import parallel_map, thread_map


def make_journal(content=None, every=1):
    saved = []
    return Journal(content, lambda content: saved.append(copy.deepcopy(content)), every), saved


def test_without_a_journal_nothing_is_noted():
    assert begin_log("loop") is None
    assert do_once(lambda: 3) == 3


def test_logs_are_found_again_in_their_order():
    first, saved = make_journal()
    with use_journal(first):
        for kind in ("a", "b"):
            begin_log(kind).entries.append(kind.upper())
    first.end_pass(False)
    again, _ = make_journal(saved[-1])
    with use_journal(again):
        assert [begin_log(kind).entries for kind in ("a", "b", "c")] == [["A"], ["B"], []]
    assert begin_log("d") is None


def test_another_kind_of_loop_is_an_error():
    journal, _ = make_journal((None, [], []))
    with use_journal(journal):
        begin_log("a")
    again, _ = make_journal(journal.content)
    with use_journal(again), pytest.raises(RuntimeError, match="does not repeat"):
        begin_log("b")


def test_passes_are_repeated_with_their_answers_and_saved_when_due():
    journal, saved = make_journal(every=2)
    for stop in (False, False, False, True):
        assert not journal.repeats
        journal.end_pass(stop)
    assert [len(stops) for _, stops, _ in saved] == [2, 4]
    again, saved = make_journal(saved[-1], every=3)
    assert [again.repeat_pass() for _ in range(4)] == [False, False, False, True]
    assert not again.repeats
    again.end_pass(False)
    again.end_pass(False)
    assert [len(stops) for _, stops, _ in saved] == [6]


def test_generator_is_set_to_its_first_state():
    journal, saved = make_journal()
    rng = np.random.RandomState(3)
    journal.begin_fit(rng)
    expected = rng.uniform(size=3)
    journal.end_pass(False)
    other = np.random.RandomState(4)
    make_journal(saved[0])[0].begin_fit(other)
    assert np.array_equal(other.uniform(size=3), expected)


def test_a_function_is_called_once():
    journal, saved = make_journal()
    with use_journal(journal):
        assert do_once(lambda: [1, 2]) == [1, 2]
    journal.end_pass(False)
    with use_journal(make_journal(saved[0])[0]):
        assert do_once(lambda: 1 / 0) == [1, 2]


def _count_logs():
    return 0 if begin_log("inner") is None else 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "call",
    [
        lambda: thread_map(_count_logs, [()] * 3),
        lambda: thread_map(_count_logs, [()]),
        lambda: parallel_map(_count_logs, [()] * 2),
        lambda: parallel_map(_count_logs, [()] * 2, n_jobs=2),
        lambda: [do_once(_count_logs)],
    ],
)
def test_tasks_keep_no_logs_of_their_own(call):
    journal, _ = make_journal()
    with use_journal(journal):
        assert sum(call()) == 0
        assert begin_log("outer") is not None
