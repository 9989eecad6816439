// scan: running results along rows; a team of threads walks over a row tile by tile (${operators}).
${prelude}
enum Scheme : int { scheme_shuffle, scheme_tree };
enum Prefetch : int { prefetch_none, prefetch_next };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};  // along a row
using Row = ${row_index};
using Value = ${ctype};
constexpr Index SIZE = ${size};
constexpr Index OPERANDS = ${operands};  // positions that have an operand
constexpr Row KEPT = ${kept};
constexpr bool EXCLUSIVE = ${exclusive};
constexpr int WARPS = THREADS / 32;
constexpr int TILE = THREADS * VECTOR * UNROLL;
static __device__ __forceinline__ Value identity() { return Value(${identity}); }
static __device__ __forceinline__ Value combine(Value a, Value b) { return a ${operator} b; }

// A vector on its way from memory. Small elements stay in the words that they came in: taking them out would wait for
// the load, and hold up the next one.
template <typename T, int COUNT, bool SMALL = (sizeof(T) < 4)> struct Held {
    T elements[COUNT];
    __device__ __forceinline__ void clear() {}
    template <Hint HINT> __device__ __forceinline__ void load(const T* p) {
        const auto pack = load_pack<HINT, COUNT>(p);
#pragma unroll
        for (int j = 0; j < COUNT; ++j) elements[j] = pack.v[j];
    }
    __device__ __forceinline__ void put(int j, T x) { elements[j] = x; }
    __device__ __forceinline__ T get(int j) const { return elements[j]; }
    __device__ __forceinline__ void take(const Held& other) {
#pragma unroll
        for (int j = 0; j < COUNT; ++j) elements[j] = other.elements[j];
    }
};
template <typename T, int COUNT> struct Held<T, COUNT, true> {
    static constexpr int SIZE = (int)sizeof(T), BYTES = COUNT * SIZE, WORDS = (BYTES + 3) / 4;
    using Bits = typename Chunk<SIZE>::Type;
    unsigned int words[WORDS];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) words[i] = 0;
    }
    template <Hint HINT> __device__ __forceinline__ void load(const T* p) {
        using C = typename Chunk<(BYTES < 4 ? BYTES : 4)>::Type;
        if constexpr (BYTES == 8) {
            const uint2 two = load_chunk<HINT>(reinterpret_cast<const uint2*>(p));
            words[0] = two.x, words[1] = two.y;
        } else if constexpr (BYTES == 16) {
            const uint4 four = load_chunk<HINT>(reinterpret_cast<const uint4*>(p));
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        } else {
            words[0] = load_chunk<HINT>(reinterpret_cast<const C*>(p));
        }
    }
    __device__ __forceinline__ void put(int j, T x) {
        words[j * SIZE / 4] |= (unsigned int)reinterpret_cast<const Bits&>(x) << (j * SIZE % 4 * 8);
    }
    __device__ __forceinline__ T get(int j) const {
        const Bits bits = (Bits)(words[j * SIZE / 4] >> (j * SIZE % 4 * 8));
        return reinterpret_cast<const T&>(bits);
    }
    __device__ __forceinline__ void take(const Held& other) {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) words[i] = other.words[i];
    }
};

// Position of element 0 of a thread's vector `u` in a tile. Warps own neighbouring vectors, so that one warp scans
// them without the others; a tree takes the vectors of all threads in turn.
static __device__ __forceinline__ int place(int thread, int u) {
    if constexpr (SCHEME == scheme_tree) return (u * THREADS + thread) * VECTOR;
    return ((thread / 32 * UNROLL + u) * 32 + thread % 32) * VECTOR;
}
// Folds what lies before the lane; `total` becomes the fold of all lanes.
static __device__ __forceinline__ Value scan_lanes(Value& total) {
    const int lane = threadIdx.x % 32;
    Value sum = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const Value other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum = combine(other, sum);
    }
    const Value before = __shfl_up_sync(0xffffffffu, sum, 1);
    total = __shfl_sync(0xffffffffu, sum, 31);
    return lane == 0 ? identity() : before;
}
// For each of a thread's vectors what lies before it in the row. `totals` are the vectors' own folds; `carry` moves on
// to the end of the tile. `scratch` holds THREADS values of the team; it is free again two calls later.
static __device__ __forceinline__ void scan_tile(Value (&totals)[UNROLL], Value& carry, Value* scratch) {
    const int thread = threadIdx.x % THREADS;
    if constexpr (SCHEME == scheme_tree) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            Value sum = totals[u];
            scratch[thread] = sum;
            __syncthreads();
#pragma unroll
            for (int step = 1; step < THREADS; step *= 2) {
                if (thread >= step) sum = combine(scratch[thread - step], sum);
                __syncthreads();
                scratch[thread] = sum;
                __syncthreads();
            }
            totals[u] = thread == 0 ? carry : combine(carry, scratch[thread - 1]);
            carry = combine(carry, scratch[THREADS - 1]);
            if (u + 1 < UNROLL) __syncthreads();
        }
    } else {
        Value warp = identity();
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Value before = scan_lanes(totals[u]);
            const Value all = totals[u];
            totals[u] = combine(warp, before);
            warp = combine(warp, all);
        }
        if constexpr (WARPS > 1) {
            const int lane = thread % 32;
            if (lane == 0) scratch[thread / 32] = warp;
            __syncthreads();
            Value sum = lane < WARPS ? scratch[lane] : identity();
            const Value before = scan_lanes(sum);
            const Value front = combine(carry, __shfl_sync(0xffffffffu, before, thread / 32));
            carry = combine(carry, sum);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) totals[u] = combine(front, totals[u]);
        } else {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) totals[u] = combine(carry, totals[u]);
            carry = combine(carry, warp);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS * ROWS, 1) ${kernel}(${signature}) {
    constexpr int SCRATCH = SCHEME == scheme_tree ? THREADS : WARPS;
    __shared__ Value scratch[2][ROWS * SCRATCH];
    const int thread = threadIdx.x % THREADS, team = threadIdx.x / THREADS;
    const Row wanted = (Row)blockIdx.x * ROWS + team;
    const bool live = wanted < KEPT;
    const Row row = live ? wanted : KEPT - 1;
    ${decode_kept | indent(4)}
//% for line in constants
    ${line}
//% endfor
//% for one in accesses if one.unit
    ${one.const}${one.storage}* const ${one.name}_row = ${one.buffer} + (${one.base});
//% endfor
    // Vectors start where those of ${reference_name} are aligned: up to VECTOR - 1 positions before the row.
    const int shift = ${shift};
//% for one in accesses if one.unit
    const bool ${one.name}_wide = VECTOR > 1 && aligned<VECTOR>(${one.name}_row ${one.first_vector});
//% endfor
//% for load in loads
    const auto ${load.name}_take = [&](Index first, Held<${load.held}, VECTOR>& held) {
//% if load.unit
        if (${load.name}_wide && first >= 0 && first + VECTOR <= ${load.limit}) {
            held.template load<${load.hint}>(${load.name}_row ${load.pack});
        } else
//% endif
        {
            held.clear();
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                const Index s0 = first + j;
                ${load.held} one = Storage<${load.held}>::of(static_cast<${load.ctype}>(0));
                if (s0 >= 0 && s0 < ${load.limit}) one = ${load.text};
                held.put(${load.element}, one);
            }
        }
    };
