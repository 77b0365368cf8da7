// activations: 32 elements of x, ready to be multiplied with a cell: scaled as its part demands, in its order
// of quarters, with the part's sums over all 32.
struct Activations {
  a0: vec4f, b0: vec4f, a1: vec4f, b1: vec4f,
  a2: vec4f, b2: vec4f, a3: vec4f, b3: vec4f,
  sums: vec2f,
}
