// window: folds over windows of each plane (${operators}). LANES threads of a team compute outputs of the innermost
// dimension, each ROWS x SLICES of them in the outer two.
${prelude}
enum Path : int { path_direct, path_staged, path_columns };
enum Fold : int { fold_taps, fold_rows };
enum Writes : int { writes_own, writes_turned };
//@choices
//% for line in fixed
${line}
//% endfor

using Index = ${index};
using Value = float;
constexpr Index PLANES = ${kept};
//% for name, dim in dims
constexpr int OUT_${name} = ${dim.out}, IN_${name} = ${dim.extent}, TAPS_${name} = ${dim.taps};
constexpr int STRIDE_${name} = ${dim.stride}, PAD_${name} = ${dim.padding}, DIL_${name} = ${dim.dilation};
//% endfor

constexpr int TILE = LANES * ITEMS;  // outputs of a team along the innermost dimension
constexpr int GROUPS_D = (OUT_D + SLICES - 1) / SLICES, GROUPS_H = (OUT_H + ROWS - 1) / ROWS;
constexpr int GROUPS_W = (OUT_W + TILE - 1) / TILE;
constexpr Index UNITS = PLANES * GROUPS_D * GROUPS_H * GROUPS_W;
// Inputs between the first and the last tap of what a thread computes.
constexpr int SPAN_D = (SLICES - 1) * STRIDE_D + (TAPS_D - 1) * DIL_D + 1;
constexpr int SPAN_H = (ROWS - 1) * STRIDE_H + (TAPS_H - 1) * DIL_H + 1;
constexpr int COLUMNS = ((TILE - 1) * STRIDE_W + (TAPS_W - 1) * DIL_W + 2 * VECTOR - 1) / VECTOR * VECTOR;
constexpr bool PLAIN = ROWS == 1 && SLICES == 1;
// Whether no tap of an output lies outside: what is read beyond the edges belongs to outputs that nobody stores.
static __device__ constexpr bool within(int out, int extent, int taps, int stride, int pad, int dilation) {
    return pad == 0 && (out - 1) * stride + (taps - 1) * dilation < extent;
}
//% for name, dim in dims
constexpr bool WITHIN_${name} = within(OUT_${name}, IN_${name}, TAPS_${name}, STRIDE_${name}, PAD_${name}, DIL_${name});
//% endfor
static __device__ __forceinline__ int clamped(int at, int last) { return at < 0 ? 0 : at > last ? last : at; }
constexpr int READ = (PLAIN ? TAPS_D : SPAN_D) * (PLAIN ? TAPS_H : SPAN_H);
constexpr int TOGETHER = READ < 4 ? 4 / READ : 1;  // columns of a thread whose inputs are read at a time
static __device__ constexpr int few(int count) { return count < 1 ? 1 : count <= 16 ? count : 4; }

static __device__ __forceinline__ Value identity() { return ${identity}; }
static __device__ __forceinline__ Value combine(Value a, Value b) {
//% if kind == "max"
#if __CUDA_ARCH__ >= 800
    Value larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a > b || a != a ? a : b;
#endif
//% else
    return a + b;
//% endif
}
// Whether input `at` of a span is a tap of some of `count` outputs.
static __device__ __forceinline__ constexpr bool used(int at, int count, int stride, int taps, int dilation) {
    for (int t = 0; t < taps; ++t) {
        const int rest = at - t * dilation;
        if (rest >= 0 && rest % stride == 0 && rest / stride < count) return true;
    }
    return false;
}
// The fold of one output, and where its largest element stands.
struct Folded {
    Value value;
//% if placed_wanted
    int place;
//% endif
    __device__ __forceinline__ Folded() : value(identity())${", place(0x7fffffff)" if placed_wanted else ""} {}
    __device__ __forceinline__ void take(Value x, int at) {
//% if placed_wanted
        const bool beats = x > value || (x != x && value == value);
        const bool equal = x == value || (x != x && value != value);
        if (beats || (equal && at < place)) {
            value = x;
            place = at;
        }
//% else
        value = combine(value, x);
//% endif
    }
};

