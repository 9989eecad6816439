//@part math_units
// What the special-function unit computes, without the slow paths of exact division.
namespace math {
// 2^x to 2 units in the last place; results below 2^-126 are zero.
static __device__ __forceinline__ float exp2_unit(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// 1 / x to one unit; zero above 2^126, infinite below 2^-126.
static __device__ __forceinline__ float reciprocal_unit(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// x / y to two units for all operands, denormals, zeros, infinities and NaN included.
static __device__ __forceinline__ float divide(float x, float y) {
    float result;
    asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
// 1 / x to one unit, likewise for all operands.
static __device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// The square root to one unit, likewise for all operands.
static __device__ __forceinline__ float sqrt(float x) {
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
}  // namespace math
//@part math
// Functions of torch to a few units in the last place without branches: benchmarks/device_math.py holds them against
// float64. NaN, infinities and zeros come out as those of torch's own formulas.
namespace math {
// x / y, rounded as exact division rounds (but for one case in millions), for a constant y: x times the two parts of
// 1 / y. The upper one is cut off, not rounded, so that both have one sign and infinities stay.
static __device__ __forceinline__ float divide_by(float x, float y) {
    const double inverse = 1.0 / (double)y;
    const float upper = (float)__longlong_as_double(__double_as_longlong(inverse) & ~0x1fffffffLL);
    return fmaf(x, upper, x * (float)(inverse - (double)upper));
}
// A quarter of the denominator stays where its reciprocal is no denormal.
static __device__ __forceinline__ float sigmoid(float x) {
    return 0.25f * reciprocal_unit(fmaf(expf(-x), 0.25f, 0.25f));
}
// log(1 + exp(x)) without overflow: max(x, 0) + log1p(u), u = exp(-|x|) <= 1, where log1p(u) / u is a polynomial
// (relative error 2^-25).
static __device__ __forceinline__ float softplus(float x) {
    const float u = expf(-fabsf(x));
    float ratio = 5.2326940931379795e-3f;
    ratio = fmaf(ratio, u, -2.9505237936973572e-2f);
    ratio = fmaf(ratio, u, 7.822594791650772e-2f);
    ratio = fmaf(ratio, u, -1.3663245737552643e-1f);
    ratio = fmaf(ratio, u, 1.9106006622314453e-1f);
    ratio = fmaf(ratio, u, -2.484298199415207e-1f);
    ratio = fmaf(ratio, u, 3.331909775733948e-1f);
    ratio = fmaf(ratio, u, -4.999949336051941e-1f);
    ratio = fmaf(ratio, u, 9.999999403953552e-1f);
    return fmaf(u, ratio, fmaxf(x, 0.0f));
}
// tanh(log(1 + e)) = n / (n + 2), n = e (e + 2), e = exp(x); from x = 12 on it is 1 to the last bit.
static __device__ __forceinline__ float tanh_softplus(float x) {
    const float e = expf(x > 12.0f ? 12.0f : x), sum = e + 2.0f;
    return e * sum * reciprocal_unit(fmaf(e, sum, 2.0f));
}
// exp(x) - 1 cancels next to 0: there x (1 + x R(x)) with a polynomial R (relative error 2^-28).
static __device__ __forceinline__ float expm1(float x) {
    float rest = 1.9849810632877052e-4f;
    rest = fmaf(rest, x, 1.3996176421642303e-3f);
    rest = fmaf(rest, x, 8.333578705787659e-3f);
    rest = fmaf(rest, x, 4.166536033153534e-2f);
    rest = fmaf(rest, x, 1.66666641831398e-1f);
    rest = fmaf(rest, x, 5.000000596046448e-1f);
    const float near = x * fmaf(rest, x, 1.0f), far = expf(x) - 1.0f;
    return fabsf(x) < 0.5f ? near : far;
}
// 1 + tanh(x) = 2 / (1 + exp(-2 x)), without the cancellation for negative x.
static __device__ __forceinline__ float one_plus_tanh(float x) {
    return reciprocal_unit(fmaf(exp2_unit(-2.885390081777927f * x), 0.5f, 0.5f));
}
// 1 + erf(x) is erfc(|x|) for negative x, 2 - erfc(|x|) else; log2(erfc(a)) / a is a polynomial. Its error is 2^-28 in
// 1 + erf(x) and 2e-5 of erfc(a) down to a = 4, from where on erfc(a) is below half a unit of 1.
static __device__ __forceinline__ float one_plus_erf(float x) {
    const float a = fabsf(x);
    float slope = -1.1797145589298452e-6f;
    slope = fmaf(slope, a, 2.3554604922537692e-5f);
    slope = fmaf(slope, a, -2.0222047169227153e-4f);
    slope = fmaf(slope, a, 9.553844574838877e-4f);
    slope = fmaf(slope, a, -2.4081584997475147e-3f);
    slope = fmaf(slope, a, 1.8105567141901702e-4f);
    slope = fmaf(slope, a, 2.768559381365776e-2f);
    slope = fmaf(slope, a, -1.482999175786972e-1f);
    slope = fmaf(slope, a, -9.184435606002808e-1f);
    slope = fmaf(slope, a, -1.6279072761535645f);
    const float rest = exp2_unit(slope * a);
    return x < 0.0f ? rest : 2.0f - rest;
}
}  // namespace math