//% endfor
//% for store in stores
    const auto ${store.name}_put = [&](Index first, const ${store.ctype} (&values)[VECTOR]) {
//% if store.unit
        if (${store.name}_wide && first >= 0 && first + VECTOR <= SIZE) {
            Pack<${store.storage}, VECTOR> pack;
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) pack.v[${store.element}] = Storage<${store.storage}>::of(values[j]);
            store_pack<CACHE_HINT>(${store.name}_row ${store.pack}, pack);
        } else
//% endif
        {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                const Index s0 = first + j;
                if (s0 >= 0 && s0 < SIZE) store_one<CACHE_HINT>(${store.at}, Storage<${store.storage}>::of(values[j]));
            }
        }
    };
//% endfor
    const auto operand_at = [&](Index s0${operand_parameters}) -> Value {
        //@slot load_transform
        return ${operand};
    };
    const auto finish_at = [&](Index s0${finish_parameters}, const Value ${running}${outputs}) {
        //@slot post
//% for store in stores
        ${store.name} = ${store.var};
//% endfor
    };

//% for load in loads
    Held<${load.held}, VECTOR> ${load.name}_now[UNROLL], ${load.name}_next[PREFETCH == prefetch_next ? UNROLL : 1];
//% endfor
    // Teams of one block meet at barriers, so all of them walk as far as the longest way.
    const int most = ROWS > 1 ? (__syncthreads_or(shift) ? VECTOR - 1 : 0) : shift;
    const Index end = SIZE + most - shift;
    if constexpr (PREFETCH == prefetch_next) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Index first = (Index)place(thread, u) - shift;
//% for load in loads
            ${load.name}_take(first, ${load.name}_next[u]);
//% endfor
        }
    }
    Value carry = identity();
    int turn = 0;
#pragma unroll 1
    for (Index tile = -(Index)shift; tile < end; tile += TILE, turn ^= 1) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Index first = tile + place(thread, u);
            if constexpr (PREFETCH == prefetch_next) {
//% for load in loads
                ${load.name}_now[u].take(${load.name}_next[u]);
                ${load.name}_take(first + TILE, ${load.name}_next[u]);
//% endfor
            } else {
//% for load in loads
                ${load.name}_take(first, ${load.name}_now[u]);
//% endfor
            }
        }
        Value part[UNROLL][VECTOR], before[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Index first = tile + place(thread, u);
            Value sum = identity();
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                const Index s0 = first + j;
                const Value own = s0 >= 0 && s0 < OPERANDS ? operand_at(s0${operand_arguments}) : identity();
                const Value after = j == 0 ? own : combine(sum, own);
                part[u][j] = EXCLUSIVE ? sum : after;
                sum = after;
            }
            before[u] = sum;
        }
        scan_tile(before, carry, scratch[turn] + team * SCRATCH);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Index first = tile + place(thread, u);
//% for store in stores
            ${store.ctype} ${store.name}_now[VECTOR];
//% endfor
#pragma unroll
            for (int j = 0; j < VECTOR; ++j)
                finish_at(first + j${finish_arguments}, combine(before[u], part[u][j])${results});
            if (live) {
//% for store in stores
                ${store.name}_put(first, ${store.name}_now);
//% endfor
            }
        }
    }
}
