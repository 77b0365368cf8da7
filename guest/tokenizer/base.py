"""What every tokenizer does alike: special tokens in a text, BOS and EOS, ids back to text."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from ..errors import TokenizerError
from .text import TextStream
from .vocab import CONTROL, UNKNOWN, Vocab


class Tokenizer(ABC):
    """Text to token ids and back.

    Attributes: `n_vocab`; `bos_id`, `eos_id`, `eot_id` (None where the vocabulary has none); `eog_ids`,
    the tokens that end a generation; `add_bos`, `add_eos`: whether `encode(add_special=True)` adds them;
    `vocab`: texts and kinds of all tokens.
    """

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.n_vocab = len(vocab.texts)
        self.bos_id = vocab.roles.get("bos")
        self.eos_id = vocab.roles.get("eos")
        self.eot_id = vocab.roles.get("eot")
        self.eog_ids = vocab.eog_ids
        self.add_bos = vocab.add_bos
        self.add_eos = vocab.add_eos

    def encode(self, text: str, *, parse_special: bool = True, add_special: bool = False) -> list[int]:
        """The ids of `text`; [] for "".

        `parse_special`: the text of a control or unknown token stands for that token (user-defined tokens
        are always found). Otherwise it is text like any other: pass False for text that is not trusted.
        `add_special`: BOS before and EOS after, as far as the file asks for them.

        Raises: TokenizerError for a lone surrogate, which no UTF-8 text can hold.
        """
        if not text.isascii():
            _refuse_surrogates(text)
        ids: list[int] = []
        if add_special and self.add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        for part in self._find_specials(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encode_text(part))
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens written as they are.

        Bytes that are no UTF-8 (a cut character, a model's mistake) become U+FFFD.
        Raises: TokenizerError for an id that the vocabulary does not have.
        """
        return b"".join(map(self.piece, ids)).decode("utf-8", "replace")

    def stream(self) -> TextStream:
        """For decoding ids one by one, as they are generated."""
        return TextStream(self.piece)

    @abstractmethod
    def piece(self, token: int) -> bytes:
        """The bytes of one token; special tokens as their text. Raises TokenizerError for an unknown id."""

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
        for token in self.vocab.specials:
            if texts[token] not in text or (kinds[token] & (CONTROL | UNKNOWN) and not parse_special):
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                before, *rest = part.split(texts[token])
                cut.append(before)
                for piece in rest:
                    cut += (token, piece)
            parts = [part for part in cut if part != ""]
        return parts


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}: "
            "no Unicode text. Replace it, or decode the bytes it came from with errors='replace'"
        ) from None
