// iq4: the numbers of IQ4_NL and IQ4_XS: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113. They
// are what a polynomial of degree four rounds to: at no place is it further from them than 0.4330.
// uses    lib/numbers.wgsl
fn number(place: vec4f) -> vec4f {
  return floor((((1.586043e-3 * place + 3.108644e-2) * place - 1.371927) * place + 24.17383) * place - 126.067);
}
