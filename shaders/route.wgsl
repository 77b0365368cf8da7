// route: which experts each token goes to, and with what weights.
//   of token t the N_USED largest of x[t,e], the lower e first among equals: chosen[t,s], from large to small
//   w[t,s] = SCALE * exp(x[t,chosen[t,s]]) / sum exp(x[t,e]) over the chosen, or with OVER_ALL over all e
// shapes  x (n_tokens, STRIDE)   chosen (n_tokens, N_USED) u32   w (n_tokens, N_USED)   f32
// grid    z: one workgroup per token, of which one invocation works: experts are few
// uses    lib/now.wgsl
// error   relative 2e-6 per unit of (max - x), + 4e-6: exp has 3 + 2|x| ulp in WGSL
// source  Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961
override N_EXPERT: u32;
override N_USED: u32;          // experts of a token
override STRIDE: u32;          // elements from one row of x to the next
override SCALE: f32 = 1.0;
override OVER_ALL: bool = false;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(1) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(2) var<storage, read_write> chosen: array<u32>;      // (n_tokens, N_USED)
@group(0) @binding(3) var<storage, read_write> w: array<f32>;           // (n_tokens, N_USED)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) index: u32) {
  let t = workgroup.z;
  if (index > 0u || t >= now.n_tokens) {
    return;
  }
  let row = t * STRIDE;
  var last = 0u;  // chosen before
  var largest = 0.0;
  var sum = 0.0;
  for (var s = 0u; s < N_USED; s++) {
    var best = s;
    var found = false;
    for (var e = 0u; e < N_EXPERT; e++) {
      let after = s == 0u || x[row + e] < x[row + last] || (x[row + e] == x[row + last] && e > last);
      if (after && (!found || x[row + e] > x[row + best])) {
        best = e;
        found = true;
      }
    }
    if (s == 0u) {
      largest = x[row + best];
    }
    let weight = exp(x[row + best] - largest);
    chosen[t * N_USED + s] = best;
    w[t * N_USED + s] = weight;
    sum += weight;
    last = best;
  }
  if (OVER_ALL) {
    sum = 0.0;
    for (var e = 0u; e < N_EXPERT; e++) {
      sum += exp(x[row + e] - largest);
    }
  }
  for (var s = 0u; s < N_USED; s++) {
    w[t * N_USED + s] *= SCALE / sum;
  }
}
