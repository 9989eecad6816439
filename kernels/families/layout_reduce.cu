// layout_reduce: rows are reduced, results run across them; tiles of rows lie in shared memory (${operators}).
${prelude}

// Choice slots.
enum Residency : int { residency_tile, residency_registers };
enum Staging : int { staging_registers, staging_async };
//@choices

using Index = ${index};
constexpr Index KEPT = ${kept};      // points of the kept axes, in the order of the results
constexpr int REDUCED = ${reduced};  // elements of a row
constexpr int SPLIT = BLOCK / POINTS;                // threads that share a point
constexpr int CHUNKS = REDUCED / VECTOR;             // vectors of a row
constexpr int SHARE = (CHUNKS + SPLIT - 1) / SPLIT;  // of them, a thread's at most
constexpr bool EXACT = CHUNKS % SPLIT == 0;
constexpr int PITCH = (CHUNKS + PAD) * VECTOR;
constexpr bool RESIDENT = RESIDENCY == residency_registers;
constexpr int UNROLLED = RESIDENT || SHARE < UNROLL ? SHARE : UNROLL;
constexpr int lane = 0;  // of a thread's points: it has one

// Where each operand lies. WIDE: a vector along a row is contiguous, and aligned if the pointer is.
//% for operand in operands
struct ${operand.at} {
    static constexpr bool WIDE = ${operand.wide};
    static __device__ __forceinline__ Index of(Index point, Index along) {
        ${operand.decode | indent(8)}
        return ${operand.address};
    }
    static __device__ __forceinline__ bool given(Index point, Index along) {
        ${operand.guard | indent(8)}
    }
};
//% endfor

template <int BYTES> static __device__ __forceinline__ void copy_async(void* to, const void* from) {
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(target), "l"(from), "n"(BYTES) : "memory");
}

// Brings rows `first`, `first + 1`, ... into a tile: neighbouring threads read neighbours along the rows.
template <class At, typename T>
static __device__ __forceinline__ void fill(T* tile, const T* p, Index first, bool packed) {
    const int rows = KEPT - first < POINTS ? (int)(KEPT - first) : POINTS;
    constexpr int BYTES = VECTOR * (int)sizeof(T);
    if (At::WIDE && packed) {
        if constexpr (STAGING == staging_async && BYTES >= 4 && BYTES <= 16) {
#pragma unroll 4
            for (int place = threadIdx.x; place < rows * CHUNKS; place += BLOCK) {
                const int row = place / CHUNKS, along = place % CHUNKS * VECTOR;
                copy_async<BYTES>(tile + row * PITCH + along, p + At::of(first + row, along));
            }
        } else {
#pragma unroll 1
            for (int start = threadIdx.x; start < rows * CHUNKS; start += BLOCK * ITEMS) {
                Pack<T, VECTOR> packs[ITEMS];
#pragma unroll
                for (int item = 0; item < ITEMS; ++item) {
                    const int place = start + item * BLOCK, row = place / CHUNKS, along = place % CHUNKS * VECTOR;
                    if (place < rows * CHUNKS) packs[item] = load_pack<hint_default, VECTOR>(p + At::of(first + row, along));
                }
#pragma unroll
                for (int item = 0; item < ITEMS; ++item) {
                    const int place = start + item * BLOCK, row = place / CHUNKS, along = place % CHUNKS * VECTOR;
                    if (place < rows * CHUNKS) store_pack<hint_default>(tile + row * PITCH + along, packs[item]);
                }
            }
        }
    } else {
#pragma unroll 4
        for (int place = threadIdx.x; place < rows * REDUCED; place += BLOCK) {
            const int row = place / REDUCED, along = place % REDUCED;
            tile[row * PITCH + along] = p[At::of(first + row, along)];
        }
    }
}
//% if turned_stores

// The way back, for results that run along the rows.
template <class At, typename T>
static __device__ __forceinline__ void drain(T* p, const T* tile, Index first, bool packed) {
    const int rows = KEPT - first < POINTS ? (int)(KEPT - first) : POINTS;
    if (At::WIDE && packed) {
        for (int place = threadIdx.x; place < rows * CHUNKS; place += BLOCK) {
            const int row = place / CHUNKS, along = place % CHUNKS * VECTOR;
            store_pack<STORE_HINT>(p + At::of(first + row, along), load_pack<hint_default, VECTOR>(tile + row * PITCH + along));
        }
    } else {
        for (int place = threadIdx.x; place < rows * REDUCED; place += BLOCK) {
            const int row = place / REDUCED, along = place % REDUCED;
            store_one<STORE_HINT>(p + At::of(first + row, along), tile[row * PITCH + along]);
        }
    }
}
//% endif

