// Long rows, few at a time: teams of blocks, all resident, share a row each and tell each other their partials through
// memory. A row is swept again while a cache or the blocks themselves still hold it.
${prelude}
enum Scheme : int { scheme_shuffle, scheme_tree };
enum Residency : int { residency_cached, residency_shared };
enum Overlap : int { overlap_none, overlap_rows };
enum Order : int { order_forward, order_backward };
enum Passes : int { passes_online, passes_rounds };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};  // along a row
using Row = ${row_index};
constexpr Index SIZE = ${size};
constexpr Row KEPT = ${kept};
constexpr int THREADS = BLOCK;
constexpr int GROUP = UNROLL;
constexpr int VECTOR_STRIDE = THREADS;
constexpr Scheme SCHEME = scheme_shuffle;
constexpr bool RESIDENT = RESIDENCY == residency_shared, IN_REGISTERS = false;
constexpr bool BACKWARD = ORDER == order_backward;

${reducers()}
${round_types()}
constexpr int STAGES = ${sweeps | length} - (BOTH ? 1 : 0);  // sweeps that reduce
constexpr int LAG = OVERLAP == overlap_rows ? 1 : 0;  // turns by which each stage is behind the one before it
constexpr int HELD = LAG * STAGES + 1;  // rows of a team between their first sweep and their last
${team_reduce()}
${grid_partials()}
${row_state(edges)}

// A block's place: `team` of TEAMS, of which it is the `rank`-th of `blocks`.
struct Seat {
    int rank, team, blocks;
};
// Partials of a stage lie in a ring over turns. A block publishes a turn's only after it has seen all blocks publish
// those of two turns before, and so read those of four turns before.
constexpr int RING = 4;
constexpr int PARTIAL_BYTES = ${partial_bytes};
constexpr int POINT_BYTES = ${point_bytes};  // of what a block may keep of a point
constexpr int COUNTER_STRIDE = 32;  // a line of L2 each
template <class P>
static __device__ __forceinline__ P* ring(unsigned char* partials, const Seat& seat, int stage, Row turn) {
    static_assert(sizeof(P) <= PARTIAL_BYTES, "the plan's scratch has room for every partial");
    const long long row = (long long)(seat.team * STAGES + stage) * RING + (int)(turn % RING);
    return reinterpret_cast<P*>(partials + row * seat.blocks * PARTIAL_BYTES);
}
// Of each place in the ring its own: a block may publish its next turn's before others have published this one's.
static __device__ __forceinline__ int* counter(int* counters, const Seat& seat, int stage, Row turn) {
    return counters + (seat.team * STAGES + stage) * COUNTER_STRIDE + (int)(turn % RING);
}
template <int STAGE, class P>
static __device__ __forceinline__ void publish(unsigned char* partials, int* counters, const Seat& seat, Row turn, P mine) {
    __shared__ P scratch[SCRATCH];
    __syncthreads();  // the last turn's have been read
    mine = reduce_team(mine, scratch);
    if (threadIdx.x == 0) {
        ring<P>(partials, seat, STAGE, turn)[seat.rank] = mine;
        __threadfence();
        atomicAdd(counter(counters, seat, STAGE, turn), 1);
    }
}
// All blocks of a cooperative launch run, so those that are waited for come.
template <int STAGE, class P>
static __device__ __forceinline__ P collect(unsigned char* partials, int* counters, const Seat& seat, Row turn) {
    __shared__ P scratch[SCRATCH];
    if (threadIdx.x == 0) {
        const int all = ((int)(turn / RING) + 1) * seat.blocks;
        while (*(volatile int*)counter(counters, seat, STAGE, turn) < all) {}
        __threadfence();
    }
    __syncthreads();
    return sum_partials(ring<P>(partials, seat, STAGE, turn), seat.blocks, scratch);
}
//% macro slice_walk(sweep)
    ${row_extent() | indent(4)}
    const Index slice = (SIZE / VECTOR + seat.blocks - 1) / seat.blocks;  // vectors of a row that one block owns
    const Index vector_offset = (Index)seat.rank * slice;
    const Index left = row_vectors - vector_offset;
    const Index vector_count = left < 0 ? 0 : left < slice ? left : slice;
    const Index first_vector = threadIdx.x;
    const Index EDGE_STRIDE = (Index)seat.blocks * THREADS;
    const Index first_edge = (Index)seat.rank * THREADS + threadIdx.x;
//% for load in sweep.loads if load.mode != "single"
//% if loop.first
    extern __shared__ __align__(16) unsigned char slices[];
    const int padded = ((int)slice * VECTOR + 15) / 16 * 16;  // elements, so that each area is aligned
//% endif
    ${load.ctype}& ${load.var}_edge = state_.${load.var}_edge;
    ${load.ctype}* const ${load.var}_shared =
        reinterpret_cast<${load.ctype}*>(slices + padded * (turn % HELD * POINT_BYTES + ${load.before}));
