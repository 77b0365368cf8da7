"""The vocabulary that every tokenizer family shares: texts, kinds of tokens, special ids, end of generation.

Read from a GGUF file's `tokenizer.ggml.*` metadata, with all checks. What the words "control", "user
defined" and so on mean follows llama.cpp's src/llama-vocab.cpp (llama_vocab::impl::load) as vendored in
llama-cpp-python 0.3.36.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import TokenizerError

PREFIX = "tokenizer.ggml."

# Kinds of tokens: bits, since a token's text may add one to what the file says. Values are llama.cpp's
# LLAMA_TOKEN_ATTR_*.
UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 2, 4, 8, 16, 32
_KIND_OF_TYPE = {0: 0, 1: NORMAL, 2: UNKNOWN, 3: CONTROL, 4: USER_DEFINED, 5: UNUSED, 6: BYTE}
WRITTEN_AS_IS = UNKNOWN | CONTROL | USER_DEFINED  # the text is the token; also those looked for in a text

# Texts that end a generation wherever they are in a vocabulary.
_EOG_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
# Texts that name a role when the file gives no id for it. Some roles end a generation too.
_ROLE_TEXTS = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
        "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
_ROLES_THAT_END = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),  # so misspelled in files
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}
_ALWAYS_USER_DEFINED = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # gpt-oss
_BYTE_TEXT = re.compile(r"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds when the file does not say: ids of roles, and which special tokens go around a text."""

    roles: Mapping[str, int] = field(default_factory=dict)
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    always_bos: bool = False  # whatever the file says