// An operand that is no row is read where it lies: neighbouring threads read neighbouring points of it.
template <class At, typename T>
static __device__ __forceinline__ Pack<T, VECTOR> read_across(const T* p, Index point, Index along, T fill) {
    Pack<T, VECTOR> pack;
#pragma unroll
    for (int item = 0; item < VECTOR; ++item)
        pack.v[item] = At::given(point, along + item) ? p[At::of(point, along + item)] : fill;
    return pack;
}

//% macro chunk(stage)
            const int chunk = step * SPLIT + part;
            const bool inside = EXACT || chunk < CHUNKS;
            const int base = (inside ? chunk : 0) * VECTOR;
//% for load in stage.full
            const Pack<${load.storage}, VECTOR> ld_${load.var} = RESIDENT ? held_${load.var}[RESIDENT ? step : 0] : ${load.take};
//% endfor
//% for load in stage.reduced
//% if load.again
            const Pack<${load.storage}, VECTOR> ld_${load.var} = RESIDENT ? held_${load.var}[RESIDENT ? step : 0] : ${load.take};
//% else
            const Pack<${load.storage}, VECTOR> ld_${load.var} = ${load.take};
//% endif
//% endfor
//% endmacro
//% macro element(stage)
                const Index along = base + item;
//% for text in stage.axes
                ${text}
//% endfor
//% for load in stage.full + stage.reduced
                const ${load.ctype} ${load.var} = to_compute(ld_${load.var}.v[item]);
//% endfor
//% for load in kept_loads
                const ${load.ctype} ${load.var} = to_compute(ld_${load.var}.v[lane]);
//% endfor
//% for result in stage.results
                const ${result.ctype} ${result.var} = re_${result.var}[lane];
