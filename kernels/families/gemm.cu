// Tiled matrix product in fp32: out[b, m, n] = epilogue(sum over k of a(b, m, k) * b(b, k, n)).
// A block computes a TILE_M x TILE_N tile from slices of TILE_K staged in shared memory; a thread holds
// THREAD_M x THREAD_N sums in registers. Both operands lie in shared memory with k outermost.
${prelude}
using Index = ${index};
constexpr Index SIZE_M = ${m}, SIZE_N = ${n}, SIZE_K = ${k};

//@choices

//% if not copies
constexpr bool ASYNC_COPY = false;
//% endif
//% if not needed
constexpr bool SKIP_TILES = false;
//% endif
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
// What divides evenly needs no bounds.
constexpr bool WHOLE_M = SIZE_M % TILE_M == 0, WHOLE_N = SIZE_N % TILE_N == 0, WHOLE_K = SIZE_K % TILE_K == 0;
// Operands that are copied as they lie travel past the registers; one that is transposed on the way float by float.
//% for o in operands
constexpr bool COPIED_${o.upper} = ASYNC_COPY && ${"true" if o.copied else "false"};
constexpr int COPY_${o.upper} = ${o.along_k} ? 1 : VECTOR_${o.upper};
//% endfor
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

// COUNT floats to shared memory without registers, zeros where they lie outside; `wide`: in one access.
template <int COUNT>
static __device__ __forceinline__ void copy_async(float* to, const float* from, const bool inside, const bool wide) {
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    if constexpr (COUNT == 4) {
        if (wide) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(target), "l"(from), "r"(inside ? 16 : 0) : "memory");
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(target + 4 * i), "l"(from + i), "r"(inside ? 4 : 0) : "memory");
}
static __device__ __forceinline__ void copies_issued() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> static __device__ __forceinline__ void copies_arrived() {
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}

// Where a block works; a tile that is not `needed` has no sum that an output depends on.
struct Place { Index b, m0, n0; bool needed; };

//% if needed
// Columns of tiles [first, end) in which rows m_low to m_high have a sum that is needed.
static __device__ __forceinline__ constexpr void needed_tiles(const Index m_low, const Index m_high, Index& first,
                                                              Index& end) {
    Index rest = 0, low = 0, high = 0;
    first = 0;
    end = TILES_N;
${needed}
    if (first > end) first = end;
}

constexpr Index GROUPS = (TILES_M + GROUP_M - 1) / GROUP_M;

// Rows of tiles of a group, and the columns that any of them needs.
struct Group { Index rows, first, end; };
static __device__ __forceinline__ constexpr Group group_at(const Index number) {
    const Index row = number * GROUP_M;
    Group group{TILES_M - row < GROUP_M ? TILES_M - row : (Index)GROUP_M, 0, 0};
    const Index last = (row + group.rows) * TILE_M;
    needed_tiles(row * TILE_M, (last < SIZE_M ? last : SIZE_M) - 1, group.first, group.end);
    return group;
}

static __device__ constexpr Index needed_in_all() {
    Index total = 0;
    for (Index number = 0; number < GROUPS; ++number) {
        const Group group = group_at(number);
        total += group.rows * (group.end - group.first);
    }
    return total;
}

// Heavy tiles come first, group by group, so that the device stays evenly loaded; the light ones fill its last wave.
static __device__ Place place_of_needed(Index tile) {
    constexpr Index HEAVY = needed_in_all(), LIGHT = TILES_M * TILES_N - HEAVY, BATCH = ${batch};
    const bool heavy = tile < HEAVY * BATCH;
    if (!heavy) tile -= HEAVY * BATCH;
    const Index each = heavy ? HEAVY : LIGHT > 0 ? LIGHT : (Index)1;
    const Index b = tile / each;
    tile %= each;
    Group group = group_at(0);
    Index number = 0;
    for (;; group = group_at(++number)) {
        const Index columns = heavy ? group.end - group.first : TILES_N - (group.end - group.first);
        if (tile < group.rows * columns) break;
        tile -= group.rows * columns;
    }
    Index column = tile / group.rows;
    if (heavy) column += group.first;
    else if (column >= group.first) column += group.end - group.first;
    const Index m0 = (number * GROUP_M + tile % group.rows) * TILE_M;
    Index first = 0, end = 0;
    needed_tiles(m0, (m0 + TILE_M < SIZE_M ? m0 + TILE_M : SIZE_M) - 1, first, end);
    return {b, m0, column * TILE_N, column >= first && column < end};
}
//% endif

// Blocks walk groups of GROUP_M rows of tiles column by column, so that neighbours share operands in L2.
static __device__ __forceinline__ Place place_of(Index tile) {
//% if needed
    if constexpr (SKIP_TILES) return place_of_needed(tile);
//% endif
    const Index b = tile / (TILES_M * TILES_N);
    tile %= TILES_M * TILES_N;
    const Index group = tile / (GROUP_M * TILES_N), first_row = group * GROUP_M;
    const Index rows = TILES_M - first_row < GROUP_M ? TILES_M - first_row : (Index)GROUP_M;
    const Index within = tile % (GROUP_M * TILES_N);
    return {b, (first_row + within % rows) * TILE_M, within / rows * TILE_N, true};
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

    const Index tile = (Index)blockIdx.x / SPLIT_K;
    const int split = blockIdx.x % SPLIT_K;
    const Place place_here = place_of(tile);
    const Index b = place_here.b, m0 = place_here.m0, n0 = place_here.n0;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_n = warp % WARPS_N * WARP_N + lane % WARP_N;
    const int thread_m = warp / WARPS_N * WARP_M + lane / WARP_N;

    float a_next[READS_A][VECTOR_A], b_next[READS_B][VECTOR_B];
    float acc[THREAD_M][THREAD_N];
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) acc[i][j] = 0.0f;