//% if load.mode == "first"
    const auto ${load.var}_keep = [&](int, Index vector, const ${load.ctype} (&values)[VECTOR]) {
        Pack<${load.ctype}, VECTOR> pack;
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) pack.v[j] = values[j];
        store_pack<hint_default>(${load.var}_shared + vector * VECTOR, pack);
    };
//% else
    const auto ${load.var}_recall = [&](int, Index vector, ${load.ctype} (&values)[VECTOR]) {
        const auto pack = load_pack<hint_default, VECTOR>(${load.var}_shared + vector * VECTOR);
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) values[j] = pack.v[j];
    };
//% endif
//% endfor
//% endmacro

//% for sweep in sweeps
//% set number = loop.index0
// Round ${number}.
constexpr int STAGE${number} = ${number}${" - (BOTH ? 1 : 0)" if number else ""};
//% if number
constexpr bool BACKWARD_AT${number} = BACKWARD && STAGE${number} % 2 == 1;
//% endif
static __device__ __forceinline__ Round${number} gather${number}(${signature}, State& state_, const Seat& seat, Row turn) {
    const Row row = state_.row;
    ${decode_kept | indent(4)}
//% for value in sweep.known
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
${readers(sweep.readings, [])}
${slice_walk(sweep)}
    const auto ${sweep.visit} = [&](Index position${sweep.parameters}${sweep.operand_outputs}) {
        ${sweep.decode | indent(8)}
        //@slot ${sweep.slot}
        ${sweep.operand_assign | indent(8)}
    };
    ${gather_partial(sweep, "Round" ~ number, "BACKWARD_AT" ~ number if number else none) | indent(4)}
    return parts[0];
}
static __device__ __forceinline__ void learn${number}(unsigned char* partials, int* counters, State& state_, const Seat& seat, Row turn) {
    unpack(state_, collect<STAGE${number}, Round${number}>(partials, counters, seat, turn));
    finish_row${number}(state_);
//% if fused and number == 0
    if constexpr (BOTH) finish_row1(state_);
//% endif
}
//% endfor
//% if post
static __device__ __forceinline__ void write_points(${signature}, State& state_, const Seat& seat, Row turn) {
    const Row row = state_.row;
    ${decode_kept | indent(4)}
//% for value in kept_values
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
${readers(post.readings, stores)}
${slice_walk(post)}
    const auto ${post.visit} = [&](Index position${post.parameters}${post.outputs}) {
        ${post.decode | indent(8)}
        //@slot ${post.slot}
//% for store in post.stores
        ${store.name} = ${store.var};
//% endfor
    };
    ${walk(post, none, "(BACKWARD && STAGES % 2 == 1)") | indent(4)}
}
//% endif
//% set last = sweeps | length - 1
//% macro learn(number)
//% if fused and number == 1
            if constexpr (BOTH) learn0(partials, counters, now, seat, at);
            else learn1(partials, counters, now, seat, at);
//% else
            learn${number}(partials, counters, now, seat, at);
//% endif
//% endmacro

extern "C" __global__ void __launch_bounds__(BLOCK, GRID) slab_rows(${signature}) {
    const int blocks = (int)gridDim.x / TEAMS;
    const Seat seat = {(int)blockIdx.x % blocks, (int)blockIdx.x / blocks, blocks};
    const Row turns = seat.team < KEPT ? (KEPT - seat.team + TEAMS - 1) / TEAMS : 0;
//% for sweep in sweeps
    State after${loop.index0} = {};
//% endfor
    for (Row turn = 0; turn < turns + LAG * STAGES; ++turn) {
        // What is known of a row passes from stage to stage; with a lag, from turn to turn.
//% for number in range(last, -1, -1)
        const State before${number + 1} = after${number};
//% endfor
        if (turn < turns) {
            State now = {};
            open_row(${arguments}, now, (Row)seat.team + turn * TEAMS);
            publish<STAGE0>(partials, counters, seat, turn, gather0(${arguments}, now, seat, turn));
            after0 = now;
        }
//% for number in range(1, last + 1)
//% if fused and number == 1
        if constexpr (BOTH) {
            after1 = after0;
        } else
//% endif
        {
            const Row at = turn - LAG * STAGE${number};
            State now = LAG ? before${number} : after${number - 1};
            if (at >= 0 && at < turns) {
${learn(number - 1) | indent(4)}
                publish<STAGE${number}>(partials, counters, seat, at, gather${number}(${arguments}, now, seat, at));
            }
            after${number} = now;
        }
//% endfor
        const Row at = turn - LAG * STAGES;
        if (at >= 0) {
            State now = LAG ? before${last + 1} : after${last};
${learn(last)}
            if (seat.rank == 0 && threadIdx.x == 0) store_row(${arguments}, now);
//% if post
            write_points(${arguments}, now, seat, at);
//% endif
        }
    }
}
