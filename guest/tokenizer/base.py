"""What every tokenizer does alike: special tokens in a text, BOS and EOS, ids back to text."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import chain

from ..errors import TokenizerError
from .text import TextStream, tidy_spaces
from .vocab import BYTE, CONTROL, NORMAL, UNKNOWN, WRITTEN_AS_IS, Vocab

_SPACE_OF_C = " \t\n\v\f\r"  # what isspace() is true for


class Tokenizer(ABC):
    """Text to token ids and back.

    Attributes: `n_vocab`; `bos_id`, `eos_id`, `eot_id` (None where the vocabulary has none); `eog_ids`,
    the tokens that end a generation; `add_bos`, `add_eos`: whether `encode(add_special=True)` adds them;
    `before`, `after`: the ids that it adds; `vocab`: texts and kinds of all tokens; `add_space_prefix`: a
    space is put before a text, and taken away when decoding; `clean_spaces`: whether the vocabulary is one
    for which `decode(clean_spaces=True)` does something.
    """

    add_space_prefix = False
    clean_spaces = False

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.n_vocab = len(vocab.texts)
        self.bos_id = vocab.roles.get("bos")
        self.eos_id = vocab.roles.get("eos")
        self.eot_id = vocab.roles.get("eot")
        self.eog_ids = vocab.eog_ids
        self.add_bos = vocab.add_bos
        self.add_eos = vocab.add_eos
        self.before = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        self.after = [self.eos_id] if self.add_eos and self.eos_id is not None else []
        # Places in `vocab.specials` by how the text starts: some vocabularies have thousands of one start.
        self._special_starts: dict[str, list[int]] = {}
        for place, token in enumerate(vocab.specials):
            self._special_starts.setdefault(vocab.texts[token][:4], []).append(place)

    def encode(self, text: str, *, parse_special: bool = True, add_special: bool = False) -> list[int]:
        """The ids of `text`; [] for "".

        `parse_special`: the text of a control or unknown token stands for that token (user-defined tokens
        are always found). Otherwise it is text like any other: pass False for text that is not trusted.
        `add_special`: BOS before and EOS after, as far as the file asks for them.

        Raises: TokenizerError for a lone surrogate, which no UTF-8 text can hold.
        """
        if not text.isascii():
            _refuse_surrogates(text)
        ids: list[int] = [*self.before] if add_special else []
        for part in self._find_specials(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encode_text(part))
        return ids + self.after if add_special else ids

    def decode(self, ids: Iterable[int], *, clean_spaces: bool = False) -> str:
        """The text of `ids`, special tokens written as they are.

        `ids` begin a text: the space that such a vocabulary puts before a text is left out. Bytes that are
        no UTF-8 (a cut character, a model's mistake) become U+FFFD. With `clean_spaces`, spaces before
        punctuation and contractions go away if the vocabulary is one for which llama.cpp does so.
        Raises: TokenizerError for an id that the vocabulary does not have.
        """
        pieces = list(map(self.piece, ids))
        if self.add_space_prefix and pieces:
            pieces[0] = pieces[0].removeprefix(b" ")
        text = b"".join(pieces).decode("utf-8", "replace")
        return tidy_spaces(text) if clean_spaces and self.clean_spaces else text

    def stream(self) -> TextStream:
        """For decoding ids one by one, as they are generated after a prompt: a leading space stays."""
        return TextStream(self.piece)

    def piece(self, token: int) -> bytes:
        """The bytes that `token` writes; special tokens their text, unused ones nothing.

        Raises: TokenizerError for an id that the vocabulary does not have.
        """
        text, kind = self._text_and_kind(token)
        if kind & WRITTEN_AS_IS:
            return text.encode("utf-8", "surrogateescape")
        if kind & NORMAL:
            return self._bytes_of(text)
        return bytes([int(text[3:5], 16)]) if kind & BYTE else b""

    @abstractmethod
    def _bytes_of(self, text: str) -> bytes:
        """The bytes that the text of a normal token stands for."""

    @abstractmethod
    def _encode_text(self, text: str) -> list[int]:
        """The ids of a text in which no special token is looked for."""

    def _text_and_kind(self, token: int) -> tuple[str, int]:
        """Text and kind bits of a token. Raises TokenizerError for an id that there is not."""
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(
                f"token id {token} is not in the vocabulary; allowed: 0 to {self.n_vocab - 1}"
            )
        return self.vocab.texts[token], self.vocab.kinds[token]

    def _find_specials(self, text: str, parse_special: bool) -> list[str | int]:
        """Cut `text` at special tokens: the longest text is looked for everywhere first, then the next.

        That order decides between texts that overlap, and is llama.cpp's (tokenizer_st_partition).
        Lengths are in bytes; no part is empty.
        """
        parts: list[str | int] = [text] if text else []
        texts, kinds = self.vocab.texts, self.vocab.kinds
        strips = self.vocab.strip_left | self.vocab.strip_right
        possible = [places for start, places in self._special_starts.items() if start in text]
        for place in sorted(chain.from_iterable(possible)):
            token = self.vocab.specials[place]
            if texts[token] not in text or (kinds[token] & (CONTROL | UNKNOWN) and not parse_special):
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                around = self._split_stripping(part, token) if token in strips else part.split(texts[token])
                cut.append(around[0])
                for piece in around[1:]:
                    cut += (token, piece)
            parts = [part for part in cut if part != ""]
        return parts

    def _split_stripping(self, text: str, token: int) -> list[str]:
        """`text` split at a token that swallows white space beside it."""
        parts = []
        rest = text
        while (at := rest.find(self.vocab.texts[token])) >= 0:
            before = rest[:at]
            parts.append(before.rstrip(_SPACE_OF_C) if token in self.vocab.strip_left else before)
            rest = rest[at + len(self.vocab.texts[token]) :]
            if token in self.vocab.strip_right:
                rest = rest.lstrip(_SPACE_OF_C)
        return [*parts, rest]


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}: "
            "no Unicode text. Replace it, or decode the bytes it came from with errors='replace'"
        ) from None
