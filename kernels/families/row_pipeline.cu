// Long rows, one after another: a block (or a cluster) holds its present row in registers while its next ones are on
// their way into shared memory, so that reading goes on while it reduces, waits for its peers and writes.
${prelude}
enum Scheme : int { scheme_shuffle, scheme_tree };
enum Copies : int { copies_async, copies_bulk };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};  // along a row
using Row = ${row_index};
constexpr Index SIZE = ${size};
constexpr Row KEPT = ${kept};
constexpr Scheme SCHEME = scheme_shuffle;
constexpr bool RESIDENT = true, IN_REGISTERS = true;
constexpr Index SLICE = (SIZE / VECTOR + CLUSTER - 1) / CLUSTER;  // vectors of a row that one block owns
constexpr int STEPS = SLICE > THREADS ? (int)((SLICE + THREADS - 1) / THREADS) : 1;  // vectors that one thread owns
constexpr int GROUP = STEPS;
constexpr int VECTOR_STRIDE = THREADS;
// Vectors that every thread owns of every row, whatever its peel; the last block's slice is the shortest.
constexpr Index LEAST = (SIZE - (VECTOR <= ${aligned} ? 0 : VECTOR - 1)) / VECTOR - (CLUSTER - 1) * SLICE;
constexpr int CERTAIN = LEAST > 0 ? (int)(LEAST / THREADS) : 0;

//% for load in streamed
// A bulk copy takes multiples of 16 bytes of one run; a thread's own copy 4, 8 or 16 bytes.
constexpr int ${load.var}_width = VECTOR * (int)sizeof(${load.storage});
constexpr bool ${load.var}_streamed =
    VECTOR <= ${load.widest} && (COPIES == copies_bulk ? ${"true" if load.kind == "unit" else "false"} && ${load.var}_width % 16 == 0
                                          : ${load.var}_width >= 4 && ${load.var}_width <= 16);
constexpr int ${load.var}_area = ${load.var}_streamed ? ((int)SLICE * ${load.var}_width + 15) / 16 * 16 : 0;  // bytes of a stage
//% endfor
constexpr int STAGE_BYTES = ${areas};

${reducers()}
${partial_types(sweeps)}
${team_reduce()}
${cluster_peers()}
// Static shared memory. Of partials there are two rows' in turn: between the last read of one and the next write there
// is the combination of the row between.
struct Meeting {
//% for sweep in sweeps
    ${sweep.partial} scratch${loop.index0}[2][SCRATCH], slot${loop.index0}[2];
//% endfor
    unsigned long long arrived[STAGES];
};
template <int BYTES> static __device__ __forceinline__ void copy_async(void* to, const void* from) {
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(target), "l"(from), "n"(BYTES) : "memory");
}
//% if bulk
static __device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, unsigned long long* arrived) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes),
                    "r"((unsigned int)__cvta_generic_to_shared(arrived)) : "memory");
}
static __device__ __forceinline__ void open_barrier(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"((unsigned int)__cvta_generic_to_shared(barrier)) : "memory");
}
static __device__ __forceinline__ void expect_bytes(unsigned long long* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"((unsigned int)__cvta_generic_to_shared(barrier)), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void wait_for(unsigned long long* barrier, int parity) {
    int done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"((unsigned int)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
    } while (!done);
}
//% endif
//% macro slice_extent()
    ${row_extent() | indent(4)}
    const Index vector_offset = (Index)rank * SLICE;
    const Index left = row_vectors - vector_offset;
    const Index vector_count = !ALIGNED || left < 0 ? 0 : left < SLICE ? left : SLICE;
    const Index first_vector = thread;
//% endmacro

