// column: reductions along an axis that is not innermost; a thread owns VECTOR neighbouring results (${operators}).
${prelude}

// Choice slots.
enum Residency : int { residency_stream, residency_registers };
enum Accumulators : int { accumulators_one, accumulators_unrolled };
enum Passes : int { passes_rounds, passes_online };
//@choices

using Index = ${index};
constexpr Index KEPT = ${kept};        // points of the kept axes
constexpr Index REDUCED = ${reduced};  // points of the reduced axes
constexpr int LANES = BLOCK / SPLIT;   // vectors of results of one block; SPLIT threads share each
constexpr Index SHARE = (REDUCED + SPLIT - 1) / SPLIT;
constexpr bool RESIDENT = RESIDENCY == residency_registers;
constexpr int BATCH = RESIDENT ? (int)SHARE : UNROLL;  // reads in flight before the first is used
constexpr Index STEPS = (SHARE + BATCH - 1) / BATCH;
constexpr int CHAINS = ACCUMULATORS == accumulators_unrolled ? BATCH : 1;
constexpr bool EXACT = REDUCED % ((Index)SPLIT * BATCH) == 0;

// Where each operand lies. PACKED: a vector of it is contiguous and aligned if the pointer is.
//% for operand in operands
struct ${operand.at} {
    static constexpr bool REGULAR = ${operand.regular}, PACKED = ${operand.packed};
    static constexpr Index STRIDE = ${operand.stride};
    static __device__ __forceinline__ Index of(Index point, Index along) {
        ${operand.decode | indent(8)}
        return ${operand.address};
    }
    static __device__ __forceinline__ bool given(Index point, Index along) {
        ${operand.guard | indent(8)}
    }
};
//% endfor

template <class At, typename T>
static __device__ __forceinline__ Pack<T, VECTOR> read(const T* p, Index point, Index along, T fill) {
    Pack<T, VECTOR> pack;
#pragma unroll
    for (int lane = 0; lane < VECTOR; ++lane) {
        if constexpr (At::REGULAR) pack.v[lane] = p[At::of(point, along) + lane * At::STRIDE];
        else pack.v[lane] = At::given(point + lane, along) ? p[At::of(point + lane, along)] : fill;
    }
    return pack;
}
template <class At, typename T>
static __device__ __forceinline__ Pack<T, VECTOR> read_packed(const T* p, Index point, Index along, T fill) {
    if constexpr (At::PACKED) return load_pack<hint_default, VECTOR>(p + At::of(point, along));
    return read<At>(p, point, along, fill);
}
template <class At, typename T>
static __device__ __forceinline__ void write(T* p, Index point, Index along, const Pack<T, VECTOR>& pack, bool packed) {
    if constexpr (At::PACKED) {
        if (packed) return store_pack<hint_default>(p + At::of(point, along), pack);
    }
#pragma unroll
    for (int lane = 0; lane < VECTOR; ++lane) p[At::of(point + lane, along)] = pack.v[lane];
}

// The states of the SPLIT threads that share results become one, the same in all of them.
template <class M> static __device__ __forceinline__ void join(typename M::State (&state)[VECTOR], void* scratch) {
    if constexpr (SPLIT > 1) {
        auto* shared = static_cast<typename M::State*>(scratch);
        const int column = threadIdx.x % LANES, part = threadIdx.x / LANES;
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) shared[(part * VECTOR + lane) * LANES + column] = state[lane];
        __syncthreads();
#pragma unroll
        for (int half = SPLIT / 2; half > 0; half /= 2) {
            if (part < half) {
#pragma unroll
                for (int lane = 0; lane < VECTOR; ++lane) {
                    state[lane] = M::combine(state[lane], shared[((part + half) * VECTOR + lane) * LANES + column]);
                    shared[(part * VECTOR + lane) * LANES + column] = state[lane];
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) state[lane] = shared[lane * LANES + column];
        __syncthreads();
    }
}

//% if fused
constexpr bool BOTH = PASSES == passes_online;  // the first two rounds in one sweep
${reducers()}
${partial_types([fused])}
static __device__ __forceinline__ void join_fused(Fused (&state)[VECTOR], void* scratch) {
    if constexpr (SPLIT > 1) {
        auto* shared = static_cast<Fused*>(scratch);
        const int column = threadIdx.x % LANES, part = threadIdx.x / LANES;
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) shared[(part * VECTOR + lane) * LANES + column] = state[lane];
        __syncthreads();
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) {
            state[lane] = shared[lane * LANES + column];
#pragma unroll
            for (int other = 1; other < SPLIT; ++other)
                combine(state[lane], shared[(other * VECTOR + lane) * LANES + column]);
        }
        __syncthreads();
    }
}
//% endif

