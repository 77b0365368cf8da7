"""Write the table of capabilities into README.md, from the registries and host/proofs.json.

python tests/make_capabilities.py
"""

import re
from pathlib import Path

from pagelm.host.capabilities import capabilities, markdown

README = Path(__file__).parent.parent / "README.md"
PLACE = re.compile(r"(<!-- capabilities -->\n).*?(<!-- end of capabilities -->)", re.DOTALL)


def written(text: str) -> str:
    """The README's text with the table as it should be."""
    return PLACE.sub(lambda m: f"{m[1]}{markdown(capabilities())}\n{m[2]}", text)


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
