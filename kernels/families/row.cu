// Rows of a reduce-map: a team of threads (or a cluster of blocks) owns one row and keeps it on chip where it fits.
${prelude}
enum Residency : int { residency_registers, residency_shared, residency_reread };
enum Scheme : int { scheme_shuffle, scheme_tree };
enum Passes : int { passes_online, passes_rounds };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};  // along a row
using Row = ${row_index};
constexpr Index SIZE = ${size};
constexpr Row KEPT = ${kept};
constexpr bool RESIDENT = RESIDENCY != residency_reread;
constexpr bool IN_REGISTERS = RESIDENCY == residency_registers;
constexpr Index SLICE = (SIZE / VECTOR + CLUSTER - 1) / CLUSTER;  // vectors of a row that one block owns
constexpr Index STEPS = SLICE > THREADS ? (SLICE + THREADS - 1) / THREADS : 1;  // vectors that one thread owns
constexpr int GROUP = IN_REGISTERS ? (int)STEPS : UNROLL;
constexpr int KEPT_GROUP = IN_REGISTERS ? (int)STEPS : 1;
constexpr int VECTOR_STRIDE = THREADS;

${reducers()}
${partial_types(sweeps)}
//% if fused
${partial_types([fused])}
//% endif
${team_reduce()}
${cluster_peers()}

extern "C" __global__ void ${cluster_attribute}__launch_bounds__(THREADS * ROWS)
row_reduce(${signature}) {
    const int thread = threadIdx.x % THREADS, team = threadIdx.x / THREADS;
    const unsigned int rank = CLUSTER > 1 ? cluster_rank() : 0;
    const Row wanted = (Row)(blockIdx.x / CLUSTER) * ROWS + team;
    const bool live = wanted < KEPT;
    const Row row = live ? wanted : KEPT - 1;
    ${decode_kept | indent(4)}
    ${setup | indent(4)}
${readers(loads, stores)}
    ${row_extent() | indent(4)}
    const Index vector_offset = (Index)rank * SLICE;
    const Index left = row_vectors - vector_offset;
    const Index vector_count = !live || left < 0 ? 0 : left < SLICE ? left : SLICE;
    const Index first_vector = thread;
    constexpr int EDGE_STRIDE = CLUSTER * THREADS;
    const Index first_edge = live ? (Index)rank * THREADS + thread : SIZE;

//% if resident
    extern __shared__ __align__(16) unsigned char slices[];
//% for load in resident
    constexpr int ${load.var}_bytes = ((int)SLICE * VECTOR * (int)sizeof(${load.ctype}) + 15) / 16 * 16;
    ${load.ctype} ${load.var}_kept[KEPT_GROUP][VECTOR];
    ${load.ctype} ${load.var}_edge = 0;
    ${load.ctype}* const ${load.var}_shared = reinterpret_cast<${load.ctype}*>(slices + (${load.before}) * ROWS + team * ${load.var}_bytes);
    const auto ${load.var}_keep = [&](int u, Index vector, const ${load.ctype} (&values)[VECTOR]) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) ${load.var}_kept[u][j] = values[j];
        } else {
            Pack<${load.ctype}, VECTOR> pack;
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) pack.v[j] = values[j];
            store_pack<hint_default>(${load.var}_shared + vector * VECTOR, pack);
        }
    };
    const auto ${load.var}_recall = [&](int u, Index vector, ${load.ctype} (&values)[VECTOR]) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = ${load.var}_kept[u][j];
        } else {
            const auto pack = load_pack<hint_default, VECTOR>(${load.var}_shared + vector * VECTOR);
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) values[j] = pack.v[j];
        }
    };
//% endfor
//% endif

//% for sweep in sweeps
    const auto ${sweep.visit} = [&](Index position${sweep.parameters}${sweep.operand_outputs}) {
        ${sweep.decode | indent(8)}
        //@slot ${sweep.slot}
        ${sweep.operand_assign | indent(8)}
    };
    ${sweep.declared}
//% if fused and loop.index0 == 0
    if constexpr (PASSES == passes_online) {
        ${gather_partial(sweep, fused.partial) | indent(8)}
        __shared__ ${fused.partial} scratch[ROWS * SCRATCH], slot;
        const ${fused.partial} folded_ = reduce_row(parts[0], scratch, &slot);
        ${fused.assign | indent(8)}
    } else {
//% elif fused and loop.index0 == 1
    if constexpr (PASSES != passes_online) {
//% else
    {
//% endif
        ${gather_partial(sweep, sweep.partial) | indent(8)}
        __shared__ ${sweep.partial} scratch[ROWS * SCRATCH], slot;
        const ${sweep.partial} folded_ = reduce_row(parts[0], scratch, &slot);
        ${sweep.assign | indent(8)}
    }
    //@slot ${sweep.finish_slot}
//% endfor
    if (CLUSTER > 1) cluster_arrive();
//% if kept_stores
    if (live && rank == 0 && thread == 0) {
//% for line in kept_stores
        ${line}
//% endfor
    }
//% endif
//% if post
    const auto ${post.visit} = [&](Index position${post.parameters}${post.outputs}) {
        ${post.decode | indent(8)}
        //@slot ${post.slot}
//% for store in post.stores
        ${store.name} = ${store.var};
//% endfor
    };
    ${walk(post, none) | indent(4)}
//% endif
    // No block may end while a peer still reads its partial.
    if (CLUSTER > 1) cluster_wait();
}
