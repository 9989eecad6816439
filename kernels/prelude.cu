//@part always
#pragma nv_diag_suppress 177, 550  // helpers and values that a kernel does not use are no mistake
//@part memory
// Storage types, conversions and hinted vector access; no header is included, so NVRTC starts at once.
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

static __device__ __forceinline__ float to_compute(float x) { return x; }
static __device__ __forceinline__ double to_compute(double x) { return x; }
static __device__ __forceinline__ long long to_compute(long long x) { return x; }
static __device__ __forceinline__ int to_compute(int x) { return x; }
static __device__ __forceinline__ int to_compute(short x) { return x; }
static __device__ __forceinline__ int to_compute(signed char x) { return x; }
static __device__ __forceinline__ int to_compute(unsigned char x) { return x; }
static __device__ __forceinline__ bool to_compute(bool x) { return x; }
static __device__ __forceinline__ float to_compute(bf16 x) { return __uint_as_float((unsigned int)x.bits << 16); }
static __device__ __forceinline__ float to_compute(f16 x) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}

template <typename T> struct Storage {
    template <typename X> static __device__ __forceinline__ T of(X x) { return static_cast<T>(x); }
};
template <> struct Storage<f16> {
    static __device__ __forceinline__ f16 of(float x) {
        f16 result;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
        return result;
    }
};
template <> struct Storage<bf16> {
    static __device__ __forceinline__ bf16 of(float x) {
        bf16 result;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
        return result;
    }
};

enum Hint : int { hint_default, hint_streaming, hint_no_allocate };

template <int BYTES> struct Chunk;
template <> struct Chunk<1> { using Type = unsigned char; };
template <> struct Chunk<2> { using Type = unsigned short; };
template <> struct Chunk<4> { using Type = unsigned int; };
template <> struct Chunk<8> { using Type = uint2; };
template <> struct Chunk<16> { using Type = uint4; };