//% for o in operands
    const auto fetch_${o.side} = [&](const Index slice) {
#pragma unroll
        for (int r = 0; r < READS_${o.upper}; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_${o.upper}, TILE_${o.size}, ${o.along_k}>(read, across, depth);
            const Index ${o.across} = ${o.across}0 + across, k = slice * TILE_K + depth;
#pragma unroll
            for (int i = 0; i < VECTOR_${o.upper}; ++i) ${o.side}_next[r][i] = 0.0f;
            if (read < TILE_${o.size} * TILE_K / VECTOR_${o.upper} && (WHOLE_${o.size} || ${o.across} < SIZE_${o.size}) &&
                (WHOLE_K || k < SIZE_K))
                read_${o.side}(${arguments}, ${o.point}, ${o.side}_next[r]);
        }
    };
    const auto deposit_${o.side} = [&](const int stage) {
        float* const slice = ${o.side}_slices + stage * TILE_K * PITCH_${o.upper};
#pragma unroll
        for (int r = 0; r < READS_${o.upper}; ++r) {
            int across, depth;
            const int read = r * THREADS + threadIdx.x;
            place<VECTOR_${o.upper}, TILE_${o.size}, ${o.along_k}>(read, across, depth);
            if (read < TILE_${o.size} * TILE_K / VECTOR_${o.upper})
                put<VECTOR_${o.upper}, ${o.along_k}, PITCH_${o.upper}>(slice, depth, across, ${o.side}_next[r]);
        }
    };
//% if o.copied
    const auto copy_${o.side} = [&](const Index slice, const int stage) {
        constexpr int FLOATS = COPY_${o.upper}, COPIES = TILE_${o.size} * TILE_K / FLOATS;
        const bool wide = FLOATS == 4 && aligned<4>(${o.pointer});
        float* const target = ${o.side}_slices + stage * TILE_K * PITCH_${o.upper};
#pragma unroll
        for (int r = 0; r < (COPIES + THREADS - 1) / THREADS; ++r) {
            int across, depth;
            const int copy = r * THREADS + threadIdx.x;
            if (COPIES % THREADS != 0 && copy >= COPIES) continue;
            place<FLOATS, TILE_${o.size}, ${o.along_k}>(copy, across, depth);
            const Index ${o.across} = ${o.across}0 + across, k = slice * TILE_K + depth;
            const bool inside = (WHOLE_${o.size} || ${o.across} < SIZE_${o.size}) && (WHOLE_K || k < SIZE_K);
            const float* const from = ${o.pointer} + (inside ? (${o.address}) : 0);
            copy_async<FLOATS>(target + depth * PITCH_${o.upper} + across, from, inside, wide);
        }
    };
//% endif
//% endfor
    // What of a slice is on its way before the products of another, and what follows them.
    const auto begin = [&](const Index slice, const int stage) {
//% for o in operands
//% if o.copied
        if constexpr (COPIED_${o.upper}) copy_${o.side}(slice, stage);
        else fetch_${o.side}(slice);
//% else
        fetch_${o.side}(slice);
//% endif
//% endfor
    };
    const auto complete = [&](const int stage) {
//% for o in operands
        if constexpr (!COPIED_${o.upper}) deposit_${o.side}(stage);
//% endfor
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

    const Index first = place_here.needed ? split * SLICES_PER_SPLIT : SLICES;
    const Index end = first + SLICES_PER_SPLIT < SLICES ? first + SLICES_PER_SPLIT : SLICES;
    if constexpr (STAGES == 1) {
        for (Index slice = first; slice < end; ++slice) {
            begin(slice, 0);
            complete(0);
            __syncthreads();
            multiply(0);
            __syncthreads();
        }
    } else if constexpr (!ASYNC_COPY) {
        // The next slice travels to registers while this one is multiplied; one barrier a slice.
        if (first < end) {
            begin(first, 0);
            complete(0);
        }
        __syncthreads();
        for (Index slice = first; slice < end; ++slice) {
            const int stage = (int)(slice - first) & 1;
            if (slice + 1 < end) begin(slice + 1, stage ^ 1);
            multiply(stage);
            if (slice + 1 < end) complete(stage ^ 1);
            __syncthreads();
        }
    } else {
        // STAGES - 1 slices are under way: the barrier that shows one of them frees the stage of the last one.
#pragma unroll
        for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
            if (first + ahead < end) {
                begin(first + ahead, ahead);
                complete(ahead);
            }
            copies_issued();
        }
        int stage = 0, free = STAGES - 1;
        for (Index slice = first; slice < end; ++slice) {
            copies_arrived<STAGES - 2>();
            __syncthreads();
            const Index ahead = slice + (STAGES - 1);
            if (ahead < end) begin(ahead, free);
            copies_issued();
            multiply(stage);
            if (ahead < end) complete(free);
            free = stage;
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
    }

#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const Index m = m0 + i / CHUNK_M * CHUNK_M * THREADS_M + thread_m * CHUNK_M + i % CHUNK_M;
        if (!WHOLE_M && m >= SIZE_M) continue;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK_N) {
            const Index n = n0 + j * THREADS_N + thread_n * CHUNK_N;
            if (!WHOLE_N && n >= SIZE_N) continue;
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
