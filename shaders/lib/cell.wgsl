// cell: 32 weights of one row as a quant part hands them out: masked, not yet scaled (see the part's SCALE_A).
// a0, b0 are the first and second half of the quarter 0 ^ lane, and so on (lib/tiles.wgsl).
struct Cell {
  a0: vec4f, b0: vec4f, a1: vec4f, b1: vec4f,
  a2: vec4f, b2: vec4f, a3: vec4f, b3: vec4f,
  dm: vec2f,  // scale and minimum, where the type has them
}

struct Quarter {
  a: vec4f, b: vec4f,
}
