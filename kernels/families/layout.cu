// layout: tensors that run along another axis than the largest result go through tiles of shared memory (${operators}).
${prelude}

// Choice slots.
//@choices

using Index = ${index};
constexpr Index SIZE_I = ${i.size};  // the axis that runs fastest in the tensors that are turned
constexpr Index SIZE_J = ${j.size};  // the axis that runs fastest in the largest result
constexpr unsigned int TILES_I = (SIZE_I + TILE_I - 1) / TILE_I, TILES_J = (SIZE_J + TILE_J - 1) / TILE_J;
constexpr int PITCH = TILE_I + PAD;
constexpr int BATCHES = TILE_I * TILE_J / (BLOCK * VECTOR * ITEMS);

// Whether a vector of an operand is contiguous, and aligned if the pointer is.
//% for operand in operands
constexpr bool PACKED_${operand.label} = ${operand.packed};
//% endfor

//% macro read(load, along, across)
                if constexpr (PACKED_${load.label}) {
                    const Index ${along.name} = ${along.name}_at, ${across.name} = ${across.name}_at;
                    ld_${load.var}[item] = load_pack<hint_default, VECTOR>(${load.pointer} + (${load.address}));
                } else {
#pragma unroll
                    for (int lane = 0; lane < VECTOR; ++lane) {
                        const Index ${along.name} = ${along.name}_at + lane, ${across.name} = ${across.name}_at;
                        ld_${load.var}[item].v[lane] = ${load.guard} ? ${load.pointer}[${load.address}] : ${load.fill};
                    }
                }
//% endmacro
//% macro read_edge(load, along, across)
                if (PACKED_${load.label} && packed && ${along.name}_at + VECTOR <= (Index)${along.size} && ${across.name}_at < (Index)${across.size}) {
                    const Index ${along.name} = ${along.name}_at, ${across.name} = ${across.name}_at;
                    ld_${load.var}[item] = load_pack<hint_default, VECTOR>(${load.pointer} + (${load.address}));
                } else {
#pragma unroll
                    for (int lane = 0; lane < VECTOR; ++lane) {
                        const Index ${along.name} = ${along.name}_at + lane, ${across.name} = ${across.name}_at;
                        const bool given = ${along.name} < (Index)${along.size} && ${across.name} < (Index)${across.size} && ${load.guard};
                        ld_${load.var}[item].v[lane] = given ? ${load.pointer}[${load.address}] : ${load.fill};
                    }
                }
//% endmacro
//% macro sweep(loads, along, across, reading)
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int element = ((batch * ITEMS + item) * BLOCK + (int)threadIdx.x) * VECTOR;
                const Index ${along.name}_at = ${along.first} + element % ${along.tile};
                const Index ${across.name}_at = ${across.first} + element / ${along.tile};
//% for load in loads
${reading(load, along, across)}
//% endfor
            }
//% endmacro
//% macro fetch(loads, along, across)
        if (whole) {
${sweep(loads, along, across, read)}
        } else {
${sweep(loads, along, across, read_edge)}
        }
//% endmacro
//% macro write(store, along, across)
            if (whole || ${across.name}_at < (Index)${across.size}) {
                if (PACKED_${store.label} && packed && (whole || ${along.name}_at + VECTOR <= (Index)${along.size})) {
                    const Index ${along.name} = ${along.name}_at, ${across.name} = ${across.name}_at;
                    store_pack<STORE_HINT>(${store.pointer} + (${store.address}), st_${store.label});
                } else {
#pragma unroll
                    for (int lane = 0; lane < VECTOR; ++lane) {
                        const Index ${along.name} = ${along.name}_at + lane, ${across.name} = ${across.name}_at;
                        if (whole || ${along.name} < (Index)${along.size})
                            store_one<STORE_HINT>(${store.pointer} + (${store.address}), st_${store.label}.v[lane]);
                    }
                }
            }