extern "C" __global__ void __launch_bounds__(LANES * TEAMS, LANES * TEAMS < 512 ? 512 / (LANES * TEAMS) : 1) ${kernel}(${signature}) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
//% for store in stores
    __shared__ __align__(16) ${store.storage} ${store.name}_turned[WRITES == writes_turned ? LANES * TEAMS * ITEMS : 1];
//% endfor
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    const long long wanted = (long long)blockIdx.x * TEAMS + team;
    const bool live = wanted < UNITS;
    const Index unit = live ? (Index)wanted : UNITS - 1;
    const int group_h = (int)(unit % GROUPS_H), group_w = (int)(unit / GROUPS_H % GROUPS_W);
    const int group_d = (int)(unit / ((Index)GROUPS_H * GROUPS_W) % GROUPS_D);
    const Index plane = unit / ((Index)GROUPS_H * GROUPS_W * GROUPS_D);
    ${decode_kept | indent(4)}
//% for line in constants
    ${line}
//% endfor
    const int first_od = group_d * SLICES, first_oh = group_h * ROWS, first_ow = group_w * TILE;
    const int first_id = first_od * STRIDE_D - PAD_D, first_ih = first_oh * STRIDE_H - PAD_H;
    const bool wide = ${wide};

    const auto operand_at = [&](int ${input_d}, int ${input_h}, int ${input_w}${operand_parameters}) -> Value {
        //@slot load_transform
        return ${operand};
    };
    // VECTOR neighbouring inputs of a row as they lie in memory, read without a branch; what lies outside is the identity.
    struct Raw {
//% for load in loads
        Pack<${load.held}, VECTOR> ${load.var};
//% endfor
    };
    const auto read = [&](int d, int h, int first, Raw& raw) {
        const int ${input_d} = clamped(d, IN_D - 1), ${input_h} = clamped(h, IN_H - 1);
        if (VECTOR > 1 && wide) {
            const int ${input_w} = clamped(first, IN_W - VECTOR);
//% for load in loads if load.packed
            raw.${load.var} = load_pack<hint_default, VECTOR>(${load.at});
//% endfor
        }
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
            const int ${input_w} = clamped(first + j, IN_W - 1);
//% for load in loads
//% if load.packed
            if (VECTOR == 1 || !wide) raw.${load.var}.v[j] = load_one<hint_default>(${load.at});
//% else
            raw.${load.var}.v[j] = ${load.text};
//% endif
//% endfor
        }
    };
    const auto inside_rows = [&](int d, int h) {
        return (WITHIN_D || (d >= 0 && d < IN_D)) && (WITHIN_H || (h >= 0 && h < IN_H));
    };
    const auto values_of = [&](const Raw& raw, int ${input_d}, int ${input_h}, int first, Value (&values)[VECTOR]) {
        const bool inside = inside_rows(${input_d}, ${input_h});
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
            const int ${input_w} = first + j;
//% for load in loads
            const ${load.ctype} ${load.var} = to_compute(raw.${load.var}.v[j]);
//% endfor
            const Value made = operand_at(${input_d}, ${input_h}, ${input_w}${operand_arguments});
            values[j] = inside && (WITHIN_W || (${input_w} >= 0 && ${input_w} < IN_W)) ? made : identity();
        }
    };
//% if weighted_wanted
    const auto weight_at = [&](int ${tap_d}, int ${tap_h}, int ${tap_w}) -> Value {
//% for line in weight_loads
        ${line}
//% endfor
        //@slot weight_transform
        return ${weight};
    };
    constexpr bool HELD = TAPS_D * TAPS_H * TAPS_W <= 64;  // weights in registers
    Value weights[HELD ? TAPS_D * TAPS_H * TAPS_W : 1];
    if constexpr (HELD) {
#pragma unroll
        for (int t = 0; t < TAPS_D * TAPS_H * TAPS_W; ++t)
            weights[t] = weight_at(t / (TAPS_H * TAPS_W), t / TAPS_W % TAPS_H, t % TAPS_W);
    }
    const auto weighted = [&](Value x, int td, int th, int tw) -> Value {
        if constexpr (HELD) return x * weights[(td * TAPS_H + th) * TAPS_W + tw];
        else return x * weight_at(td, th, tw);
    };
//% else
    const auto weighted = [&](Value x, int, int, int) -> Value { return x; };
