// state: what changes from token to token, kept on the GPU so that a decode submit needs nothing from the host.
// The host writes it before each piece of a prompt; argmax moves it on by one token after each decode step.
struct State {
  n_past: u32,             // tokens already in the cache
  n_tokens: u32,           // tokens in this pass
  next: u32,               // token chosen by the last argmax; 0xffffffff: every logit was NaN
  fed: u32,                // last token of the pass before that argmax
  tokens: array<u32>,      // (n_batch) ids of this pass
}
