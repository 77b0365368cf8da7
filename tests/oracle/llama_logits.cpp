// Logits of llama.cpp's CPU backend for given tokens: where llama_cpp.json and llama_cpp_archs.json come from.
//
//   llama_logits LIBRARIES MODEL N_PROMPT ID…      -> float32 logits on stdout, one row a decode
//
// Not built by anything here. The libraries are those of npm's @node-llama-cpp/linux-x64 3.21.1 (llama.cpp
// release v0.4.0; in bins/linux-x64), the headers those of the same release. LIBRARIES is a folder with the
// libraries and of the CPU ones libggml-cpu-zen4.so alone, so that no other is picked:
//   g++ -I include -I ggml/include llama_logits.cpp -L LIBRARIES -l:libllama.v0.4.0.so
//       -l:libggml.v0.4.0.so -l:libggml-base.so -Wl,-rpath,LIBRARIES -o llama_logits
// The prompt is one batch, each further token a batch of its own; one thread, flash attention, f16 cache.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    ggml_backend_load_all_from_path(argv[1]);
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    llama_model *model = llama_model_load_from_file(argv[2], mp);
    if (!model) return 3;
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = 512;
    cp.n_threads = cp.n_threads_batch = 1;
    llama_context *context = llama_init_from_model(model, cp);
    if (!context) return 4;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> ids;
    for (int i = 4; i < argc; i++) ids.push_back(atoi(argv[i]));
    for (size_t at = 0, n = atoi(argv[3]); at < ids.size(); at += n, n = 1) {
        if (llama_decode(context, llama_batch_get_one(ids.data() + at, (int)n))) return 5;
        fwrite(llama_get_logits_ith(context, -1), sizeof(float), n_vocab, stdout);
    }
    return 0;
}
