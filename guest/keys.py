"""Values of metadata keys, held to what they may be. A refusal names the key, its value, what is allowed."""

import math
from array import array

from .errors import ArchError
from .gguf import Gguf, shown
from .string_array import StringArray

LEAST_SCALE = 1e-30  # of what multiplies or divides, so that f32 holds it and its inverse


def refused(gguf: Gguf, key: str, allowed: str) -> ArchError:
    return ArchError(f"{gguf.name}: {key} is {shown(gguf.metadata[key])}; allowed: {allowed}")


def check_neutral(gguf: Gguf, key: str, neutral: object) -> None:
    """An option that pagelm does not compute must be absent or do nothing."""
    if key not in gguf.metadata:
        return
    if isinstance(neutral, bool):
        value: object = gguf.flag(key)
    elif isinstance(neutral, str):
        value = gguf.string(key)
    elif isinstance(neutral, int):
        value = gguf.uint(key)
    else:
        value = gguf.number(key)
    if value != neutral:
        raise refused(gguf, key, f"{shown(neutral)} (anything else is not supported)")


def size(gguf: Gguf, key: str, most: int, default: int | None = None) -> int:
    """A count from 1 to `most`."""
    if isinstance(gguf.metadata.get(key), array | list | StringArray):
        raise refused(gguf, key, f"one integer from 1 to {most}; a value per layer is not supported")
    if default is not None and key not in gguf.metadata:
        return default
    value = gguf.uint(key)
    if not 1 <= value <= most:
        raise refused(gguf, key, f"an integer from 1 to {most}")
    return value


def positive(gguf: Gguf, key: str, *, default: float | None = None, most: float = 1e12) -> float:
    """A finite number above zero."""
    if default is not None and key not in gguf.metadata:
        return default
    value = gguf.number(key)
    if not (math.isfinite(value) and 0 < value <= most):
        raise refused(gguf, key, f"a number above 0, at most {most:g}")
    return value


def scale(gguf: Gguf, key: str, default: float) -> float:
    """What multiplies or caps something; 0 stands for nothing of the kind."""
    value = gguf.number(key, default=default)
    if value and not (math.isfinite(value) and LEAST_SCALE <= value <= 1e12):
        raise refused(gguf, key, f"0, or a number from {LEAST_SCALE:g} to 1e12")
    return value
