// map: every point of the iteration space on its own (${operators}).
${prelude}

// Choice slots.
enum Grid : int { grid_exact, grid_persistent_2, grid_persistent_4, grid_persistent_8 };
//@choices

using Index = ${index};
constexpr long long TOTAL = ${total}LL;
constexpr int TILE = BLOCK * ITEMS * VECTOR;
constexpr long long TILES = (TOTAL + TILE - 1) / TILE;
constexpr bool ROWS_OF_VECTORS = ${row}LL % VECTOR == 0;  // no vector then crosses the innermost axis
constexpr bool SAME_COLUMN = BLOCK * VECTOR % ${row}LL == 0;  // all items of a thread are at one place along that axis

// Where each operand lies. FLAT: at the point's own number plus START. REGULAR: STRIDE apart along the innermost
// axis. PACKED: a vector of it is contiguous and aligned if the pointer is.
//% for operand in operands
struct ${operand.at} {
    static constexpr bool FLAT = ${operand.flat}, REGULAR = ${operand.regular};
    static constexpr long long START = ${operand.start}LL;
    static constexpr Index STRIDE = ${operand.stride};
    static constexpr bool PACKED = ${operand.packed};
    static __device__ __forceinline__ Index of(Index point) {
        ${operand.decode | indent(8)}
        return ${operand.address};
    }
    static __device__ __forceinline__ bool given(Index point) {
        ${operand.guard | indent(8)}
    }
};
//% endfor

// A vector of points from base + offset on; all of them lie in the iteration space.
template <class At, Hint HINT, typename T>
static __device__ __forceinline__ Pack<T, VECTOR> read(const T* p, long long base, int offset, T fill) {
    const Index point = (Index)base + offset;
    if constexpr (At::FLAT && At::PACKED) {
        return load_pack<HINT, VECTOR>(p + (base + At::START) + offset);
    } else if constexpr (At::PACKED) {
        return load_pack<HINT, VECTOR>(p + At::of(point));
    } else {
        Pack<T, VECTOR> pack;
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) {
            if constexpr (At::REGULAR && ROWS_OF_VECTORS)
                pack.v[lane] = load_one<HINT>(p + At::of(point) + lane * At::STRIDE);
            else
                pack.v[lane] = At::given(point + lane) ? load_one<HINT>(p + At::of(point + lane)) : fill;
        }
        return pack;
    }
}
template <class At, typename T>
static __device__ __forceinline__ void write(T* p, long long base, int offset, const Pack<T, VECTOR>& pack) {
    const Index point = (Index)base + offset;
    if constexpr (At::FLAT && At::PACKED) {
        store_pack<STORE_HINT>(p + (base + At::START) + offset, pack);
    } else if constexpr (At::PACKED) {
        store_pack<STORE_HINT>(p + At::of(point), pack);
    } else {
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) store_one<STORE_HINT>(p + At::of(point + lane), pack.v[lane]);
    }
}
// The same for vectors that may overhang the iteration space or whose pointer is not aligned.
template <class At, typename T>
static __device__ __forceinline__ Pack<T, VECTOR> read_edge(const T* p, long long base, int offset, T fill) {
    Pack<T, VECTOR> pack;
#pragma unroll
    for (int lane = 0; lane < VECTOR; ++lane) {
        const Index point = (Index)base + offset + lane;
        pack.v[lane] = point < TOTAL && At::given(point) ? p[At::of(point)] : fill;
    }
    return pack;
}
template <class At, typename T>
static __device__ __forceinline__ void write_edge(T* p, long long base, int offset, const Pack<T, VECTOR>& pack) {
#pragma unroll
    for (int lane = 0; lane < VECTOR; ++lane) {
        const Index point = (Index)base + offset + lane;
        if (point < TOTAL) p[At::of(point)] = pack.v[lane];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) ${kernel}(${signature}) {
//% for text in constants
    ${text}
//% endfor
    const bool packed = ${alignment};
    for (long long tile = blockIdx.x; tile < TILES; tile += GRID == grid_exact ? TILES : gridDim.x) {
        const long long base = tile * TILE;
        const bool whole = packed && base + TILE <= TOTAL;
//% for load in loads
        Pack<${load.storage}, VECTOR> ld_${load.var}[${load.count}];
//% endfor
        if (whole) {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int offset = (item * BLOCK + (int)threadIdx.x) * VECTOR;
//% for load in loads
                ${load.once}ld_${load.var}[item] = read<${load.at}, ${load.hint}>(${load.pointer}, base, offset, ${load.fill});
//% endfor
            }
        } else {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int offset = (item * BLOCK + (int)threadIdx.x) * VECTOR;
//% for load in loads
                ${load.once}ld_${load.var}[item] = read_edge<${load.at}>(${load.pointer}, base, offset, ${load.fill});
//% endfor
            }
        }
//% for store in stores
        Pack<${store.storage}, VECTOR> st_${store.position}[ITEMS];
//% endfor
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
//% for text in point_axes
                ${text}
//% endfor
//% for load in loads
                const ${load.ctype} ${load.var} = to_compute(ld_${load.var}[${load.which}].v[lane]);
//% endfor
                //@slot body
//% for store in stores
                st_${store.position}[item].v[lane] = Storage<${store.storage}>::of(${store.var});
//% endfor
            }
        }
        if (whole) {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int offset = (item * BLOCK + (int)threadIdx.x) * VECTOR;
//% for store in stores
                write<${store.at}>(${store.pointer}, base, offset, st_${store.position}[item]);
//% endfor
            }
        } else {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int offset = (item * BLOCK + (int)threadIdx.x) * VECTOR;
//% for store in stores
                write_edge<${store.at}>(${store.pointer}, base, offset, st_${store.position}[item]);
//% endfor
            }
        }
    }
}