class Vocab:
    """Texts and kinds of all tokens, and which ids have a role.

    `texts[id]`, `ids[text]`, `kinds[id]` (bits above); `roles` has "bos", "eos", "eot", … only where the
    vocabulary has them; `eog_ids` are the tokens that end a generation; `specials` are the ids whose text is
    looked for in a text before it is cut into words, longest text first; white space before those in
    `strip_left` and after those in `strip_right` goes with them.

    Where several texts could fill a role llama.cpp takes whichever its hash table gives first; here it is
    the lowest id. A file without an end token has none (llama.cpp: 11 for gpt2, which is Falcon's).
    """

    __slots__ = (
        "add_bos", "add_eos", "add_sep", "eog_ids", "ids", "kinds", "roles", "specials", "strip_left",
        "strip_right", "texts",
    )  # fmt: skip

    def __init__(self, metadata: Mapping[str, Any], defaults: Defaults) -> None:
        """`defaults` hold when the file does not say.

        Raises: TokenizerError when something is missing, of another type, out of range or contradictory.
        """
        texts = strings(metadata, "tokens")
        self.ids: dict[str, int] = dict(zip(texts, range(len(texts)), strict=True))
        if "" in self.ids:
            texts = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
            self.ids = dict(zip(texts, range(len(texts)), strict=True))
        if len(self.ids) != len(texts):
            raise TokenizerError(_repeated(texts))
        self.texts = texts
        self.kinds = _kinds(metadata, texts)
        _same_length(metadata, "scores", len(texts))

        roles = {role: self._id(metadata, keys) for role, keys in _KEYS.items()}
        for role, token in defaults.roles.items():
            if roles[role] is None and token < len(texts):
                roles[role] = token
        for role, names in _ROLE_TEXTS.items():
            if roles[role] is None:
                roles[role] = min((self.ids[name] for name in names if name in self.ids), default=None)
                self._mark_control(roles[role])
        self.roles: dict[str, int] = {role: i for role, i in roles.items() if i is not None}
        self.eog_ids = frozenset(self._eog_ids())
        for name in _ALWAYS_USER_DEFINED:
            if name in self.ids:
                self.kinds[self.ids[name]] = USER_DEFINED
        found = [i for i, kind in enumerate(self.kinds) if kind & WRITTEN_AS_IS]
        self.specials = sorted(found, key=lambda i: -len(texts[i].encode("utf-8", "surrogateescape")))

        self.strip_left, self.strip_right = self._stripping(metadata)

        self.add_bos = flag(metadata, "add_bos_token", defaults.add_bos) or defaults.always_bos
        self.add_eos = flag(metadata, "add_eos_token", defaults.add_eos)
        self.add_sep = flag(metadata, "add_sep_token", defaults.add_sep)
        for wanted, role in ((self.add_bos, "bos"), (self.add_eos, "eos")):
            if wanted and role not in self.roles:
                raise TokenizerError(
                    f"{PREFIX}add_{role}_token is true, but the file has no {PREFIX}{role}_token_id"
                    if PREFIX + f"add_{role}_token" in metadata
                    else f"the file has no {PREFIX}{role}_token_id; a text begins or ends with it, as "
                    f"{PREFIX}add_{role}_token does not say otherwise"
                )

    def need(self, role: str) -> int:
        """The id of a role. Raises: TokenizerError when neither the file nor a default gives one."""
        if role not in self.roles:
            raise TokenizerError(
                f"the file has no {PREFIX}{_KEYS[role][0]}; this kind of vocabulary needs it, and has fewer "
                "tokens than the usual id"
            )
        return self.roles[role]

    def _id(self, metadata: Mapping[str, Any], keys: Iterable[str]) -> int | None:
        for key in keys:
            value = metadata.get(PREFIX + key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(self.texts):
                raise TokenizerError(
                    f"{PREFIX}{key} is {value!r}; allowed: the id of a token, 0 to {len(self.texts) - 1}"
                )
            return value
        return None

    def _stripping(self, metadata: Mapping[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
        """Tokens that swallow white space before, and after. Files do not say; llama.cpp goes by names."""
        pre = str(metadata.get(PREFIX + "pre", ""))
        name = str(metadata.get("general.name", "")).lower()
        arch = str(metadata.get("general.architecture", ""))
        left: set[int] = set()
        right: set[int] = set()
        if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
            part in arch for part in ("nomic-bert-moe", "jina-bert-v3")
        ):
            left = self._ids_of("<mask>")
        elif "phi-3" in name or "phi3" in name:
            right = {*self.specials} | self._ids_of("</s>")
            right -= self._ids_of("<unk>", "<s>", "<|endoftext|>")
        elif "modern-bert" in name:
            left = self._ids_of("[MASK]")
        return frozenset(left), frozenset(right)

    def _ids_of(self, *texts: str) -> set[int]:
        """Of those that are in the vocabulary."""
        return {self.ids[text] for text in texts if text in self.ids}

    def _mark_control(self, token: int | None) -> None:
        if token is not None:
            self.kinds[token] |= CONTROL

    def _eog_ids(self) -> set[int]:
        by_text = self._ids_of(*_EOG_TEXTS)
        for token in by_text:
            self._mark_control(token)
        eog = by_text | {self.roles[role] for role in _ROLES_THAT_END if role in self.roles}
        have = {self.texts[i] for i in eog}
        # gpt-oss and Solar Open end a message, not the answer, with <|end|>.
        calls = "<|call|>" in have or "<|calls|>" in have
        if "<|end|>" in have and calls and ("<|return|>" in have or "<|flush|>" in have):
            eog.remove(self.ids["<|end|>"])
            self.kinds[self.ids["<|end|>"]] = USER_DEFINED
        # To Gemma 4 and PLaMo </s> is HTML.
        if "</s>" in have and ("<|tool_response>" in have or "<|plamo:eos|>" in have):
            eog.remove(self.ids["</s>"])
            self.kinds[self.ids["</s>"]] = NORMAL
        return eog


def strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings from the metadata; TokenizerError when it is missing, empty or of another type."""
    value = metadata.get(PREFIX + key)
    if value is None:
        raise TokenizerError(f"the file has no {PREFIX}{key}; a vocabulary needs it")
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TokenizerError(f"{PREFIX}{key} is {type(value).__name__}; allowed: an array of strings")
    items = list(value)
    wrong = set(map(type, items)) - {str}
    if wrong:
        raise TokenizerError(f"{PREFIX}{key} is an array of {wrong.pop().__name__}; allowed: strings")
    if not items:
        raise TokenizerError(f"{PREFIX}{key} is empty; a vocabulary needs it")
    return items


def numbers(metadata: Mapping[str, Any], key: str, n_vocab: int) -> Sequence[float]:
    """One number for each token; TokenizerError when they are missing or of another type or length."""
    value = _same_length(metadata, key, n_vocab)
    if value is None:
        raise TokenizerError(f"the file has no {PREFIX}{key}; this kind of vocabulary needs it")
    if wrong := set(map(type, value)) - {int, float}:
        raise TokenizerError(f"{PREFIX}{key} is an array of {wrong.pop().__name__}; allowed: numbers")
    return value


def flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """A truth value from the metadata; TokenizerError when it is of another type."""
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, bool):
        raise TokenizerError(f"{PREFIX}{key} is {value!r}; allowed: true or false")
    return value


def _same_length(metadata: Mapping[str, Any], key: str, n_vocab: int) -> Sequence[Any] | None:
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TokenizerError(f"{PREFIX}{key} is {type(value).__name__}; allowed: an array of numbers")
    if len(value) != n_vocab:
        raise TokenizerError(f"{PREFIX}{key} has {len(value)} entries; {PREFIX}tokens has {n_vocab}")
    return value


def _kinds(metadata: Mapping[str, Any], texts: Sequence[str]) -> bytearray:
    types = _same_length(metadata, "token_type", len(texts))
    if types is None:
        return bytearray([NORMAL]) * len(texts)
    if not_numbers := set(map(type, types)) - {int}:
        raise TokenizerError(
            f"{PREFIX}token_type is an array of {not_numbers.pop().__name__}; allowed: integers"
        )
    if wrong := set(types) - _KIND_OF_TYPE.keys():
        at = next(i for i, kind in enumerate(types) if kind in wrong)
        raise TokenizerError(f"{PREFIX}token_type has {types[at]} at {at}; allowed: 0 to 6")
    kinds = bytearray(map(_KIND_OF_TYPE.__getitem__, types))
    at = kinds.find(BYTE)
    while at >= 0:
        if not _BYTE_TEXT.fullmatch(texts[at]):
            raise TokenizerError(
                f"token {at} is a byte token, but its text is {texts[at]!r}; allowed: <0x00> to <0xFF>"
            )
        at = kinds.find(BYTE, at + 1)
    return kinds


def _repeated(texts: Iterable[str]) -> str:
    seen: dict[str, int] = {}
    for i, text in enumerate(texts):
        if text in seen:
            return (
                f"{PREFIX}tokens has {text!r} twice, as tokens {seen[text]} and {i}; each text may stand once"
            )
        seen[text] = i
    raise AssertionError("no text is repeated")
