"""pagelm: GGUF language models on WebGPU, in Python, in the browser page and natively.

`load` gives a `Model`; `Model.generate` streams text. Everything else (parser, tokenizer, kernels,
engine, devices) is importable by module name. Standard library only: the package installs in a page.
"""

if __name__ != "pagelm":
    raise ImportError("this folder is the package 'pagelm'; run: pip install -e .")

__version__ = "0.1.0"
