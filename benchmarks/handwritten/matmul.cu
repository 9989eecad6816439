// Product of row-major matrices, (m, k) x (k, n): 64 x 64 results a block of 16 x 16 threads, 4 x 4 results a thread.
#define TILE 64
#define DEPTH 16

extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                                  int n, int k) {
    __shared__ float left[DEPTH][TILE + 4], right[DEPTH][TILE];
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, thread = threadIdx.y * 16 + threadIdx.x;
    float sums[4][4] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = thread; i < TILE * DEPTH; i += 256) {
            const int y = row + i / DEPTH, x = start + i % DEPTH;
            left[i % DEPTH][i / DEPTH] = y < m && x < k ? a[(long long)y * k + x] : 0.0f;
            const int v = start + i / TILE, u = column + i % TILE;
            right[i / TILE][i % TILE] = v < k && u < n ? b[(long long)v * n + u] : 0.0f;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; ++d) {
            float x[4], y[4];
            for (int i = 0; i < 4; ++i) x[i] = left[d][threadIdx.y * 4 + i], y[i] = right[d][threadIdx.x + 16 * i];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const int y = row + threadIdx.y * 4 + i, x = column + threadIdx.x + 16 * j;
            if (y < m && x < n) c[(long long)y * n + x] = sums[i][j];
        }
}