template <bool ALIGNED> static __device__ __forceinline__ void pipeline(${signature}, Meeting& meeting) {
    constexpr int SURE = ALIGNED ? CERTAIN : 0;
    constexpr bool EDGES = VECTOR > 1 && !(ALIGNED && VECTOR <= ${aligned} && SIZE % VECTOR == 0);
    const int thread = threadIdx.x % THREADS;
    const unsigned int rank = CLUSTER > 1 ? cluster_rank() : 0;
    const Row first_row = (Row)(blockIdx.x / CLUSTER) * TURNS;
    const int turns = KEPT % TURNS && KEPT - first_row < TURNS ? (int)(KEPT - first_row) : TURNS;
    constexpr int EDGE_STRIDE = CLUSTER * THREADS;
    const Index first_edge = (Index)rank * THREADS + thread;
    extern __shared__ __align__(128) unsigned char stages[];
//% if bulk
    unsigned long long* const arrived = meeting.arrived;
    if constexpr (COPIES == copies_bulk) {
        if (thread == 0) {
#pragma unroll
            for (int stage = 0; stage < STAGES; ++stage) open_barrier(arrived + stage);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }
//% endif
    // Starts the copies of a row's slice into the stage that its turn is due.
    const auto request = [&](int turn) {
        if (turn < turns) {
            const Row row = first_row + turn;
            ${decode_kept | indent(12)}
${readers(streamed, []) | indent(8)}
${slice_extent() | indent(8)}
            unsigned char* const stage = stages + turn % STAGES * STAGE_BYTES;
//% if bulk
            if constexpr (COPIES == copies_bulk) {
                if (thread == 0) {
                    // The stage was read by plain accesses before the barrier that lies behind.
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    expect_bytes(arrived + turn % STAGES, (int)vector_count * (${widths}));
                    if (vector_count > 0) {
//% for load in streamed if load.kind == "unit"
                        if constexpr (${load.var}_streamed)
                            copy_bulk(stage + ${load.before}, ${load.var}_from(head + vector_offset * VECTOR),
                                      (int)vector_count * ${load.var}_width, arrived + turn % STAGES);
//% endfor
                    }
                }
            } else
//% endif
            {
#pragma unroll
                for (int u = 0; u < STEPS; ++u) {
                    const Index vector = first_vector + u * THREADS;
                    if (u < SURE || vector < vector_count) {
//% for load in streamed
                        if constexpr (${load.var}_streamed)
                            copy_async<${load.var}_width>(stage + ${load.before} + (int)vector * ${load.var}_width,
                                                ${load.var}_from(head + (vector_offset + vector) * VECTOR));
//% endfor
                    }
                }
            }
        }
        // A group for every turn, if an empty one, so that the oldest of STAGES is the present row's.
        if constexpr (COPIES == copies_async) asm volatile("cp.async.commit_group;" ::: "memory");
    };
//% for load in resident
    ${load.ctype} ${load.var}_ahead = 0;
//% endfor
    // What lies outside of the vectors a thread reads itself, a turn ahead.
    const auto look_ahead = [&](int turn) {
        if (EDGES && turn < turns) {
            const Row row = first_row + turn;
            ${decode_kept | indent(12)}
${readers(resident, []) | indent(8)}
            ${row_extent() | indent(12)}
            if (first_edge < edge_count) {
                const Index edge = first_edge < head ? first_edge : first_edge + edge_shift;
//% for load in resident
                ${load.var}_ahead = ${load.var}_read(edge);
//% endfor
            }
        }
    };
#pragma unroll
    for (int turn = 0; turn < STAGES; ++turn) request(turn);
    look_ahead(0);
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
        const Row row = first_row + turn;
        ${decode_kept | indent(8)}
        ${setup | indent(8)}
${readers(loads, stores) | indent(4)}
${slice_extent() | indent(4)}
//% for load in resident
        ${load.ctype} ${load.var}_kept[STEPS][VECTOR];
        const ${load.ctype} ${load.var}_edge = ${load.var}_ahead;
        const auto ${load.var}_recall = [&](int u, Index, ${load.ctype} (&values)[VECTOR]) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = ${load.var}_kept[u][j];
        };
//% endfor
        const unsigned char* const stage = stages + turn % STAGES * STAGE_BYTES;
//% if bulk
        if constexpr (COPIES == copies_bulk) wait_for(arrived + turn % STAGES, turn / STAGES % 2);
        else
//% endif
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 1) : "memory");
#pragma unroll
        for (int u = 0; u < STEPS; ++u) {
            const Index vector = first_vector + u * THREADS;
            if (u < SURE || vector < vector_count) {
//% for load in resident
//% if load.streams
                if constexpr (${load.var}_streamed) {
                    const auto pack = load_pack<hint_default, VECTOR>(
                        reinterpret_cast<const ${load.storage}*>(stage + ${load.before} + (int)vector * ${load.var}_width));
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j) ${load.var}_kept[u][j] = to_compute(pack.v[j]);
                } else
//% endif
                ${load.var}_take(head + (vector_offset + vector) * VECTOR, ${load.var}_kept[u]);
//% endfor
            }
        }
        // Bulk copies are one thread's for all; otherwise a thread fills again what it has read itself.
        if constexpr (COPIES == copies_bulk) __syncthreads();
        request(turn + STAGES);
        look_ahead(turn + 1);

//% for sweep in sweeps
        const auto ${sweep.visit} = [&](Index position${sweep.parameters}${sweep.operand_outputs}) {
            ${sweep.decode | indent(12)}
            //@slot ${sweep.slot}
            ${sweep.operand_assign | indent(12)}
        };
        ${sweep.declared}
        {
            ${gather_partial(sweep, sweep.partial, held="SURE") | indent(12)}
            const ${sweep.partial} folded_ = reduce_row(
                parts[0], meeting.scratch${loop.index0}[turn % 2], meeting.slot${loop.index0} + turn % 2);
            ${sweep.assign | indent(12)}
        }
        //@slot ${sweep.finish_slot}
//% endfor
//% if kept_stores
        if (rank == 0 && thread == 0) {
//% for line in kept_stores
            ${line}
//% endfor
        }
//% endif
//% if post
        const auto ${post.visit} = [&](Index position${post.parameters}${post.outputs}) {
            ${post.decode | indent(12)}
            //@slot ${post.slot}
//% for store in post.stores
            ${store.name} = ${store.var};
//% endfor
        };
        ${walk(post, none, held="SURE") | indent(8)}
//% endif
    }
    if constexpr (CLUSTER > 1) {
        // No block may end while a peer still reads its partial.
        cluster_arrive();
        cluster_wait();
    }
}

extern "C" __global__ void ${cluster_attribute}__launch_bounds__(THREADS, PER_SM)
row_pipeline(${signature}) {
    // Two copies of the code: in the first, full vectors are certain; the other is for buffers that start off a vector.
    __shared__ Meeting meeting;
    if (${buffers_aligned}) pipeline<true>(${arguments}, meeting);
    else pipeline<false>(${arguments}, meeting);
}
