"""Every architecture proven without its weights: tiny random models, and what llama.cpp computes for them.

`models.py` describes the models, `values.py` fills and writes them, `references/` holds llama.cpp's answers
(made by `python tests/make_arch_references.py`), `references.py` compares. FACTS.md says what each
architecture computes.

    model = MODELS["qwen3"]
    reference = load("qwen3")
    write(model, path)                                   # or gguf_bytes(model)
    logits = [… of every position of reference.ids …]    # (n, n_vocab)
    assert reference.nmse(logits) < 1e-6
"""

from archs.models import MODELS as MODELS
from archs.models import TinyModel as TinyModel
from archs.models import sized as sized
from archs.references import Reference as Reference
from archs.references import load as load
from archs.values import gguf_bytes as gguf_bytes
from archs.values import write as write
