"""Progress bars: bytes on a terminal's stderr, nothing anywhere else."""

import functools
import io
import sys

import pytest
from tqdm import tqdm

from pagelm.host import progress
from pagelm.host.progress import byte_bar, load_bar
from pagelm.metrics import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def drawn(monkeypatch):
    """Call it in the test (pytest replaces stderr between set-up and test): the terminal's stream."""

    def start():
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "tqdm", functools.partial(tqdm, mininterval=0))
        return stream

    return start


def test_weights_are_counted_in_bytes_and_kernels_one_by_one(drawn):
    terminal = drawn()
    with load_bar() as bar:
        bar(Progress("weights", 0, 64 << 20))
        bar(Progress("kernels", 0, 18))
        bar(Progress("weights", 16 << 20, 64 << 20))
        bar(Progress("kernels", 3, 18))
    text = terminal.getvalue()
    assert "weights:  25%" in text and "16.0M/64.0M" in text
    assert "kernels:  17%" in text and "3/18" in text


def test_bar_that_is_done_is_taken_away(drawn):
    terminal = drawn()
    with byte_bar() as bar:
        bar("downloading", 0, 10)
        bar("downloading", 10, 10)
        end = terminal.getvalue()
    assert "downloading" in end
    assert end.rsplit("\r", 2)[1].strip() == ""  # the last thing drawn over it is blank
    assert terminal.getvalue() == end  # and nothing more at the end


def test_nothing_is_drawn_where_there_is_nothing_to_do(drawn):
    terminal = drawn()
    with load_bar() as bar:
        bar(Progress("header", 5, 5))
    assert terminal.getvalue() == ""


def test_quiet_draws_nothing_on_a_terminal(drawn):
    terminal = drawn()
    with byte_bar(quiet=True) as bar:
        bar("downloading", 1, 10)
    with load_bar(quiet=True) as show:
        show(Progress("weights", 1, 10))
    assert terminal.getvalue() == ""


def test_nothing_is_drawn_on_a_file(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with byte_bar() as bar:
        bar("downloading", 1, 10)
    assert stream.getvalue() == ""
