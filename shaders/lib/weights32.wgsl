// weights32: 32 consecutive weights of one row, in f32. The unit in which quant parts hand out weights:
// it divides every ggml block size. q0 holds elements 0…3, q7 elements 28…31.
struct Weights32 {
  q0: vec4f, q1: vec4f, q2: vec4f, q3: vec4f,
  q4: vec4f, q5: vec4f, q6: vec4f, q7: vec4f,
}
