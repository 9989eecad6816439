//% macro partial_types(partials)
//% for partial in partials
struct ${partial.partial} {
//% for member in partial.members
    ${member.ctype} ${member.name};
//% endfor
};
static __device__ __forceinline__ void set_identity(${partial.partial}& p) {
//% for member in partial.members
    p.${member.name} = ${member.identity};
//% endfor
}
static __device__ __forceinline__ void accumulate(${partial.partial}& p, ${partial.operands}, Index position) {
    ${partial.accumulate | indent(4)}
}
static __device__ __forceinline__ void combine(${partial.partial}& a, const ${partial.partial}& b) {
    ${partial.combine | indent(4)}
}
static __device__ __forceinline__ ${partial.partial} shuffled(const ${partial.partial}& p, int mask) {
    ${partial.partial} q;
//% for member in partial.members
    q.${member.name} = shuffle_xor(p.${member.name}, mask);
//% endfor
    return q;
}
template <class Read>
static __device__ __forceinline__ void fetch(${partial.partial}& p, const ${partial.partial}* from, Read read) {
//% for member in partial.members
    fetch(p.${member.name}, &from->${member.name}, read);
//% endfor
}
static __device__ __forceinline__ ${partial.partial} lane_copy(const ${partial.partial}& p, int lane) {
    ${partial.partial} q;
//% for member in partial.members
    q.${member.name} = shuffle_lane(p.${member.name}, lane);
//% endfor
    return q;
}
//% endfor
//% endmacro
//% macro reducers()
template <typename T> static __device__ __forceinline__ T shuffle_lane(T x, int lane) {
    return __shfl_sync(0xffffffffu, x, lane);
}
static __device__ __forceinline__ bool shuffle_lane(bool x, int lane) {
    return __shfl_sync(0xffffffffu, (int)x, lane) != 0;
}
template <typename T, typename I>
static __device__ __forceinline__ ArgState<T, I> shuffle_lane(ArgState<T, I> x, int lane) {
    return {shuffle_lane(x.value, lane), shuffle_lane(x.index, lane)};
}
// A partial in memory is read scalar by scalar: nobody writes the padding between them.
template <typename T, class Read> static __device__ __forceinline__ void fetch(T& x, const T* from, Read read) {
    x = read(from);
}
template <typename T, typename I, class Read>
static __device__ __forceinline__ void fetch(ArgState<T, I>& x, const ArgState<T, I>* from, Read read) {
    fetch(x.value, &from->value, read);
    fetch(x.index, &from->index, read);
}
//% endmacro
//% macro team_reduce()
struct ReadOwn {
    template <typename T> __device__ __forceinline__ T operator()(const T* from) const { return *from; }
};
template <class P, class Read = ReadOwn>
static __device__ __forceinline__ P fetched(const P* from, Read read = ReadOwn()) {
    P copy;
    fetch(copy, from, read);
    return copy;
}
// All lanes get the same bits: a butterfly's lanes may round differently, so lane 0 speaks for the group.
template <int LANES, class P> static __device__ __forceinline__ P reduce_lanes(P p) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) combine(p, shuffled(p, mask));
    return lane_copy(p, 0);
}
// The partials of THREADS neighbouring threads; each team of the block gets its own result. `scratch` holds
// SCRATCH partials a team and is used once, so no barrier follows the last read.
constexpr int WARPS = THREADS < 32 ? 1 : THREADS / 32;
constexpr int SCRATCH = SCHEME == scheme_tree ? THREADS : WARPS;
template <class P> static __device__ __forceinline__ P reduce_team(P p, P* scratch) {
    const int thread = threadIdx.x % THREADS, team = threadIdx.x / THREADS;
    P* const mine = scratch + team * SCRATCH;
    if constexpr (SCHEME == scheme_tree) {
        mine[thread] = p;
        __syncthreads();
#pragma unroll
        for (int distance = THREADS / 2; distance > 0; distance /= 2) {
            if (thread < distance) {
                combine(p, mine[thread + distance]);
                mine[thread] = p;
            }
            __syncthreads();
        }
        return fetched(mine);
    } else if constexpr (WARPS > 1) {
        p = reduce_lanes<32>(p);
        const int lane = thread % 32;
        if (lane == 0) mine[thread / 32] = p;
        __syncthreads();
        P q;
        set_identity(q);
        if (lane < WARPS) q = fetched(mine + lane);
        return reduce_lanes<WARPS>(q);
    } else if constexpr (THREADS < 32) {
        // Several teams share a warp.
#pragma unroll
        for (int mask = THREADS / 2; mask > 0; mask /= 2) combine(p, shuffled(p, mask));
        return lane_copy(p, (int)(threadIdx.x % 32) / THREADS * THREADS);
    } else {
        return reduce_lanes<32>(p);
    }
}
//% endmacro
//% macro readers(loads, stores)
//% for load in loads
    constexpr Hint ${load.var}_hint = ${load.hint};
