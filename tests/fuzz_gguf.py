"""Coverage-guided fuzzing of everything that reads a model's header: parser, hyper-parameters, tokenizer.

    mkdir -p build/fuzz
    python tests/fuzz_gguf.py -max_total_time=600 -timeout=10 -rss_limit_mb=512 \
        -dict=tests/fuzz_gguf.dict build/fuzz tests/fuzz_seeds tests/corpus

New inputs are kept in the first folder. A finding is an exception that is no PagelmError, a broken promise
of `explore.check`, an input that takes longer than 10 s, or one that allocates more than 64 MiB. libFuzzer
writes it to `crash-…`; `python tests/fuzz_gguf.py crash-…` shows it again. Executions and coverage are in
libFuzzer's last line. Needs `atheris`.
"""

import sys
import tracemalloc

import atheris

with atheris.instrument_imports(include=["pagelm"]):
    from explore import explore

MAX_BYTES = 64 << 20


def one_input(data: bytes) -> None:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    explore(data)
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak < MAX_BYTES, f"{peak} bytes allocated for {len(data)} bytes of input"


if __name__ == "__main__":
    tracemalloc.start(1)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
