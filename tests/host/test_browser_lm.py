"""What BrowserLm makes of values and errors on their way; the rest is in e2e/test_browser_lm.py."""

import array
import inspect

import pytest

from pagelm import errors
from pagelm.host.browser_lm import _pack, _result, _unpack

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.PagelmError) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "text",
        [1, [2.5, "x"]],
        {"ids": [1, 2], "none": None},
        b"\x00\xff\x80",
        array.array("f", [1.5, -0.0, 3e38]),
        {"deep": [{"values": array.array("I", [0, 2**32 - 1])}]},
        array.array("f"),
    ],
)
def test_value_survives_the_way_there_and_back(value: object) -> None:
    assert _unpack(_pack(value)) == value


def test_array_travels_as_base64_not_as_numbers() -> None:
    assert _pack(array.array("f", [1.0])) == {"$array": "Float32Array", "base64": "AACAPw=="}


@pytest.mark.parametrize("kind", KINDS)
def test_service_error_comes_out_as_its_own_type(kind: type[errors.PagelmError]) -> None:
    answer = {"error": {"type": kind.__name__, "message": "found this [header.n_kv at byte 16]"}}
    with pytest.raises(errors.PagelmError) as caught:
        _result(answer)
    assert type(caught.value) is kind
    assert str(caught.value) == "found this [header.n_kv at byte 16]"


def test_bug_in_the_service_comes_out_with_its_traceback() -> None:
    error = {"type": "KeyError", "message": "'x'", "traceback": "Traceback …\nKeyError: 'x'"}
    with pytest.raises(RuntimeError, match=r"KeyError: 'x'\nTraceback"):
        _result({"error": error})


@pytest.mark.parametrize("name", ["annotations", "KeyboardInterrupt", "Exception", "__name__"])
def test_error_of_no_pagelm_type_is_not_looked_up_elsewhere(name: str) -> None:
    with pytest.raises(RuntimeError, match=name):
        _result({"error": {"type": name, "message": "m", "traceback": None}})
