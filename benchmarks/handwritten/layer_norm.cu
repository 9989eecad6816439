// Layer normalisation of rows with scale and shift: a block a row, mean first, then the squared distances from it.
#define THREADS 256

__device__ __forceinline__ float block_sum(float value, float* parts) {
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += parts[warp];
    return sum;
}

extern "C" __global__ void layer_norm(const float* __restrict__ in, const float* __restrict__ scale,
                                      const float* __restrict__ shift, float* __restrict__ out, long long width,
                                      float epsilon) {
    __shared__ float parts[THREADS / 32];
    const float* row = in + blockIdx.x * width;
    float sum = 0.0f, squares = 0.0f;
    for (long long i = threadIdx.x; i < width; i += THREADS) sum += row[i];
    const float mean = block_sum(sum, parts) / width;
    for (long long i = threadIdx.x; i < width; i += THREADS) squares += (row[i] - mean) * (row[i] - mean);
    const float factor = rsqrtf(block_sum(squares, parts) / width + epsilon);
    for (long long i = threadIdx.x; i < width; i += THREADS)
        out[blockIdx.x * width + i] = (row[i] - mean) * factor * scale[i] + shift[i];
}