//% endif
    const auto finish_at = [&](int ${output_d}, int ${output_h}, int ${output_w}, const Folded& folded_${outputs}) {
        const Value ${folded} = folded_.value;
//% if placed_wanted
        const long long ${position} = folded_.place;
//% endif
//% for line in post_loads
        ${line}
//% endfor
        //@slot post
//% for store in stores
        ${store.name} = ${store.var};
//% endfor
    };
//% macro keep(count)
//% for store in stores
        Pack<${store.storage}, ${count}> ${store.name}_pack;
//% endfor
#pragma unroll
        for (int item = 0; item < ${count}; ++item) {
            if (first + item < OUT_W) {
//% for store in stores
                ${store.ctype} ${store.name};
//% endfor
                finish_at(od, oh, first + item, folds[item]${results});
//% for store in stores
                ${store.name}_pack.v[item] = Storage<${store.storage}>::of(${store.name});
//% endfor
            }
        }
//% endmacro
    const auto put_one = [&](int od, int oh, int first, const Folded (&folds)[1]) {
        if (!live || od >= OUT_D || oh >= OUT_H || first >= OUT_W) return;
${keep("1")}
        const int ${output_d} = od, ${output_h} = oh, ${output_w} = first;
//% for store in stores
        store_one<CACHE_HINT>(${store.at}, ${store.name}_pack.v[0]);
//% endfor
    };
    // Neighbouring outputs from `first` on, in accesses as wide as they are aligned.
    const auto put_items = [&](int od, int oh, int first, const Folded (&folds)[ITEMS]) {
        if (!live || od >= OUT_D || oh >= OUT_H || first >= OUT_W) return;
${keep("ITEMS")}
        const int ${output_d} = od, ${output_h} = oh;
//% for store in stores
        {
            constexpr int WIDTH = ITEMS % ${store.width_4} == 0 ? ${store.width_4} : ITEMS % ${store.width_2} == 0 ? ${store.width_2} : 1;
            if (WIDTH > 1 && aligned<WIDTH>(${store.buffer}) && first + ITEMS <= OUT_W) {
#pragma unroll
                for (int item = 0; item < ITEMS; item += WIDTH) {
                    const int ${output_w} = first + item;
                    Pack<${store.storage}, WIDTH> pack;
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) pack.v[j] = ${store.name}_pack.v[item + j];
                    store_pack<CACHE_HINT>(${store.at}, pack);
                }
            } else {
#pragma unroll
                for (int item = 0; item < ITEMS; ++item) {
                    const int ${output_w} = first + item;
                    if (${output_w} < OUT_W) store_one<CACHE_HINT>(${store.at}, ${store.name}_pack.v[item]);
                }
            }
        }
