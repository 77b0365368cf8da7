// f32: keys and values are cached as they are; `vec4f(…)` reads four.
alias Cached = f32;
alias Cached4 = vec4f;

fn cached(v: f32) -> Cached {
  return v;
}
