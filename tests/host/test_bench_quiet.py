"""How busy others are: /proc as the kernel writes it, in a folder of its own."""

import os
import subprocess
import sys
import time

import pytest

from pagelm.host.bench import quiet

PER_S = 100


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(quiet, "PROC", tmp_path)
    monkeypatch.setattr(quiet.os, "sysconf", {"SC_CLK_TCK": PER_S}.get)

    def process(pid, parent, own=0, dead_children=0, name="python3"):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        # pid (name) state ppid pgrp session tty tpgid flags and four faults, utime stime cutime cstime …
        fields = f"S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 {dead_children} 0 20 0 1"
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {fields}\n")

    def machine(busy, idle=0):
        # user nice system idle iowait irq softirq steal guest guest_nice
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 {idle} 7 0 0 0 5 0\ncpu0 1 2 3\n")

    process(os.getpid(), 1, own=50)
    machine(1000)
    return process, machine


def test_other_work_is_all_but_this_process_and_the_trees_named(proc):
    process, _ = proc
    process(101, os.getpid(), own=100, dead_children=20, name="node) (x")
    process(102, 101, own=30)
    process(103, 102, own=3)
    process(201, os.getpid(), own=400)
    assert quiet.other_seconds([101]) == pytest.approx((1000 - 50 - 120 - 33) / PER_S)
    assert quiet.other_seconds([101, 201]) == pytest.approx((1000 - 50 - 120 - 33 - 400) / PER_S)
    assert quiet.other_seconds([]) == pytest.approx((1000 - 50) / PER_S)
    assert quiet.other_seconds([999]) == quiet.other_seconds([])  # it has ended
    assert quiet.children() == {101, 201}


def test_waiting_and_idling_are_no_work(proc):
    proc[1](1000, idle=123456)
    assert quiet.other_seconds([]) == pytest.approx((1000 - 50) / PER_S)


def test_meter_gives_cores_over_the_time_watched(proc, monkeypatch):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(quiet.time, "perf_counter", lambda: next(clock))
    cores = quiet.ProcMeter().start([])
    proc[1](1000 + 3 * PER_S)
    assert cores() == 1.5


def test_cores_busy_just_now_leave_this_process_and_its_children_out(proc, monkeypatch):
    process, machine = proc
    process(101, os.getpid(), own=100)

    def sleep(seconds):  # meanwhile the child works for a second, and somebody else for half a one
        process(101, os.getpid(), own=100 + PER_S)
        machine(1000 + PER_S * 3 // 2)

    clock = iter([10.0, 11.0])
    monkeypatch.setattr(quiet.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(quiet.time, "sleep", sleep)
    assert quiet.busy_cores() == 0.5


@pytest.mark.parametrize("text", [None, "", "cpu  a b c"])
def test_without_a_proc_nothing_is_known(proc, monkeypatch, tmp_path, text):
    monkeypatch.setattr(quiet, "PROC", tmp_path / "other")
    if text is not None:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "stat").write_text(text)
    assert quiet.ProcMeter().start([1])() is None
    assert quiet.children() == set()


@pytest.mark.linux
def test_a_busy_child_counts_unless_it_is_the_one_measured():
    before = quiet.children()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert quiet.children() - before == {child.pid}
        for _ in range(100):  # until the kernel has counted some of its time
            watched = quiet.ProcMeter().start([]), quiet.ProcMeter().start([child.pid])
            time.sleep(0.2)
            all_others, all_but_child = (cores() for cores in watched)
            if all_others > all_but_child:
                break
        assert all_others > all_but_child >= 0
    finally:
        child.kill()
        child.wait()
    assert quiet.children() == before
