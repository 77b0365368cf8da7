// now: the head of `State` (lib/state.wgsl) as a uniform, for kernels that have no storage binding to spare.
struct Now {
  n_past: u32,
  n_tokens: u32,
  next: u32,
  fed: u32,
}