//% macro fetch(loads)
            const bool whole = EXACT || (step + 1) * BATCH * SPLIT <= REDUCED;
            if (packed) {
#pragma unroll
                for (int turn = 0; turn < BATCH; ++turn) {
                    const Index wanted = (step * BATCH + turn) * SPLIT + part;
                    const Index along = whole || wanted < REDUCED ? wanted : REDUCED - 1;
//% for load in loads
                    ld_${load.var}[turn] = read_packed<${load.at}>(${load.pointer}, point, along, ${load.fill});
//% endfor
                }
            } else {
#pragma unroll
                for (int turn = 0; turn < BATCH; ++turn) {
                    const Index wanted = (step * BATCH + turn) * SPLIT + part;
                    const Index along = whole || wanted < REDUCED ? wanted : REDUCED - 1;
//% for load in loads
                    ld_${load.var}[turn] = read<${load.at}>(${load.pointer}, point, along, ${load.fill});
//% endfor
                }
            }
//% endmacro
//% macro element(stage)
                    const Index along = (step * BATCH + turn) * SPLIT + part;
                    const bool inside = EXACT || along < REDUCED;
//% for text in stage.axes
                    ${text}
//% endfor
//% for load in stage.full
                    const ${load.ctype} ${load.var} = to_compute(ld_${load.var}[turn].v[lane]);
//% endfor
//% for load in stage.reduced
                    const ${load.ctype} ${load.var} = to_compute(${load.pointer}[${load.at}::of(0, inside ? along : 0)]);
//% endfor
//% for load in kept_loads
                    const ${load.ctype} ${load.var} = to_compute(ld_${load.var}.v[lane]);
//% endfor
//% for result in stage.results
                    const ${result.ctype} ${result.var} = re_${result.var}[lane];
//% endfor
//% endmacro
extern "C" __global__ void __launch_bounds__(BLOCK) ${kernel}(${signature}) {
//% if scratch_bytes
    __shared__ uint4 scratch[SPLIT > 1 ? (BLOCK * VECTOR * ${scratch_bytes} + 15) / 16 : 1];
//% endif
//% for text in constants
    ${text}
//% endfor
    const bool packed = ${alignment};
    const int part = threadIdx.x / LANES;
    const long long first = ((long long)blockIdx.x * LANES + threadIdx.x % LANES) * VECTOR;
    const bool active = first < KEPT;
    const Index point = active ? (Index)first : 0;  // idle threads follow along to meet the barriers
//% for load in kept_loads
    const Pack<${load.storage}, VECTOR> ld_${load.var} = read<${load.at}>(${load.pointer}, point, 0, ${load.fill});
//% endfor
//% for load in full_loads
    Pack<${load.storage}, VECTOR> ld_${load.var}[BATCH];
//% endfor
//% for result in results
    ${result.ctype} re_${result.var}[VECTOR];
//% endfor
    if constexpr (RESIDENT) {
        constexpr Index step = 0;
        {
${fetch(full_loads)}
        }
    }
//% if fused
    Fused folded[VECTOR];
//% endif
//% for stage in rounds
//% set first = fused and stage.number == 1
//% set second = fused and stage.number == 2

    // Round ${stage.number}.
    {
//% for reduction in stage.reductions
        using M_${reduction.var} = ${reduction.monoid};
        typename M_${reduction.var}::State ac_${reduction.var}[CHAINS][VECTOR];
//% endfor
#pragma unroll
        for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
//% for reduction in stage.reductions
                ac_${reduction.var}[chain][lane] = M_${reduction.var}::identity();
//% endfor
            }
        }