//% endfor
    };

    // The same for rows that start anywhere: a warp's outputs change hands, so that neighbours write neighbours.
    const auto put_turned = [&](int od, int oh, int first, const Folded (&folds)[ITEMS]) {
        if (!live || od >= OUT_D || oh >= OUT_H) return;
${keep("ITEMS")}
        const int ${output_d} = od, ${output_h} = oh, place = threadIdx.x % 32;
        const int warp = (int)threadIdx.x / 32 * 32 * ITEMS, warp_first = first - place * ITEMS;
        __syncwarp();  // what was there has been read
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            if (first + item < OUT_W) {
//% for store in stores
                ${store.name}_turned[warp + place * ITEMS + item] = ${store.name}_pack.v[item];
//% endfor
            }
        }
        __syncwarp();
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int ${output_w} = warp_first + item * 32 + place;
            if (${output_w} < OUT_W) {
//% for store in stores
                store_one<CACHE_HINT>(${store.at}, ${store.name}_turned[warp + item * 32 + place]);
//% endfor
            }
        }
    };

    if constexpr (PATH == path_columns) {
        // Each thread folds whole columns of inputs over the outer dimensions, the innermost follows from shared memory.
        Value* const tile = reinterpret_cast<Value*>(shared_bytes) + team * (SLICES * ROWS * COLUMNS);
        const int wanted_iw = first_ow * STRIDE_W - PAD_W;
        const int shift = ((wanted_iw % VECTOR) + VECTOR) % VECTOR;
#pragma unroll TOGETHER
        for (int column = lane * VECTOR; column < COLUMNS; column += LANES * VECTOR) {
            const int iw = wanted_iw - shift + column;
            Value sums[SLICES][ROWS][VECTOR];
#pragma unroll
            for (int n = 0; n < SLICES * ROWS * VECTOR; ++n) sums[n / (ROWS * VECTOR)][n / VECTOR % ROWS][n % VECTOR] = identity();
            if constexpr (PLAIN) {
#pragma unroll few(TAPS_D)
                for (int td = 0; td < TAPS_D; ++td) {
#pragma unroll few(TAPS_H / AHEAD)
                    for (int first_th = 0; first_th < TAPS_H; first_th += AHEAD) {
                        const int id = first_id + td * DIL_D;
                        Raw raw[AHEAD];
#pragma unroll
                        for (int k = 0; k < AHEAD; ++k)
                            if (first_th + k < TAPS_H) read(id, first_ih + (first_th + k) * DIL_H, iw, raw[k]);
#pragma unroll
                        for (int k = 0; k < AHEAD; ++k) {
                            if (first_th + k >= TAPS_H) continue;
                            Value x[VECTOR];
                            values_of(raw[k], id, first_ih + (first_th + k) * DIL_H, iw, x);
#pragma unroll
                            for (int j = 0; j < VECTOR; ++j) sums[0][0][j] = combine(sums[0][0][j], x[j]);
                        }
                    }
                }
            } else {
#pragma unroll
                for (int d = 0; d < SPAN_D; ++d) {
                    if (!used(d, SLICES, STRIDE_D, TAPS_D, DIL_D)) continue;
                    Value rows[ROWS][VECTOR];
#pragma unroll
                    for (int n = 0; n < ROWS * VECTOR; ++n) rows[n / VECTOR][n % VECTOR] = identity();
#pragma unroll
                    for (int first_h = 0; first_h < SPAN_H; first_h += AHEAD) {
                        Raw raw[AHEAD];
#pragma unroll
                        for (int k = 0; k < AHEAD; ++k) {
                            const int h = first_h + k;
                            if (h < SPAN_H && used(h, ROWS, STRIDE_H, TAPS_H, DIL_H)) read(first_id + d, first_ih + h, iw, raw[k]);
                        }
#pragma unroll
                        for (int k = 0; k < AHEAD; ++k) {
                            const int h = first_h + k;
                            if (h >= SPAN_H || !used(h, ROWS, STRIDE_H, TAPS_H, DIL_H)) continue;
                            Value x[VECTOR];
                            values_of(raw[k], first_id + d, first_ih + h, iw, x);
#pragma unroll
                            for (int n = 0; n < ROWS * TAPS_H; ++n) {
                                if (n / TAPS_H * STRIDE_H + n % TAPS_H * DIL_H != h) continue;
#pragma unroll
                                for (int j = 0; j < VECTOR; ++j) rows[n / TAPS_H][j] = combine(rows[n / TAPS_H][j], x[j]);
                            }
                        }
                    }
#pragma unroll
                    for (int s = 0; s < SLICES; ++s) {
#pragma unroll
                        for (int td = 0; td < TAPS_D; ++td) {
                            if (s * STRIDE_D + td * DIL_D != d) continue;
#pragma unroll
                            for (int n = 0; n < ROWS * VECTOR; ++n)
                                sums[s][n / VECTOR][n % VECTOR] = combine(sums[s][n / VECTOR][n % VECTOR], rows[n / VECTOR][n % VECTOR]);
                        }
                    }
                }
            }
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    Pack<Value, VECTOR> pack;
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j) pack.v[j] = sums[s][r][j];
                    store_pack<hint_default>(tile + (s * ROWS + r) * COLUMNS + column, pack);
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < SLICES * ROWS; ++n) {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const Value* const from = tile + n * COLUMNS + shift + (item * LANES + lane) * STRIDE_W;
                Folded fold[1];
#pragma unroll few(TAPS_W)
                for (int tw = 0; tw < TAPS_W; ++tw) fold[0].take(from[tw * DIL_W], 0);
                put_one(first_od + n / ROWS, first_oh + n % ROWS, first_ow + item * LANES + lane, fold);
            }
        }
        return;
    }

    const auto place = [&](int id, int ih, int w, bool inside) {
        return inside && w >= 0 && w < IN_W ? (id * IN_H + ih) * IN_W + w : 0x7fffffff;
    };
