"""Write guest/tokenizer/unicode_classes.py from Python's own Unicode data.

    python3.13 tests/make_unicode_classes.py

Run it with a Python whose `unicodedata.unidata_version` is 15.1.0 (CPython 3.13): that is the version of the
table in llama.cpp's src/unicode-data.cpp, which decides where words are split. The result does not depend on
the Python that runs pagelm, so that a page and a desktop split alike.
"""

import base64
import sys
import unicodedata
import zlib
from pathlib import Path

UNICODE = "15.1.0"
CLASS = {"N": 0xD1, "L": 0xD2, "P": 0xD3, "M": 0xD4, "S": 0xD5}  # any other category: 0xD0
# White_Space beyond ASCII. Source: https://www.unicode.org/Public/15.1.0/ucd/PropList.txt
SPACES = {0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}

HEAD = '''"""The class of each Unicode code point, for the split patterns: one byte each, compressed.

Made by tests/make_unicode_classes.py from the Unicode character database, version {unicode}; do not edit.
"""

import base64
import zlib

UNICODE_VERSION = "{unicode}"


def class_table() -> bytes:
    """One byte per code point, 0x110000 in all.

    ASCII stands for itself; other white space is 0x0B; numbers 0xD1, letters 0xD2, punctuation 0xD3,
    marks 0xD4, symbols 0xD5; everything else, unassigned included, 0xD0.
    """
    return zlib.decompress(base64.b85decode(_TABLE))


_TABLE = (
'''


def table() -> bytes:
    """The table from the running Python's unicodedata."""
    out = bytearray(range(128))
    for point in range(128, 0x110000):
        category = unicodedata.category(chr(point))
        assigned = CLASS.get(category[0], 0xD0)
        out.append(0x0B if point in SPACES else assigned)
    return bytes(out)


def main() -> None:
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}; {UNICODE} is needed (CPython 3.13)")
    text = base64.b85encode(zlib.compress(table(), 9)).decode()
    path = Path(__file__).parent.parent / "guest" / "tokenizer" / "unicode_classes.py"
    lines = [f'    "{text[i : i + 100]}"\n' for i in range(0, len(text), 100)]
    path.write_text(HEAD.format(unicode=UNICODE) + "".join(lines) + ")\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
