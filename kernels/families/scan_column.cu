// scan_column: running results along an axis that is not innermost; a thread owns VECTOR neighbouring columns (${operators}).
${prelude}
enum Prefetch : int { prefetch_none, prefetch_next };
//@choices

using Index = ${index};
using Value = ${ctype};
constexpr Index SIZE = ${size};
constexpr Index OPERANDS = ${operands};  // positions that have an operand
constexpr Index KEPT = ${kept};
constexpr bool EXCLUSIVE = ${exclusive};
constexpr int LANES = BLOCK / SPLIT;     // vectors of columns of one block; SPLIT threads share each
constexpr int STEP = SPLIT * UNROLL;     // positions of a tile
static __device__ __forceinline__ Value identity() { return Value(${identity}); }
static __device__ __forceinline__ Value combine(Value a, Value b) { return a ${operator} b; }

extern "C" __global__ void __launch_bounds__(BLOCK, 1) ${kernel}(${signature}) {
    __shared__ Value totals[2][SPLIT > 1 ? SPLIT * VECTOR * LANES : 1];
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES;
    const long long wanted = ((long long)blockIdx.x * LANES + lane) * VECTOR;
    const bool active = wanted < KEPT;
    const Index column = active ? (Index)wanted : 0;
//% for line in constants
    ${line}
//% endfor
//% for one in accesses
    const auto ${one.name}_at = [&](Index point, Index s0) {
        ${one.decode | indent(8)}
        return ${one.buffer} + (${one.address});
    };
    const bool ${one.name}_wide = VECTOR > 1 && VECTOR <= ${one.width} && aligned<VECTOR>(${one.buffer});
//% endfor
//% for load in loads
    const auto ${load.name}_take = [&](Index s0, Pack<${load.held}, VECTOR>& pack) {
        if (!active || s0 >= ${load.limit}) return;
        if (${load.name}_wide) {
            pack = load_pack<${load.hint}, VECTOR>(${load.name}_at(column, s0));
            return;
        }
#pragma unroll
        for (int j = 0; j < VECTOR; ++j)
            if (column + j < KEPT) pack.v[j] = load_one<${load.hint}>(${load.name}_at(column + j, s0));
    };
    Pack<${load.held}, VECTOR> ${load.name}_now[UNROLL] = {}, ${load.name}_next[PREFETCH == prefetch_next ? UNROLL : 1] = {};
//% endfor
//% for store in stores
    const auto ${store.name}_put = [&](Index s0, const Pack<${store.storage}, VECTOR>& pack) {
        if (!active || s0 >= SIZE) return;
        if (${store.name}_wide) {
            store_pack<CACHE_HINT>(${store.name}_at(column, s0), pack);
            return;
        }
#pragma unroll
        for (int j = 0; j < VECTOR; ++j)
            if (column + j < KEPT) store_one<CACHE_HINT>(${store.name}_at(column + j, s0), pack.v[j]);
    };
//% endfor
    const auto operand_at = [&](Index point, Index s0${operand_parameters}) -> Value {
        ${decode_kept | indent(8)}
        //@slot load_transform
        return ${operand};
    };
    const auto finish_at = [&](Index point, Index s0${finish_parameters}, const Value ${running}${outputs}) {
        ${decode_kept | indent(8)}
        //@slot post
//% for store in stores
        ${store.name} = ${store.var};
//% endfor
    };

    if constexpr (PREFETCH == prefetch_next) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
//% for load in loads
            ${load.name}_take((Index)(part * UNROLL + u), ${load.name}_next[u]);
//% endfor
        }
    }
    Value carry[VECTOR];
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) carry[j] = identity();
    int turn = 0;
#pragma unroll 1
    for (Index tile = 0; tile < SIZE; tile += STEP, turn ^= 1) {
        const Index first = tile + part * UNROLL;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if constexpr (PREFETCH == prefetch_next) {
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) {
//% for load in loads
                    ${load.name}_now[u].v[j] = ${load.name}_next[u].v[j];
//% endfor
                }
//% for load in loads
                ${load.name}_take(first + STEP + u, ${load.name}_next[u]);
//% endfor
            } else {
//% for load in loads
                ${load.name}_take(first + u, ${load.name}_now[u]);
//% endfor
            }
        }
        Value running_now[UNROLL][VECTOR], sum[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
            sum[j] = identity();
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const Value own = first + u < OPERANDS ? operand_at(column + j, first + u${operand_arguments}) : identity();
                const Value after = combine(sum[j], own);
                running_now[u][j] = EXCLUSIVE ? sum[j] : after;
                sum[j] = after;
            }
        }
        Value before[VECTOR];
        if constexpr (SPLIT > 1) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) totals[turn][(part * VECTOR + j) * LANES + lane] = sum[j];
            __syncthreads();
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                before[j] = carry[j];
#pragma unroll
                for (int p = 0; p < SPLIT; ++p) {
                    const Value other = totals[turn][(p * VECTOR + j) * LANES + lane];
                    if (p == part) before[j] = carry[j];
                    carry[j] = combine(carry[j], other);
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                before[j] = carry[j];
                carry[j] = combine(carry[j], sum[j]);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
//% for store in stores
            Pack<${store.storage}, VECTOR> ${store.name}_pack;
//% endfor
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
//% for store in stores
                ${store.ctype} ${store.name};
//% endfor
                finish_at(column + j, first + u${finish_arguments}, combine(before[j], running_now[u][j])${results});
//% for store in stores
                ${store.name}_pack.v[j] = Storage<${store.storage}>::of(${store.name});
//% endfor
            }
//% for store in stores
            ${store.name}_put(first + u, ${store.name}_pack);
//% endfor
        }
    }
}
