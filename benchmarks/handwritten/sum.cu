// Sum over the middle of three dimensions: a thread a result, neighbours read neighbours.
extern "C" __global__ void sum_middle(const float* __restrict__ in, float* __restrict__ out, long long count,
                                      long long inner, int middle) {
    const long long result = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (result >= count) return;
    const float* from = in + result / inner * inner * middle + result % inner;
    float sum = 0.0f;
    for (int i = 0; i < middle; ++i) sum += from[i * inner];
    out[result] = sum;
}

// Sum over the last dimension: a block a result.
extern "C" __global__ void sum_last(const float* __restrict__ in, float* __restrict__ out, long long width) {
    __shared__ float parts[8];
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < width; i += 256) sum += in[blockIdx.x * width + i];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < 8; ++warp) sum += parts[warp];
    out[blockIdx.x] = sum;
}