//% endfor
//% endmacro
extern "C" __global__ void __launch_bounds__(BLOCK) ${kernel}(${signature}) {
    extern __shared__ __align__(16) unsigned char tiles[];
    unsigned char* free_bytes = tiles;
//% for area in areas
    ${area.storage}* const ${area.name} = reinterpret_cast<${area.storage}*>(free_bytes);
    free_bytes += (${area.elements} * (int)sizeof(${area.storage}) + 15) / 16 * 16;
//% endfor
//% for text in constants
    ${text}
//% endfor
    const bool packed = ${alignment};
    const Index first = (Index)blockIdx.x * POINTS;
    const int seat = threadIdx.x % POINTS, part = threadIdx.x / POINTS;
    const bool active = first + seat < KEPT;
    const int mine = active ? seat : 0;  // idle threads follow along to meet the barriers
    const Index point = first + mine;
//% for load in staged
    fill<${load.at}>(tile_${load.var}, ${load.pointer}, first, packed);
//% endfor
//% for load in rows
    for (int along = threadIdx.x; along < REDUCED; along += BLOCK)
        row_${load.var}[along] = ${load.at}::given(0, along) ? ${load.pointer}[${load.at}::of(0, along)] : ${load.fill};
//% endfor
//% for load in kept_loads
    Pack<${load.storage}, 1> ld_${load.var};
    ld_${load.var}.v[lane] = ${load.at}::given(point, 0) ? ${load.pointer}[${load.at}::of(point, 0)] : ${load.fill};
//% endfor
//% for load in full_loads + again
    Pack<${load.storage}, VECTOR> held_${load.var}[RESIDENT ? SHARE : 1];
//% endfor
//% if straight
    if constexpr (RESIDENT) {
#pragma unroll
        for (int step = 0; step < SHARE; ++step) {
            const int chunk = step * SPLIT + part, base = (EXACT || chunk < CHUNKS ? chunk : 0) * VECTOR;
//% for load in straight
            held_${load.var}[step] = ${load.take};
//% endfor
        }
    }
//% endif
    if constexpr (STAGING == staging_async) asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if constexpr (RESIDENT) {
#pragma unroll
        for (int step = 0; step < SHARE; ++step) {
            const int chunk = step * SPLIT + part, base = (EXACT || chunk < CHUNKS ? chunk : 0) * VECTOR;
//% for load in staged + again
            held_${load.var}[step] = ${load.take};
//% endfor
        }
    }
//% for result in results
    ${result.ctype} re_${result.var}[1];
//% endfor
//% for stage in rounds

    // Round ${stage.number}.
    {
//% for reduction in stage.reductions
        using M_${reduction.var} = ${reduction.monoid};
        typename M_${reduction.var}::State ac_${reduction.var}[ACCUMULATORS];
#pragma unroll
        for (int chain = 0; chain < ACCUMULATORS; ++chain) ac_${reduction.var}[chain] = M_${reduction.var}::identity();
//% endfor
#pragma unroll UNROLLED
        for (int step = 0; step < SHARE; ++step) {
${chunk(stage)}
#pragma unroll
            for (int item = 0; item < VECTOR; ++item) {
${element(stage)}
                //@slot ${stage.load_transform}
//% for reduction in stage.reductions
                ac_${reduction.var}[item % ACCUMULATORS] = M_${reduction.var}::combine(
                    ac_${reduction.var}[item % ACCUMULATORS],
                    inside ? M_${reduction.var}::lift(${reduction.operand}, (Index)${reduction.position}) : M_${reduction.var}::identity());
//% endfor
            }
        }
//% for reduction in stage.reductions
#pragma unroll
        for (int chain = 1; chain < ACCUMULATORS; ++chain)
            ac_${reduction.var}[0] = M_${reduction.var}::combine(ac_${reduction.var}[0], ac_${reduction.var}[chain]);
//% endfor
        // The states of the SPLIT threads that share a point become one, the same in all of them.
        if constexpr (SPLIT > 1) {
//% for reduction in stage.reductions
            __shared__ typename M_${reduction.var}::State all_${reduction.var}[BLOCK];
            all_${reduction.var}[threadIdx.x] = ac_${reduction.var}[0];
//% endfor
            __syncthreads();
//% for reduction in stage.reductions
            ac_${reduction.var}[0] = all_${reduction.var}[seat];
#pragma unroll
            for (int other = 1; other < SPLIT; ++other)
                ac_${reduction.var}[0] = M_${reduction.var}::combine(ac_${reduction.var}[0], all_${reduction.var}[other * POINTS + seat]);
//% endfor
        }
//% for text in stage.finish_axes
        ${text}
//% endfor
//% for load in kept_loads
        const ${load.ctype} ${load.var} = to_compute(ld_${load.var}.v[lane]);
//% endfor
//% for result in stage.results
        const ${result.ctype} ${result.var} = re_${result.var}[lane];
//% endfor
//% for reduction in stage.reductions
        const ${reduction.ctype} ${reduction.var} = M_${reduction.var}::result(ac_${reduction.var}[0]);
//% endfor
        //@slot ${stage.finish}
//% for result in stage.produced
        re_${result.var}[lane] = ${result.var};
//% endfor
    }
//% endfor
//% if kept_stores

    // Results of the kept axes: one of the SPLIT threads writes.
    if (active && part == 0) {
//% for store in kept_stores
        store_one<STORE_HINT>(${store.pointer} + ${store.at}::of(point, 0), Storage<${store.storage}>::of(${store.value}));
//% endfor
    }
//% endif

    // Results of all points: neighbouring threads write neighbouring points.
#pragma unroll UNROLLED
    for (int step = 0; step < SHARE; ++step) {
${chunk(post)}
#pragma unroll
        for (int item = 0; item < VECTOR; ++item) {
${element(post)}
                //@slot post
            if (active && inside) {
//% for store in straight_stores
                store_one<STORE_HINT>(${store.pointer} + ${store.at}::of(point, along), Storage<${store.storage}>::of(${store.var}));
//% endfor
//% for store in turned_stores
                tile_${store.at}[mine * PITCH + along] = Storage<${store.storage}>::of(${store.var});
//% endfor
            }
        }
    }
//% if turned_stores
    __syncthreads();
//% for store in turned_stores
    drain<${store.at}>(${store.pointer}, tile_${store.at}, first, packed);
//% endfor
//% endif
}