//% if first
        Fused chains[BOTH ? CHAINS : 1][VECTOR];
#pragma unroll
        for (int chain = 0; chain < (BOTH ? CHAINS : 1); ++chain)
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) set_identity(chains[chain][lane]);
//% endif
#pragma unroll 1
        for (Index step = 0; step < ${"(BOTH ? 0 : STEPS)" if second else "STEPS"}; ++step) {
            if constexpr (!RESIDENT) {
${fetch(stage.full)}
            }
#pragma unroll
            for (int turn = 0; turn < BATCH; ++turn) {
#pragma unroll
                for (int lane = 0; lane < VECTOR; ++lane) {
${element(stage)}
                    //@slot ${stage.load_transform}
//% if first
                    if constexpr (BOTH) {
                        if (inside) accumulate(chains[BOTH ? turn % CHAINS : 0][lane], ${fused.operand}, along);
                        continue;
                    }
//% endif
//% for reduction in stage.reductions
                    ac_${reduction.var}[turn % CHAINS][lane] = M_${reduction.var}::combine(
                        ac_${reduction.var}[turn % CHAINS][lane],
                        inside ? M_${reduction.var}::lift(${reduction.operand}, ${reduction.position}) : M_${reduction.var}::identity());
//% endfor
                }
            }
        }
#pragma unroll
        for (int chain = 1; chain < CHAINS; ++chain) {
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
//% for reduction in stage.reductions
                ac_${reduction.var}[0][lane] = M_${reduction.var}::combine(
                    ac_${reduction.var}[0][lane], ac_${reduction.var}[chain][lane]);
//% endfor
            }
        }
//% if first
        if constexpr (BOTH) {
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
#pragma unroll
                for (int chain = 1; chain < (BOTH ? CHAINS : 1); ++chain) combine(chains[0][lane], chains[chain][lane]);
                folded[lane] = chains[0][lane];
            }
            join_fused(folded, scratch);
        } else
//% endif
        ${"if constexpr (!BOTH) " if second else ""}{
//% for reduction in stage.reductions
            join<M_${reduction.var}>(ac_${reduction.var}[0], scratch);
//% endfor
        }
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) {
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
            ${reduction.ctype} ${reduction.var} = M_${reduction.var}::result(ac_${reduction.var}[0][lane]);
//% if first or second
            if constexpr (BOTH) {
                const Fused& folded_ = folded[lane];
                ${reduction.var} = ${fused.texts[reduction.var]};
            }
//% endif
//% endfor
            //@slot ${stage.finish}
//% for result in stage.produced
            re_${result.var}[lane] = ${result.var};
//% endfor
        }
    }
//% endfor
//% if kept_stores

    // Results of the kept axes: one of the SPLIT threads writes.
    if (active && part == 0) {
//% for store in kept_stores
        Pack<${store.storage}, VECTOR> st_${store.position};
#pragma unroll
        for (int lane = 0; lane < VECTOR; ++lane) st_${store.position}.v[lane] = Storage<${store.storage}>::of(${store.value});
        write<${store.at}>(${store.pointer}, point, 0, st_${store.position}, packed);
//% endfor
    }
//% endif
//% if post

    // Results of all points.
#pragma unroll 1
    for (Index step = 0; step < STEPS; ++step) {
        if constexpr (!RESIDENT) {
${fetch(post.full)}
        }
#pragma unroll
        for (int turn = 0; turn < BATCH; ++turn) {
//% for store in full_stores
            Pack<${store.storage}, VECTOR> st_${store.position};
//% endfor
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
${element(post)}
                    //@slot post
//% for store in full_stores
                    st_${store.position}.v[lane] = Storage<${store.storage}>::of(${store.var});
//% endfor
            }
            const Index along = (step * BATCH + turn) * SPLIT + part;
            if (active && (EXACT || along < REDUCED)) {
//% for store in full_stores
                write<${store.at}>(${store.pointer}, point, along, st_${store.position}, packed);
//% endfor
            }
        }
    }
//% endif
}
