// f16: keys and values are cached in half the bytes; `vec4f(…)` reads four, arithmetic stays f32. What is larger
// than f16 has is cached as its largest number: WGSL leaves open what such a conversion gives, and an infinite key
// or value would make all attention to it NaN.
// error   2^-10 |v|, for a conversion may round either way; below 2^-14, where subnormals may be flushed, |v|
enable f16;
alias Cached = f16;
alias Cached4 = vec4h;

fn cached(v: f32) -> Cached {
  return Cached(clamp(v, -65504.0, 65504.0));
}