//% if load.kind == "unit"
    const ${load.storage}* const ${load.var}_row = ${load.buffer} + (${load.base});
    const auto ${load.var}_read = [&](Index position) { return to_compute(load_one<${load.var}_hint>(${load.var}_row + position)); };
    const auto ${load.var}_from = [&](Index position) { return ${load.var}_row + position; };
//% else
    const auto ${load.var}_read = [&](Index position) {
        ${load.decode | indent(8)}
        return ${load.text};
    };
//% if load.kind == "blocked"
    const auto ${load.var}_from = [&](Index position) {
        ${load.decode | indent(8)}
        return ${load.buffer} + (${load.address});
    };
//% endif
//% endif
    const auto ${load.var}_take = [&](Index position, ${load.ctype} (&values)[VECTOR]) {
//% if load.kind != "gather"
        if constexpr (VECTOR > 1 && VECTOR <= ${load.widest}) {
            const auto pack = load_pack<${load.var}_hint, VECTOR>(${load.var}_from(position));
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = to_compute(pack.v[j]);
        } else
//% elif load.same > 1
        if constexpr (VECTOR > 1 && VECTOR <= ${load.same}) {
            const ${load.ctype} value = ${load.var}_read(position);
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = value;
        } else
//% endif
        {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = ${load.var}_read(position + j);
        }
    };
//% endfor
//% for store in stores
//% if store.kind == "unit"
    ${store.storage}* const ${store.name}_row = ${store.buffer} + (${store.base});
    const auto ${store.name}_at = [&](Index position) { return ${store.name}_row + position; };
//% else
    const auto ${store.name}_at = [&](Index position) {
        ${store.decode | indent(8)}
        return ${store.buffer} + (${store.address});
    };
//% endif
    const auto ${store.name}_write = [&](Index position, ${store.ctype} value) {
        store_one<CACHE_HINT>(${store.name}_at(position), Storage<${store.storage}>::of(value));
    };
    const auto ${store.name}_put = [&](Index position, const ${store.ctype} (&values)[VECTOR]) {
//% if store.kind != "gather"
        if constexpr (VECTOR > 1 && VECTOR <= ${store.widest}) {
            Pack<${store.storage}, VECTOR> pack;
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) pack.v[j] = Storage<${store.storage}>::of(values[j]);
            store_pack<CACHE_HINT>(${store.name}_at(position), pack);
        } else
//% endif
        {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) ${store.name}_write(position + j, values[j]);
        }
    };
