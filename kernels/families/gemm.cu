// Tiled matrix product in fp32: out[b, m, n] = epilogue(sum over k of a(b, m, k) * b(b, k, n)).
// A block computes a TILE_M x TILE_N tile from slices of TILE_K staged in shared memory; a thread holds
// THREAD_M x THREAD_N sums in registers. Both operands lie in shared memory with k outermost.
${prelude}
using Index = ${index};
constexpr Index SIZE_M = ${m}, SIZE_N = ${n}, SIZE_K = ${k};

//@choices

constexpr int THREADS_M = TILE_M / THREAD_M, THREADS_N = TILE_N / THREAD_N, THREADS = THREADS_M * THREADS_N;
// A warp covers 4 x 8 threads of the tile: its reads of a slice touch each bank once.
constexpr int WARP_N = 8, WARP_M = 4, WARPS_N = THREADS_N / WARP_N;
// An operand that is not contiguous or not aligned along its line is read element by element.
constexpr int VECTOR_A = VECTOR < ${a_limit} ? VECTOR : ${a_limit};
constexpr int VECTOR_B = VECTOR < ${b_limit} ? VECTOR : ${b_limit};
constexpr int PITCH_A = TILE_M + PADDING, PITCH_B = TILE_N + PADDING;
constexpr int CHUNK_M = THREAD_M < 4 ? THREAD_M : 4, CHUNK_N = THREAD_N < 4 ? THREAD_N : 4;
constexpr int READS_A = (TILE_M * TILE_K / VECTOR_A + THREADS - 1) / THREADS;
constexpr int READS_B = (TILE_N * TILE_K / VECTOR_B + THREADS - 1) / THREADS;
constexpr Index TILES_M = (SIZE_M + TILE_M - 1) / TILE_M, TILES_N = (SIZE_N + TILE_N - 1) / TILE_N;
constexpr Index SLICES = (SIZE_K + TILE_K - 1) / TILE_K, SLICES_PER_SPLIT = (SLICES + SPLIT_K - 1) / SPLIT_K;

static __device__ __forceinline__ float transform_a(${a_values}) {
    //@slot load_transform_a
    return ${a_var};
}

static __device__ __forceinline__ float transform_b(${b_values}) {
    //@slot load_transform_b
    return ${b_var};
}

static __device__ __forceinline__ void epilogue(${epilogue_values}) {
    //@slot epilogue
//% for store in stores
    ${store.result} = ${store.var};
//% endfor
}

// VECTOR_A values of the left operand along ${a_axis}, from (b, m, k) on.
static __device__ __forceinline__ void read_a(${signature}, const Index b, const Index m, const Index k,
                                              float (&out)[VECTOR_A]) {
${a_wide_reads}
#pragma unroll
    for (int i = 0; i < VECTOR_A; ++i) {
${a_lane_reads}
        out[i] = transform_a(${a_names});
    }
}

// VECTOR_B values of the right operand along ${b_axis}, from (b, k, n) on.
static __device__ __forceinline__ void read_b(${signature}, const Index b, const Index k, const Index n,
                                              float (&out)[VECTOR_B]) {
${b_wide_reads}
#pragma unroll
    for (int i = 0; i < VECTOR_B; ++i) {
${b_lane_reads}
        out[i] = transform_b(${b_names});
    }
}

// Where the i-th read of this thread lies inside a slice: along the contiguous axis first.
template <int VECTOR, int TILE, bool ALONG_K>
static __device__ __forceinline__ void place(const int read, int& across, int& k) {
    constexpr int PER_LINE = (ALONG_K ? TILE_K : TILE) / VECTOR;
    const int line = read / PER_LINE, offset = read % PER_LINE * VECTOR;
    across = ALONG_K ? line : offset;
    k = ALONG_K ? offset : line;
}

template <int VECTOR, bool ALONG_K, int PITCH>
static __device__ __forceinline__ void put(float* slice, const int depth, const int across, const float (&values)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
        if constexpr (ALONG_K) slice[(depth + i) * PITCH + across] = values[i];
    if constexpr (!ALONG_K) {
        Pack<float, VECTOR> pack;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) pack.v[i] = values[i];
        store_pack<hint_default, VECTOR>(slice + depth * PITCH + across, pack);
    }
}

