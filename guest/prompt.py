"""What a caller may give as a prompt: text, or token ids. The same checks and words on every device."""

from collections.abc import Mapping, Sequence, Set
from numbers import Integral
from reprlib import repr as shown

from .errors import PromptError
from .tokenizer import Tokenizer


def is_integer(value: object) -> bool:
    """Whether `value` is a whole number: numpy's are too, True and 1.0 are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def prompt_ids(tokenizer: Tokenizer, n_vocab: int, prompt: str | Sequence[int]) -> list[int]:
    """Ids of a prompt: special tokens in it parsed, BOS where the metadata asks for it.

    Raises: PromptError for an empty prompt, one that is neither text nor ids, or an id that there is not.
    """
    if isinstance(prompt, str):
        text, prompt = prompt, tokenizer.encode(prompt, add_special=True)
        if text and not prompt:
            raise PromptError(
                f"the vocabulary has no token for any of the prompt {shown(text)}; give another"
            )
    ids = checked_ids(prompt, n_vocab, "the prompt", "text, or a list of token ids")
    if not ids:
        raise PromptError("the prompt is empty; give at least one token to go on from")
    return ids


def checked_ids(ids: Sequence[int], n_vocab: int, what: str, allowed: str) -> list[int]:
    """`ids` as Python's own integers. Raises: PromptError when they are no ids of `n_vocab`."""
    try:
        if isinstance(ids, str | bytes | bytearray | memoryview | Mapping | Set):
            raise TypeError  # they can be iterated over, but not as ids in an order
        ids = list(ids)
    except TypeError:
        raise PromptError(f"{what} is {shown(ids)}; allowed: {allowed}") from None
    for at, token in enumerate(ids):
        if not is_integer(token) or not 0 <= token < n_vocab:
            raise PromptError(
                f"token id {shown(token)} at index {at} of {what}; allowed: integers from 0 to {n_vocab - 1}"
            )
    return list(map(int, ids))