template <Hint HINT> static __device__ __forceinline__ uint4 load_chunk(const uint4* p) {
    if constexpr (HINT == hint_default) return *p;
    uint4 v;
    if constexpr (HINT == hint_streaming)
        asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    else
        asm("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
template <Hint HINT> static __device__ __forceinline__ uint2 load_chunk(const uint2* p) {
    if constexpr (HINT == hint_default) return *p;
    uint2 v;
    if constexpr (HINT == hint_streaming)
        asm("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    else
        asm("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
template <Hint HINT> static __device__ __forceinline__ unsigned int load_chunk(const unsigned int* p) {
    if constexpr (HINT == hint_default) return *p;
    unsigned int v;
    if constexpr (HINT == hint_streaming)
        asm("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(p));
    else
        asm("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
template <Hint HINT> static __device__ __forceinline__ unsigned short load_chunk(const unsigned short* p) { return *p; }
template <Hint HINT> static __device__ __forceinline__ unsigned char load_chunk(const unsigned char* p) { return *p; }

template <Hint HINT> static __device__ __forceinline__ void store_chunk(uint4* p, uint4 v) {
    if constexpr (HINT == hint_default) *p = v;
    else asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                      :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
template <Hint HINT> static __device__ __forceinline__ void store_chunk(uint2* p, uint2 v) {
    if constexpr (HINT == hint_default) *p = v;
    else asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" :: "l"(p), "r"(v.x), "r"(v.y) : "memory");
}
template <Hint HINT> static __device__ __forceinline__ void store_chunk(unsigned int* p, unsigned int v) {
    if constexpr (HINT == hint_default) *p = v;
    else asm volatile("st.global.cs.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}
template <Hint HINT> static __device__ __forceinline__ void store_chunk(unsigned short* p, unsigned short v) { *p = v; }
template <Hint HINT> static __device__ __forceinline__ void store_chunk(unsigned char* p, unsigned char v) { *p = v; }

template <typename T, int COUNT> struct alignas(16) Pack { T v[COUNT]; };

// COUNT elements in accesses of at most 16 bytes; p must be aligned to min(16, COUNT * sizeof(T)).
template <Hint HINT, int COUNT, typename T>
static __device__ __forceinline__ Pack<T, COUNT> load_pack(const T* p) {
    constexpr int BYTES = COUNT * (int)sizeof(T);
    using C = typename Chunk<(BYTES > 16 ? 16 : BYTES)>::Type;
    Pack<T, COUNT> pack;
#pragma unroll
    for (int i = 0; i < BYTES / (int)sizeof(C); ++i)
        reinterpret_cast<C*>(&pack)[i] = load_chunk<HINT>(reinterpret_cast<const C*>(p) + i);
    return pack;
}
template <Hint HINT, int COUNT, typename T>
static __device__ __forceinline__ void store_pack(T* p, const Pack<T, COUNT>& pack) {
    constexpr int BYTES = COUNT * (int)sizeof(T);
    using C = typename Chunk<(BYTES > 16 ? 16 : BYTES)>::Type;
#pragma unroll
    for (int i = 0; i < BYTES / (int)sizeof(C); ++i)
        store_chunk<HINT>(reinterpret_cast<C*>(p) + i, reinterpret_cast<const C*>(&pack)[i]);
}
template <Hint HINT, typename T> static __device__ __forceinline__ T load_one(const T* p) {
    return load_pack<HINT, 1>(p).v[0];
}
template <Hint HINT, typename T> static __device__ __forceinline__ void store_one(T* p, T value) {
    Pack<T, 1> pack;
    pack.v[0] = value;
    store_pack<HINT, 1>(p, pack);
}
// Whether a pointer allows accesses of COUNT elements (at most 16 bytes each); single elements always are aligned.
template <int COUNT, typename T> static __device__ __forceinline__ bool aligned(const T* p) {
    if constexpr (COUNT == 1) return true;
    constexpr int BYTES = COUNT * (int)sizeof(T);
    return (reinterpret_cast<unsigned long long>(p) & ((BYTES > 16 ? 16 : BYTES) - 1)) == 0;
}
//@part reduce
// Reductions as monoids (identity, lift, combine, result); NaN wins in max and min, the lowest index among equals.
template <typename T> struct Limits;
template <> struct Limits<float> {
    static __device__ __forceinline__ float low() { return __int_as_float(0xff800000); }
    static __device__ __forceinline__ float high() { return __int_as_float(0x7f800000); }
};
template <> struct Limits<double> {
    static __device__ __forceinline__ double low() { return __longlong_as_double(0xfff0000000000000ll); }
    static __device__ __forceinline__ double high() { return __longlong_as_double(0x7ff0000000000000ll); }
};
template <> struct Limits<int> {
    static __device__ __forceinline__ int low() { return -2147483647 - 1; }
    static __device__ __forceinline__ int high() { return 2147483647; }
};
template <> struct Limits<long long> {
    static __device__ __forceinline__ long long low() { return -9223372036854775807ll - 1; }
    static __device__ __forceinline__ long long high() { return 9223372036854775807ll; }
};
template <> struct Limits<bool> {
    static __device__ __forceinline__ bool low() { return false; }
    static __device__ __forceinline__ bool high() { return true; }
};

template <typename T> struct Plain {
    using State = T;
    template <typename I> static __device__ __forceinline__ T lift(T x, I) { return x; }
    static __device__ __forceinline__ T result(T state) { return state; }
};
template <typename T> struct Sum : Plain<T> {
    static __device__ __forceinline__ T identity() { return T(0); }
    static __device__ __forceinline__ T combine(T a, T b) { return a + b; }
};
template <typename T> struct Prod : Plain<T> {
    static __device__ __forceinline__ T identity() { return T(1); }
    static __device__ __forceinline__ T combine(T a, T b) { return a * b; }
};
template <typename T> struct Max : Plain<T> {
    static __device__ __forceinline__ T identity() { return Limits<T>::low(); }
    static __device__ __forceinline__ T combine(T a, T b) { return a > b || a != a ? a : b; }
};
template <typename T> struct Min : Plain<T> {
    static __device__ __forceinline__ T identity() { return Limits<T>::high(); }
    static __device__ __forceinline__ T combine(T a, T b) { return a < b || a != a ? a : b; }
};
template <typename T> struct Any : Plain<T> {
    static __device__ __forceinline__ T identity() { return T(false); }
    static __device__ __forceinline__ T combine(T a, T b) { return T(a || b); }
};
template <typename T> struct All : Plain<T> {
    static __device__ __forceinline__ T identity() { return T(true); }
    static __device__ __forceinline__ T combine(T a, T b) { return T(a && b); }
};
template <typename T, typename I> struct ArgState { T value; I index; };
template <typename T, typename I, bool LARGEST> struct Arg {
    using State = ArgState<T, I>;
    static __device__ __forceinline__ State identity() {
        return {LARGEST ? Limits<T>::low() : Limits<T>::high(), Limits<I>::high()};
    }
    static __device__ __forceinline__ State lift(T x, I position) { return {x, position}; }
    static __device__ __forceinline__ State combine(State a, State b) {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool beats = LARGEST ? b.value > a.value : b.value < a.value;
        const bool equal = a.value == b.value || (a_nan && b_nan);
        const bool take = (b_nan && !a_nan) || (!a_nan && beats) || (equal && b.index < a.index);
        return take ? b : a;
    }
    static __device__ __forceinline__ long long result(State state) { return state.index; }
};
template <typename T, typename I> using ArgMax = Arg<T, I, true>;
template <typename T, typename I> using ArgMin = Arg<T, I, false>;

template <typename T> static __device__ __forceinline__ T shuffle_xor(T x, int mask, int width = 32) {
    return __shfl_xor_sync(0xffffffffu, x, mask, width);
}
static __device__ __forceinline__ bool shuffle_xor(bool x, int mask, int width = 32) {
    return __shfl_xor_sync(0xffffffffu, (int)x, mask, width) != 0;
}
template <typename T, typename I>
static __device__ __forceinline__ ArgState<T, I> shuffle_xor(ArgState<T, I> x, int mask, int width = 32) {
    return {shuffle_xor(x.value, mask, width), shuffle_xor(x.index, mask, width)};
}
// Every lane of a group of LANES (a power of two up to 32) gets the group's result; all 32 lanes must call.
template <class M, int LANES = 32>
static __device__ __forceinline__ typename M::State warp_reduce(typename M::State state) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) state = M::combine(state, shuffle_xor(state, mask));
    return state;
}
// Every thread of a group of THREADS consecutive threads (32, 64, ..., the block) gets the group's result. `scratch`
// holds one state a warp of the block; all threads of the block must call. Ends with the scratch free for reuse.
template <class M, int THREADS>
static __device__ __forceinline__ typename M::State block_reduce(typename M::State state, typename M::State* scratch) {
    state = warp_reduce<M, (THREADS < 32 ? THREADS : 32)>(state);
    if constexpr (THREADS > 32) {
        constexpr int WARPS = THREADS / 32;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0) scratch[warp] = state;
        __syncthreads();
        const int first = warp / WARPS * WARPS;
        state = lane < WARPS ? scratch[first + lane] : M::identity();
        state = warp_reduce<M>(state);
        __syncthreads();
    }
    return state;
}
