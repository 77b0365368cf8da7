"""The ways in which decoder architectures differ, one spec each; sizes come from the file's metadata.

To add an architecture, add a module here that registers its spec; nothing else needs an edit.
"""

import importlib
import pkgutil
from dataclasses import dataclass

from ..errors import ArchError


@dataclass(frozen=True, slots=True)
class ArchSpec:
    """How an architecture differs from a plain decoder; the defaults are llama's.

    rope: "norm" rotates adjacent pairs (2i, 2i + 1) of a head.
    """

    name: str  # general.architecture
    rope: str = "norm"


_SPECS: dict[str, ArchSpec] = {}


def register(spec: ArchSpec) -> ArchSpec:
    """Add a spec to the table; called once by its module."""
    assert spec.name not in _SPECS, f"{spec.name} is registered twice"
    _SPECS[spec.name] = spec
    return spec


def supported() -> tuple[str, ...]:
    """The names of all architectures, sorted."""
    return tuple(sorted(_SPECS))


def spec_for(name: str) -> ArchSpec:
    """The spec of an architecture. Raises ArchError listing the supported ones."""
    try:
        return _SPECS[name]
    except KeyError:
        shown = repr(name) if len(name) <= 60 else f"{name[:60]!r}…"
        raise ArchError(
            f"architecture {shown} is not supported; supported: {', '.join(supported())} "
            "(see README, where things are added)"
        ) from None


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
