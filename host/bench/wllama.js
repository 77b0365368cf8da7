// wllama in a page, for wllama.py: `window.peer` loads the model once, then generates whenever asked.
import { Wllama } from "./lib/index.js";

const log = []; // what llama.cpp says while loading: the only place that tells where the layers are
const keep = (...words) => log.push(words.map((word) => word?.message ?? String(word)).join(" "));

let wllama;

window.peer = {
  // `gpu`: all layers on WebGPU, if wllama can; else none.
  async load({ threads, gpu, n_ctx }) {
    const model = await (await fetch("model")).blob();
    wllama = new Wllama(
      { default: new URL("lib/wasm/wllama.wasm", location.href).href },
      { logger: { debug: keep, log: keep, warn: keep, error: keep } },
    );
    wllama.setCompat(null); // one wasm build, the fast one; without it, an error
    const options = { n_ctx, n_threads: threads, n_parallel: 1, n_batch: 512 };
    await wllama.loadModel([model], gpu ? options : { ...options, n_gpu_layers: 0 });
    const info = gpu ? (await navigator.gpu?.requestAdapter())?.info : undefined;
    return {
      threads: wllama.getNumThreads(),
      libllama: Wllama.getLibllamaVersion(),
      adapter: info ? [info.vendor, info.architecture, info.description].filter(Boolean).join(" ") : "",
      log,
    };
  },

  // Milliseconds until the first piece of text and until the end, and the tokens as wllama counted them.
  async generate(prompt, max_tokens) {
    let first, last;
    const began = performance.now();
    await wllama.createCompletion({
      prompt, max_tokens, temperature: 0, top_k: 1, seed: 1, ignore_eos: true, cache_prompt: false, stream: true,
      onData: (chunk) => {
        last = chunk;
        if (chunk.choices?.[0]?.text) first ??= performance.now() - began;
      },
    });
    const total = performance.now() - began;
    return { first, total, prompt_tokens: last?.timings?.prompt_n, gen: last?.timings?.predicted_n };
  },
};
