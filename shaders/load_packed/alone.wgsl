// alone: every invocation loads all 32 packed activations itself.
// uses    share/alone.wgsl
fn packed(at: u32, lane: u32) -> Packed {
  return Packed(
    vec4i(x[at + lane]), vec4i(x[at + 4u + lane]),
    vec4i(x[at + (lane ^ 1u)]), vec4i(x[at + 4u + (lane ^ 1u)]),
    vec4i(x[at + (lane ^ 2u)]), vec4i(x[at + 4u + (lane ^ 2u)]),
    vec4i(x[at + (lane ^ 3u)]), vec4i(x[at + 4u + (lane ^ 3u)]),
    x[at + 8u]);
}