template <int COUNT> static __device__ __forceinline__ void shared_read(const float* from, float* to) {
    const Pack<float, COUNT> pack = load_pack<hint_default, COUNT>(from);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) to[i] = pack.v[i];
}

// The finished sum of one element goes through the epilogue into every output.
static __device__ __forceinline__ void finish_element(${signature}, const float acc, const Index b, const Index m,
                                                      const Index n, ${result_parameters}) {
${epilogue_reads}
    epilogue(${epilogue_names});
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) gemm(${kernel_signature}) {
    extern __shared__ float4 shared_memory[];
    float* const a_slices = reinterpret_cast<float*>(shared_memory);
    float* const b_slices = a_slices + STAGES * TILE_K * PITCH_A;

    // Blocks walk groups of GROUP_M rows of tiles column by column, so that neighbours share operands in L2.
    Index tile = blockIdx.x;
    const int split = tile % SPLIT_K;
    tile /= SPLIT_K;
    const Index b = tile / (TILES_M * TILES_N);
    tile %= TILES_M * TILES_N;
    const Index group = tile / (GROUP_M * TILES_N), first_row = group * GROUP_M;
    const Index rows = TILES_M - first_row < GROUP_M ? TILES_M - first_row : (Index)GROUP_M;
    const Index within = tile % (GROUP_M * TILES_N);
    const Index m0 = (first_row + within % rows) * TILE_M, n0 = within / rows * TILE_N;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_n = warp % WARPS_N * WARP_N + lane % WARP_N;
    const int thread_m = warp / WARPS_N * WARP_M + lane / WARP_N;

    float a_next[READS_A][VECTOR_A], b_next[READS_B][VECTOR_B];
    float acc[THREAD_M][THREAD_N];
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) acc[i][j] = 0.0f;

    const auto fetch = [&](const Index slice) {
#pragma unroll
        for (int r = 0; r < READS_A; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_A, TILE_M, ${a_along_k}>(read, across, depth);
            const Index m = m0 + across, k = slice * TILE_K + depth;
#pragma unroll
            for (int i = 0; i < VECTOR_A; ++i) a_next[r][i] = 0.0f;
            if (read < TILE_M * TILE_K / VECTOR_A && m < SIZE_M && k < SIZE_K)
                read_a(${arguments}, b, m, k, a_next[r]);
        }
#pragma unroll
        for (int r = 0; r < READS_B; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_B, TILE_N, ${b_along_k}>(read, across, depth);
            const Index n = n0 + across, k = slice * TILE_K + depth;
#pragma unroll
            for (int i = 0; i < VECTOR_B; ++i) b_next[r][i] = 0.0f;
            if (read < TILE_N * TILE_K / VECTOR_B && n < SIZE_N && k < SIZE_K)
                read_b(${arguments}, b, k, n, b_next[r]);
        }
    };
    const auto deposit = [&](const int stage) {
        float* const a_slice = a_slices + stage * TILE_K * PITCH_A;
        float* const b_slice = b_slices + stage * TILE_K * PITCH_B;
#pragma unroll
        for (int r = 0; r < READS_A; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_A, TILE_M, ${a_along_k}>(read, across, depth);
            if (read < TILE_M * TILE_K / VECTOR_A) put<VECTOR_A, ${a_along_k}, PITCH_A>(a_slice, depth, across, a_next[r]);
        }
#pragma unroll
        for (int r = 0; r < READS_B; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_B, TILE_N, ${b_along_k}>(read, across, depth);
            if (read < TILE_N * TILE_K / VECTOR_B) put<VECTOR_B, ${b_along_k}, PITCH_B>(b_slice, depth, across, b_next[r]);
        }
    };
    const auto multiply = [&](const int stage) {
        const float* const a_slice = a_slices + stage * TILE_K * PITCH_A;
        const float* const b_slice = b_slices + stage * TILE_K * PITCH_B;
#pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            float a_part[THREAD_M], b_part[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_M; i += CHUNK_M)
                shared_read<CHUNK_M>(a_slice + k * PITCH_A + i * THREADS_M + thread_m * CHUNK_M, a_part + i);
#pragma unroll
            for (int j = 0; j < THREAD_N; j += CHUNK_N)
                shared_read<CHUNK_N>(b_slice + k * PITCH_B + j * THREADS_N + thread_n * CHUNK_N, b_part + j);
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_N; ++j) acc[i][j] += a_part[i] * b_part[j];
        }
    };

    const Index first = split * SLICES_PER_SPLIT;
    const Index end = first + SLICES_PER_SPLIT < SLICES ? first + SLICES_PER_SPLIT : SLICES;
    if constexpr (STAGES == 1) {
        for (Index slice = first; slice < end; ++slice) {
            fetch(slice);
            deposit(0);
            __syncthreads();
            multiply(0);
            __syncthreads();
        }
    } else {
        // The next slice travels to registers while this one is multiplied; one barrier a slice.
        if (first < end) {
            fetch(first);
            deposit(0);
        }
        __syncthreads();
        for (Index slice = first; slice < end; ++slice) {
            const int stage = (int)(slice - first) & 1;
            if (slice + 1 < end) fetch(slice + 1);
            multiply(stage);
            if (slice + 1 < end) deposit(stage ^ 1);
            __syncthreads();
        }
    }