//% endmacro
extern "C" __global__ void __launch_bounds__(BLOCK) ${kernel}(${signature}) {
//% for load in turned
    __shared__ ${load.storage} tile_${load.var}[TILE_J * PITCH];
//% endfor
//% for store in turned_stores
    __shared__ ${store.storage} tile_${store.label}[TILE_J * PITCH];
//% endfor
//% for value in once_values
    __shared__ ${value.ctype} once_${value.var}[TILE_I];
//% endfor
//% for text in constants
    ${text}
//% endfor
    const Index first_i = (Index)(blockIdx.x / TILES_J % TILES_I) * TILE_I, first_j = (Index)(blockIdx.x % TILES_J) * TILE_J;
    const bool packed = ${alignment};
    const bool whole = packed && first_i + TILE_I <= SIZE_I && first_j + TILE_J <= SIZE_J;
//% if outer
    const Index outer = (Index)(blockIdx.x / TILES_J / TILES_I);
//% endif
//% for text in outer
    ${text}
//% endfor
//% if straight
//% for load in straight
    Pack<${load.storage}, VECTOR> ld_${load.var}[ITEMS];
//% endfor
    if constexpr (BATCHES == 1) {
        constexpr int batch = 0;
${fetch(straight, j, i)}
    }
//% endif

//% if columns
    // What does not vary along the operands' axis: all elements of a thread stand at one place along the other one.
    static_assert(BLOCK * VECTOR % TILE_J == 0, "threads walk tiles in whole rows");
//% for load in columns
    Pack<${load.storage}, VECTOR> ld_${load.var};
//% endfor
#pragma unroll
    for (int lane = 0; lane < VECTOR; ++lane) {
        const Index wanted = first_j + (int)threadIdx.x * VECTOR % TILE_J + lane, ${j.name} = wanted < SIZE_J ? wanted : SIZE_J - 1;
//% for load in columns
        ld_${load.var}.v[lane] = ${load.pointer}[${load.address}];
//% endfor
    }
//% endif
//% if once_values
    // What does not vary along the results' axis, for each place along the other one.
    for (int in_i = threadIdx.x; in_i < TILE_I; in_i += BLOCK) {
        const Index ${i.name} = first_i + in_i < SIZE_I ? first_i + in_i : SIZE_I - 1;
//% for text in once
        ${text}
//% endfor
//% if once_slot
        //@slot once
//% endif
//% for value in once_values
        once_${value.var}[in_i] = ${value.var};
//% endfor
    }
//% endif

    // Neighbouring threads read neighbours along the operands' axis.
#pragma unroll 1
    for (int batch = 0; batch < BATCHES; ++batch) {
//% for load in turned
        Pack<${load.storage}, VECTOR> ld_${load.var}[ITEMS];
//% endfor
${fetch(turned, i, j)}
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int element = ((batch * ITEMS + item) * BLOCK + (int)threadIdx.x) * VECTOR;
            const int place = element / TILE_I * PITCH + element % TILE_I;
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
//% for load in turned
                tile_${load.var}[place + lane] = ld_${load.var}[item].v[lane];
//% endfor
            }
        }
    }
    __syncthreads();

    // Neighbouring threads compute and write neighbours along the results' axis.
#pragma unroll 1
    for (int batch = 0; batch < BATCHES; ++batch) {
//% if straight
        if constexpr (BATCHES > 1) {
${fetch(straight, j, i)}
        }
//% endif
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int element = ((batch * ITEMS + item) * BLOCK + (int)threadIdx.x) * VECTOR;
            const int in_i = element / TILE_J, in_j = element % TILE_J;
            const Index ${i.name}_at = first_i + in_i, ${j.name}_at = first_j + in_j;
//% for store in straight_stores
            Pack<${store.storage}, VECTOR> st_${store.label};
//% endfor
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) {
                const Index ${i.name} = ${i.name}_at, ${j.name} = ${j.name}_at + lane;
//% for load in turned
                const ${load.ctype} ${load.var} = to_compute(tile_${load.var}[(in_j + lane) * PITCH + in_i]);
//% endfor
//% for load in straight
                const ${load.ctype} ${load.var} = to_compute(ld_${load.var}[item].v[lane]);
//% endfor
//% for load in columns
                const ${load.ctype} ${load.var} = to_compute(ld_${load.var}.v[lane]);
//% endfor
//% for value in once_values
                const ${value.ctype} ${value.var} = once_${value.var}[in_i];
//% endfor
                //@slot body
//% for store in straight_stores
                st_${store.label}.v[lane] = Storage<${store.storage}>::of(${store.var});
//% endfor
//% for store in turned_stores
                tile_${store.label}[(in_j + lane) * PITCH + in_i] = Storage<${store.storage}>::of(${store.var});
//% endfor
            }
//% for store in straight_stores
${write(store, j, i)}
//% endfor
        }
    }
//% if turned_stores
    __syncthreads();

    // The same for results that run along the operands' axis.
#pragma unroll 1
    for (int batch = 0; batch < BATCHES; ++batch) {
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int element = ((batch * ITEMS + item) * BLOCK + (int)threadIdx.x) * VECTOR;
            const int in_i = element % TILE_I, in_j = element / TILE_I;
            const Index ${i.name}_at = first_i + in_i, ${j.name}_at = first_j + in_j;
//% for store in turned_stores
            Pack<${store.storage}, VECTOR> st_${store.label};
#pragma unroll
            for (int lane = 0; lane < VECTOR; ++lane) st_${store.label}.v[lane] = tile_${store.label}[in_j * PITCH + in_i + lane];
${write(store, i, j)}
//% endfor
        }
    }
//% endif
}
