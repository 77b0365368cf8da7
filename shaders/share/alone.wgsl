// alone: every invocation has the whole of a sum itself. Needs no feature; right for every workgroup size.
const SHARERS = 1u;  // invocations that hold one shared sum

fn share_sum(value: f32) -> f32 {
  return value;
}

fn share_sum4(value: vec4f) -> vec4f {
  return value;
}