//% macro fold_all()
        // COUNT neighbouring outputs in all of a thread's rows and slices; their first tap of a row is input `iw`.
        if constexpr (PLAIN && COUNT == 1) {
#pragma unroll few(TAPS_D)
            for (int td = 0; td < TAPS_D; ++td) {
#pragma unroll few(TAPS_H)
                for (int th = 0; th < TAPS_H; ++th) {
                    const int d = td * DIL_D, h = th * DIL_H, id = first_id + d, ih = first_ih + h;
                    const bool inside = id >= 0 && id < IN_D && ih >= 0 && ih < IN_H;
#pragma unroll few(TAPS_W)
                    for (int tw = 0; tw < TAPS_W; ++tw) {
                        const int w = iw + tw * DIL_W;
                        folds[0][0][0].take(weighted(fetch_one(inside, d, h, w), td, th, tw), place(id, ih, w, inside));
                    }
                }
            }
        } else {
#pragma unroll
            for (int d = 0; d < SPAN_D; ++d) {
                if (!used(d, SLICES, STRIDE_D, TAPS_D, DIL_D)) continue;
#pragma unroll
                for (int h = 0; h < SPAN_H; ++h) {
                    if (!used(h, ROWS, STRIDE_H, TAPS_H, DIL_H)) continue;
                    const int id = first_id + d, ih = first_ih + h;
                    const bool inside = id >= 0 && id < IN_D && ih >= 0 && ih < IN_H;
                    Value x[SPAN];
                    fetch_row(inside, d, h, iw, x);
                    Folded across[COUNT];
                    if constexpr (FOLD == fold_rows) {
#pragma unroll
                        for (int item = 0; item < COUNT; ++item) {
#pragma unroll
                            for (int tw = 0; tw < TAPS_W; ++tw) across[item].take(x[item * STRIDE_W + tw * DIL_W], 0);
                        }
                    }
#pragma unroll
                    for (int n = 0; n < SLICES * ROWS * TAPS_D * TAPS_H; ++n) {
                        const int s = n / (ROWS * TAPS_D * TAPS_H), r = n / (TAPS_D * TAPS_H) % ROWS;
                        const int td = n / TAPS_H % TAPS_D, th = n % TAPS_H;
                        if (s * STRIDE_D + td * DIL_D != d || r * STRIDE_H + th * DIL_H != h) continue;
#pragma unroll
                        for (int item = 0; item < COUNT; ++item) {
                            if constexpr (FOLD == fold_rows) {
                                folds[s][r][item].take(across[item].value, 0);
                            } else {
#pragma unroll
                                for (int tw = 0; tw < TAPS_W; ++tw) {
                                    const int w = item * STRIDE_W + tw * DIL_W;
                                    folds[s][r][item].take(weighted(x[w], td, th, tw), place(id, ih, iw + w, inside));
                                }
                            }
                        }
                    }
                }
            }
        }