#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const Index m = m0 + i / CHUNK_M * CHUNK_M * THREADS_M + thread_m * CHUNK_M + i % CHUNK_M;
        if (m >= SIZE_M) continue;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK_N) {
            const Index n = n0 + j * THREADS_N + thread_n * CHUNK_N;
            if (n >= SIZE_N) continue;
            if constexpr (SPLIT_K > 1) {
#pragma unroll
                for (int c = 0; c < CHUNK_N; ++c)
                    if (n + c < SIZE_N)
                        partial[(((long long)split * ${batch} + b) * SIZE_M + m) * SIZE_N + n + c] = acc[i][j + c];
            } else {
//% for store in stores
                Pack<${store.storage}, CHUNK_N> ${store.pack};
//% endfor
#pragma unroll
                for (int c = 0; c < CHUNK_N; ++c) {
//% for store in stores
                    ${store.ctype} ${store.result};
//% endfor
                    finish_element(${arguments}, acc[i][j + c], b, m, n + c < SIZE_N ? n + c : SIZE_N - 1, ${result_names});
//% for store in stores
                    ${store.pack}.v[c] = Storage<${store.storage}>::of(${store.result});
//% endfor
                }
//% for store in stores
                if (${store.wide} && CHUNK_N > 1 && aligned<CHUNK_N>(${store.name})) {
                    store_pack<hint_default, CHUNK_N>(${store.name} + (${store.address}), ${store.pack});
                } else {
                    const Index n_first = n;
#pragma unroll
                    for (int c = 0; c < CHUNK_N; ++c) {
                        const Index n = n_first + c;
                        if (n < SIZE_N) store_one<hint_default>(${store.name} + (${store.address}), ${store.pack}.v[c]);
                    }
                }
//% endfor
            }
        }
    }
}

// Adds the partial sums of a split product in fixed order; launched only where SPLIT_K > 1.
extern "C" __global__ void __launch_bounds__(256) gemm_finish(${kernel_signature}) {
    const long long flat = (long long)blockIdx.x * 256 + threadIdx.x;
    if (flat >= (long long)${batch} * SIZE_M * SIZE_N) return;
    const Index n = (Index)(flat % SIZE_N), m = (Index)(flat / SIZE_N % SIZE_M), b = (Index)(flat / SIZE_N / SIZE_M);
    float acc = 0.0f;
#pragma unroll
    for (int split = 0; split < SPLIT_K; ++split)
        acc += partial[(long long)split * ${batch} * SIZE_M * SIZE_N + flat];
//% for store in stores
    ${store.ctype} ${store.result};
//% endfor
    finish_element(${arguments}, acc, b, m, n, ${result_names});
//% for store in stores
    store_one<hint_default>(${store.name} + (${store.address}), Storage<${store.storage}>::of(${store.result}));
//% endfor
}
