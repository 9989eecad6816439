// Softmax of rows: a block a row, running maximum and sum in one sweep, the result in a second one.
#define THREADS 256

__device__ __forceinline__ void join(float& high, float& sum, float other_high, float other_sum) {
    const float top = fmaxf(high, other_high);
    // Two empty parts have minus infinity as their maximum, and its difference is no number.
    sum = (sum == 0.0f ? 0.0f : sum * __expf(high - top)) + (other_sum == 0.0f ? 0.0f : other_sum * __expf(other_high - top));
    high = top;
}

extern "C" __global__ void softmax(const float* __restrict__ in, float* __restrict__ out, long long width) {
    __shared__ float highs[THREADS / 32], sums[THREADS / 32];
    const float* row = in + blockIdx.x * width;
    float high = __int_as_float(0xff800000), sum = 0.0f;
    for (long long i = threadIdx.x; i < width; i += THREADS) join(high, sum, row[i], 1.0f);
    for (int step = 16; step; step /= 2) {
        const float other_high = __shfl_xor_sync(~0u, high, step), other_sum = __shfl_xor_sync(~0u, sum, step);
        join(high, sum, other_high, other_sum);
    }
    if (threadIdx.x % 32 == 0) highs[threadIdx.x / 32] = high, sums[threadIdx.x / 32] = sum;
    __syncthreads();
    high = highs[0], sum = sums[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) join(high, sum, highs[warp], sums[warp]);
    const float scale = 1.0f / sum;
    for (long long i = threadIdx.x; i < width; i += THREADS) out[blockIdx.x * width + i] = __expf(row[i] - high) * scale;
}