//% endmacro

    if constexpr (PATH == path_staged) {
        // The inputs of a team in shared memory first, every one read once, then outputs LANES apart.
        Value* const tile = reinterpret_cast<Value*>(shared_bytes) + team * (SPAN_D * SPAN_H * COLUMNS);
        const int wanted_iw = first_ow * STRIDE_W - PAD_W;
        const int shift = ((wanted_iw % VECTOR) + VECTOR) % VECTOR;
#pragma unroll TOGETHER
        for (int column = lane * VECTOR; column < COLUMNS; column += LANES * VECTOR) {
            const int iw = wanted_iw - shift + column;
#pragma unroll few(SPAN_D)
            for (int d = 0; d < SPAN_D; ++d) {
                if (!used(d, SLICES, STRIDE_D, TAPS_D, DIL_D)) continue;
#pragma unroll few(SPAN_H / AHEAD)
                for (int first_h = 0; first_h < SPAN_H; first_h += AHEAD) {
                    Raw raw[AHEAD];
#pragma unroll
                    for (int k = 0; k < AHEAD; ++k) {
                        const int h = first_h + k;
                        if (h < SPAN_H && used(h, ROWS, STRIDE_H, TAPS_H, DIL_H)) read(first_id + d, first_ih + h, iw, raw[k]);
                    }
#pragma unroll
                    for (int k = 0; k < AHEAD; ++k) {
                        const int h = first_h + k;
                        if (h >= SPAN_H || !used(h, ROWS, STRIDE_H, TAPS_H, DIL_H)) continue;
                        Value x[VECTOR];
                        values_of(raw[k], first_id + d, first_ih + h, iw, x);
                        Pack<Value, VECTOR> pack;
#pragma unroll
                        for (int j = 0; j < VECTOR; ++j) pack.v[j] = x[j];
                        store_pack<hint_default>(tile + (d * SPAN_H + h) * COLUMNS + column, pack);
                    }
                }
            }
        }
        __syncthreads();
        const int tile_iw = wanted_iw - shift;
        constexpr int COUNT = 1, SPAN = (TAPS_W - 1) * DIL_W + 1;
        const auto fetch_one = [&](bool, int d, int h, int iw) -> Value {
            return tile[(d * SPAN_H + h) * COLUMNS + iw - tile_iw];
        };
        const auto fetch_row = [&](bool, int d, int h, int iw, Value (&x)[SPAN]) {
            const Value* const from = tile + (d * SPAN_H + h) * COLUMNS + iw - tile_iw;
#pragma unroll
            for (int j = 0; j < SPAN; ++j)
                if (used(j, 1, STRIDE_W, TAPS_W, DIL_W)) x[j] = from[j];
        };
#pragma unroll 1
        for (int item = 0; item < ITEMS; ++item) {
            Folded folds[SLICES][ROWS][COUNT];
            const int ow = first_ow + item * LANES + lane, iw = ow * STRIDE_W - PAD_W;
${fold_all()}
#pragma unroll
            for (int n = 0; n < SLICES * ROWS; ++n) put_one(first_od + n / ROWS, first_oh + n % ROWS, ow, folds[n / ROWS][n % ROWS]);
        }
    }
    if constexpr (PATH == path_direct) {
        // A thread's outputs are neighbours; where whole vectors of inputs are aligned they start HEAD before its first tap.
        constexpr int HEAD = VECTOR > 1 ? ((-PAD_W % VECTOR) + VECTOR) % VECTOR : 0;
        constexpr int COUNT = ITEMS, SPAN = (ITEMS - 1) * STRIDE_W + (TAPS_W - 1) * DIL_W + 1;
        const auto fetch_one = [&](bool, int d, int h, int iw) -> Value {
            Raw raw;
            Value x[VECTOR];
            read(first_id + d, first_ih + h, iw, raw);
            values_of(raw, first_id + d, first_ih + h, iw, x);
            return x[0];
        };
        const auto fetch_row = [&](bool, int d, int h, int iw, Value (&x)[SPAN]) {
#pragma unroll
            for (int j = 0; j < SPAN + HEAD; j += VECTOR) {
                bool wanted_now = false;
#pragma unroll
                for (int k = 0; k < VECTOR; ++k)
                    wanted_now = wanted_now || (j + k < SPAN + HEAD && used(j + k - HEAD, ITEMS, STRIDE_W, TAPS_W, DIL_W));
                if (!wanted_now) continue;
                Raw raw;
                Value chunk[VECTOR];
                read(first_id + d, first_ih + h, iw - HEAD + j, raw);
                values_of(raw, first_id + d, first_ih + h, iw - HEAD + j, chunk);
#pragma unroll
                for (int k = 0; k < VECTOR; ++k)
                    if (j + k >= HEAD && j + k - HEAD < SPAN) x[j + k - HEAD] = chunk[k];
            }
        };
        Folded folds[SLICES][ROWS][COUNT];
        const int ow = first_ow + lane * ITEMS, iw = ow * STRIDE_W - PAD_W;
${fold_all()}
#pragma unroll
        for (int n = 0; n < SLICES * ROWS; ++n) {
            const int od = first_od + n / ROWS, oh = first_oh + n % ROWS;
            if constexpr (WRITES == writes_turned) put_turned(od, oh, ow, folds[n / ROWS][n % ROWS]);
            else put_items(od, oh, ow, folds[n / ROWS][n % ROWS]);
        }
    }
}