//% endfor
//% endmacro
//% macro walk(sweep, partial, backward=none, held=none)
//% set inside = "u < " ~ held ~ " || vector < vector_count" if held else "vector < vector_count"
//% if held
// One group is all that a thread owns, and of `${held}` vectors nothing has to be asked.
{
    const Index start = first_vector;
//% elif backward
// Either way a thread meets the same vectors.
const Index laps = first_vector < vector_count ? (vector_count - first_vector - 1) / (VECTOR_STRIDE * GROUP) + 1 : 0;
for (Index lap = 0; lap < laps; ++lap) {
    const Index start = first_vector + (${backward} ? laps - 1 - lap : lap) * VECTOR_STRIDE * GROUP;
//% else
for (Index start = first_vector; start < vector_count; start += VECTOR_STRIDE * GROUP) {
//% endif
//% for load in sweep.loads
    ${load.ctype} ${load.var}_now[GROUP][VECTOR];
//% endfor
#pragma unroll
    for (int u = 0; u < GROUP; ++u) {
        const Index vector = start + u * VECTOR_STRIDE;
        if (${inside}) {
            const Index position = head + (vector_offset + vector) * VECTOR;
//% for load in sweep.loads
//% if load.mode == "single"
            if constexpr (!IN_REGISTERS) ${load.var}_take(position, ${load.var}_now[u]);
//% elif load.mode == "first"
            ${load.var}_take(position, ${load.var}_now[u]);
//% else
            if constexpr (RESIDENT) ${load.var}_recall(u, vector, ${load.var}_now[u]);
            else ${load.var}_take(position, ${load.var}_now[u]);
//% endif
//% endfor
        }
    }
#pragma unroll
    for (int u = 0; u < GROUP; ++u) {
        const Index vector = start + u * VECTOR_STRIDE;
        if (${inside}) {
            const Index position = head + (vector_offset + vector) * VECTOR;
//% for load in sweep.loads if load.mode != "later"
//% if load.mode == "single"
            if constexpr (IN_REGISTERS) ${load.var}_take(position, ${load.var}_now[u]);
//% else
            if constexpr (RESIDENT) ${load.var}_keep(u, vector, ${load.var}_now[u]);
//% endif
//% endfor
//% for store in sweep.stores
            ${store.ctype} ${store.name}_now[VECTOR];
//% endfor
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
//% if partial
                ${sweep.operand_declarations}
                ${sweep.visit}(position + j${sweep.arguments}${sweep.operand_arguments});
                accumulate(parts[(u * VECTOR + j) % ACCUMULATORS]${sweep.operand_arguments}, position + j);
//% else
                ${sweep.visit}(position + j${sweep.arguments}${sweep.results});
//% endif
            }
//% for store in sweep.stores
            ${store.name}_put(position, ${store.name}_now);
//% endfor
        }
    }
}
if constexpr (${"EDGES" if held else "VECTOR > 1"}) {
    for (Index extra = first_edge; extra < edge_count; extra += EDGE_STRIDE) {
        const Index edge = extra < head ? extra : extra + edge_shift;
//% for load in sweep.loads
        ${load.ctype} ${load.var}_edge_now;
//% if load.mode == "later"
        if (extra == first_edge) ${load.var}_edge_now = ${load.var}_edge;
        else ${load.var}_edge_now = ${load.var}_read(edge);
//% else
        ${load.var}_edge_now = ${load.var}_read(edge);
//% if load.mode == "first"
        if (extra == first_edge) ${load.var}_edge = ${load.var}_edge_now;
//% endif
//% endif
//% endfor
//% for store in sweep.stores
        ${store.ctype} ${store.name}_edge;
//% endfor
//% if partial
        ${sweep.operand_declarations}
        ${sweep.visit}(edge${sweep.edge_arguments}${sweep.operand_arguments});
        accumulate(parts[0]${sweep.operand_arguments}, edge);
//% else
        ${sweep.visit}(edge${sweep.edge_arguments}${sweep.edge_results});
//% endif
//% for store in sweep.stores
        ${store.name}_write(edge, ${store.name}_edge);
//% endfor
    }
}
//% endmacro
//% macro gather_partial(sweep, partial, backward=none, held=none)
${partial} parts[ACCUMULATORS];
#pragma unroll
for (int a = 0; a < ACCUMULATORS; ++a) set_identity(parts[a]);
${walk(sweep, partial, backward, held)}
#pragma unroll
for (int a = 1; a < ACCUMULATORS; ++a) combine(parts[0], parts[a]);
//% endmacro
//% macro row_extent()
// Vectors start at the first aligned element; what lies before and after is left to edge threads, and so is the
// whole row if some buffer does not start on a vector boundary.
const bool aligned_buffers = ${alignment};
const Index peel = ${head};
const Index head = aligned_buffers ? peel : SIZE;
const Index row_vectors = (SIZE - head) / VECTOR;
const Index edge_shift = row_vectors * VECTOR;
const Index edge_count = SIZE - edge_shift;
//% endmacro
//% macro grid_walk()
    ${row_extent() | indent(4)}
    // The grid's blocks take vectors in turn.
    const Index vector_count = row_vectors;
    const Index vector_offset = 0;
    const Index VECTOR_STRIDE = (Index)gridDim.x * THREADS, EDGE_STRIDE = VECTOR_STRIDE;
    const Index first_vector = (Index)blockIdx.x * THREADS + threadIdx.x, first_edge = first_vector;
//% endmacro
