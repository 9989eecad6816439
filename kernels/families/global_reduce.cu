// A few long rows: all blocks of the grid share each row; every round ends in a fixed-order sum of their partials.
${prelude}
enum Scheme : int { scheme_shuffle, scheme_tree };
enum Finish : int { finish_last_block, finish_two_kernel };
enum RowsInFlight : int { rowsinflight_all, rowsinflight_cached };
enum Passes : int { passes_online, passes_rounds };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};  // along a row
using Row = ${row_index};
constexpr Index SIZE = ${size};
constexpr int THREADS = BLOCK;
constexpr int GROUP = UNROLL;
constexpr Scheme SCHEME = scheme_shuffle;
constexpr bool RESIDENT = false, IN_REGISTERS = false;

${reducers()}
${round_types()}
${team_reduce()}
${grid_partials()}
${row_state([])}

//% for sweep in sweeps
//% set number = loop.index0
// Round ${number}.
static __device__ __forceinline__ Round${number} gather${number}(${signature}, const State& state_) {
    const Row row = state_.row;
    ${decode_kept | indent(4)}
//% for value in sweep.known
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
${readers(sweep.readings, [])}
${grid_walk()}
    const auto ${sweep.visit} = [&](Index position${sweep.parameters}${sweep.operand_outputs}) {
        ${sweep.decode | indent(8)}
        //@slot ${sweep.slot}
        ${sweep.operand_assign | indent(8)}
    };
    ${gather_partial(sweep, "Round" ~ number) | indent(4)}
    return parts[0];
}
static __device__ __forceinline__ void close${number}(${signature}, State& state_, const Round${number}& folded_) {
    unpack(state_, folded_);
//% for var in sweep.saved
    saved_${var}[state_.row] = state_.${var};
//% endfor
//% if fused and number == 0
    if constexpr (BOTH) {
//% for var in sweep.saved_both
        saved_${var}[state_.row] = state_.${var};
//% endfor
//% if sweeps | length == 2
        finish_row0(state_);
        finish_row1(state_);
        store_row(${arguments}, state_);
//% endif
    }
//% endif
//% if loop.last
    finish_row${number}(state_);
    store_row(${arguments}, state_);
//% endif
}
static __device__ __forceinline__ void recall${number}(${signature}, State& state_, Row row) {
    open_row(${arguments}, state_, row);
//% for earlier in sweeps[:number]
//% for var in earlier.results_vars
    state_.${var} = saved_${var}[row];
//% endfor
    finish_row${loop.index0}(state_);
//% endfor
}
extern "C" __global__ void __launch_bounds__(BLOCK) reduce_round${number}(${signature}) {
//% if fused and number == 1
    if constexpr (BOTH) return;
//% endif
    __shared__ Round${number} scratch[SCRATCH], final_scratch[SCRATCH];
    __shared__ bool last;
    Round${number}* const row_partials = reinterpret_cast<Round${number}*>(partials) + (long long)blockIdx.y * gridDim.x;
    State state_;
    recall${number}(${arguments}, state_, first_row + (Row)blockIdx.y);
    const Round${number} mine = reduce_team(gather${number}(${arguments}, state_), scratch);
    if (threadIdx.x == 0) row_partials[blockIdx.x] = mine;
    if constexpr (FINISH == finish_last_block) {
        if (threadIdx.x == 0) {
            __threadfence();
            last = atomicAdd(counters + blockIdx.y, 1) == (int)gridDim.x - 1;
        }
        __syncthreads();
        if (!last) return;
        __threadfence();
        const Round${number} folded_ = sum_partials(row_partials, gridDim.x, final_scratch);
        if (threadIdx.x == 0) {
            counters[blockIdx.y] = 0;  // ready for the next launch
            close${number}(${arguments}, state_, folded_);
        }
    }
}
extern "C" __global__ void __launch_bounds__(BLOCK) finish_round${number}(${signature}, int count) {
    if constexpr (FINISH == finish_two_kernel) {
        __shared__ Round${number} scratch[SCRATCH];
        const Round${number}* const row_partials = reinterpret_cast<Round${number}*>(partials) + (long long)blockIdx.x * count;
        const Round${number} folded_ = sum_partials(row_partials, count, scratch);
        if (threadIdx.x == 0) {
            State state_;
            recall${number}(${arguments}, state_, first_row + (Row)blockIdx.x);
            close${number}(${arguments}, state_, folded_);
        }
    }
}
//% endfor
//% if post
extern "C" __global__ void __launch_bounds__(BLOCK) write_points(${signature}) {
    State state_;
    const Row row = first_row + (Row)blockIdx.y;
    open_row(${arguments}, state_, row);
//% for earlier in sweeps
//% for var in earlier.results_vars
    state_.${var} = saved_${var}[row];
//% endfor
//% endfor
//% for earlier in sweeps
    finish_row${loop.index0}(state_);
//% endfor
    ${decode_kept | indent(4)}
//% for value in kept_values
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
${readers(post.readings, stores)}
${grid_walk()}
    const auto ${post.visit} = [&](Index position${post.parameters}${post.outputs}) {
        ${post.decode | indent(8)}
        //@slot ${post.slot}
//% for store in post.stores
        ${store.name} = ${store.var};
//% endfor
    };
    ${walk(post, none) | indent(4)}
}
//% endif
