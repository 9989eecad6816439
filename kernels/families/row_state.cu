//% macro round_types()
${partial_types(sweeps)}
//% if fused
${partial_types([fused])}
template <bool ONLINE> struct FirstRound { using Type = Partial0; };
template <> struct FirstRound<true> { using Type = Fused; };
using Round0 = FirstRound<PASSES == passes_online>::Type;
constexpr bool BOTH = PASSES == passes_online;  // the first sweep then does the first two rounds
//% else
using Round0 = Partial0;
constexpr bool BOTH = false;
//% endif
//% for sweep in sweeps[1:]
using Round${loop.index} = ${sweep.partial};
//% endfor
//% endmacro
//% macro grid_partials()
// Partials of other blocks are read past L1, which may hold what lay there before.
struct ReadPastL1 {
    template <typename T> __device__ __forceinline__ T operator()(const T* from) const { return __ldcg(from); }
};
template <class P> static __device__ __forceinline__ P read_partial(const P* from) {
    return fetched(from, ReadPastL1());
}
// Partials in a fixed order, so that a result does not depend on which block comes last.
template <class P> static __device__ __forceinline__ P sum_partials(const P* partials, int count, P* scratch) {
    P p;
    set_identity(p);
    for (int block = threadIdx.x; block < count; block += THREADS) combine(p, read_partial(partials + block));
    return reduce_team(p, scratch);
}
//% endmacro
//% macro row_state(members)
// What is known of one row.
struct State {
    Row row;
//% for value in kept_values
    ${value.ctype} ${value.var};
//% endfor
//% for member in members
    ${member.ctype} ${member.name};
//% endfor
};
static __device__ __forceinline__ void open_row(${signature}, State& state_, Row row) {
    ${decode_kept | indent(4)}
    ${setup | indent(4)}
    state_.row = row;
//% for var in setup_values
    state_.${var} = ${var};
//% endfor
}
//% for sweep in sweeps
static __device__ __forceinline__ void finish_row${loop.index0}(State& state_) {
    const Row row = state_.row;
    ${decode_kept | indent(4)}
//% for value in sweep.finish_inputs
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
    //@slot ${sweep.finish_slot}
//% for var in sweep.finish_outputs
    state_.${var} = ${var};
//% endfor
}
static __device__ __forceinline__ void unpack(State& state_, const ${sweep.partial}& folded_) {
//% for result in sweep.unpacked
    state_.${result.var} = ${result.text};
//% endfor
}
//% endfor
//% if fused
static __device__ __forceinline__ void unpack(State& state_, const Fused& folded_) {
//% for result in fused_unpacked
    state_.${result.var} = ${result.text};
//% endfor
}
//% endif
static __device__ __forceinline__ void store_row(${signature}, const State& state_) {
    const Row row = state_.row;
    ${decode_kept | indent(4)}
//% for value in kept_values
    const ${value.ctype} ${value.var} = state_.${value.var};
//% endfor
//% for line in kept_stores
    ${line}
//% endfor
}
//% endmacro
