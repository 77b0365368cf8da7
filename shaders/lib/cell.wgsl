// cell: what a quant part hands out of 32 weights of one row. `words` loads them packed, with their scale and
// minimum; a0, b0 unpack the first and second half of the quarter 0 ^ lane, and so on (lib/tiles.wgsl): masked, not
// yet scaled (see the part's SCALE_A). `values` scales a quarter. Unpacked late, a weight needs no register for long.
struct Quarter {
  a: vec4f, b: vec4f,
}
