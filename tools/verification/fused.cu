// Walks over results and over memory, one pass each: what tools/verification/{compare,checksums,sealed}.py say in torch.
// Compiled with --fmad=false: every operation is rounded as torch rounds it. Each block adds what it found to a row of
// its own, so that sums come out the same on every run and many launches can share the rows. Needs no header.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr u32 WIDTH = 256, WARPS = WIDTH / 32;   // threads of a block

struct half_bits { unsigned short bits; };
struct brain_bits { unsigned short bits; };

// Values as float64, exactly.
__device__ double wide(double x) { return x; }
__device__ double wide(float x) { return x; }
__device__ double wide(half_bits x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ double wide(brain_bits x) { return __uint_as_float((u32)x.bits << 16); }

// float64 rounded to a type and widened again; to 16 bits by way of float32, as torch converts.
__device__ double rounded(double x, double) { return x; }
__device__ double rounded(double x, float) { return (float)x; }
__device__ double rounded(double x, half_bits) {
    half_bits y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"((float)x));
    return wide(y);
}
__device__ double rounded(double x, brain_bits) {
    float near = (float)x;
    u32 bits = __float_as_uint(near);
    return near != near ? x : __uint_as_float((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

__device__ u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
__device__ double magnitude(double x) { return __longlong_as_double((i64)(bits_of(x) & ~(1ull << 63))); }
__device__ bool is_finite(double x) { return (bits_of(x) >> 52 & 0x7ff) != 0x7ff; }

// The unit in the last place of a type (least normal number `tiny`, `eps`) at a finite size: eps times its power of two.
__device__ double ulp(double size, double tiny, double eps) {
    return __longlong_as_double((i64)(bits_of(size < tiny ? tiny : size) & 0x7ffull << 52)) * eps;
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): words 2n and 2n + 1 of a stream.
__device__ void philox(u64 key, u64 n, u64 (&words)[2]) {
    u32 a = (u32)n, b = (u32)(n >> 32), c = 0, d = 0, low = (u32)key, high = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 first = (u64)a * 0xD2511F53u, second = (u64)c * 0xCD9E8D57u;
        a = (u32)(second >> 32) ^ b ^ low;
        c = (u32)(first >> 32) ^ d ^ high;
        b = (u32)second;
        d = (u32)first;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    words[0] = (u64)b << 32 | a;
    words[1] = (u64)d << 32 | c;
}

// Adds, or where `largest` has the column's bit takes the maximum of, each thread's columns into the block's row.
template <int N, class T>
__device__ void fold(T* rows, const T (&mine)[N], u32 largest) {
    __shared__ T parts[N][WARPS];
#pragma unroll
    for (int column = 0; column < N; ++column) {
        T value = mine[column];
        for (int apart = 16; apart > 0; apart >>= 1) {
            T other = __shfl_down_sync(0xffffffffu, value, apart);
            value = largest >> column & 1 ? (other > value ? other : value) : value + other;
        }
        if (threadIdx.x % 32 == 0) parts[column][threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x >= N) return;
    T* place = rows + (u64)blockIdx.x * N + threadIdx.x;
    T total = *place;
    for (u32 warp = 0; warp < WARPS; ++warp) {
        T other = parts[threadIdx.x][warp];
        total = largest >> threadIdx.x & 1 ? (other > total ? other : total) : total + other;
    }
    *place = total;
}

// Calls `see(truth, value)` for each of `count` elements. A sealed truth is opened by its key stream: elements come in
// pairs so that each block of the stream is made once.
template <class T, class See>
__device__ void walk(const u64* truth, bool sealed, u64 key, const T* value, u64 count, See see) {
    constexpr int PAIRS = 2;   // on the way at once
    const u64 last = (count + 1) / 2, stride = (u64)gridDim.x * WIDTH;
    for (u64 begin = (u64)blockIdx.x * WIDTH + threadIdx.x; begin < last; begin += PAIRS * stride) {
        u64 bits[2 * PAIRS];
        T given[2 * PAIRS];
        bool inside[2 * PAIRS];
#pragma unroll
        for (int k = 0; k < 2 * PAIRS; ++k) {
            u64 at = 2 * (begin + k / 2 * stride) + k % 2;
            inside[k] = at < count;
            if (inside[k]) bits[k] = truth[at], given[k] = value[at];
        }
#pragma unroll
        for (int k = 0; k < 2 * PAIRS; k += 2) {
            u64 stream[2] = {0, 0};
            if (sealed) philox(key, begin + k / 2 * stride, stream);
            if (inside[k]) see(__longlong_as_double((i64)(bits[k] ^ stream[0])), given[k]);
            if (inside[k + 1]) see(__longlong_as_double((i64)(bits[k + 1] ^ stream[1])), given[k + 1]);
        }
    }
}

// Columns: sum of squares, sum of squared units in the last place, the largest of those, elements that are not finite.
template <class T>
__device__ void measure_all(const u64* truth, bool sealed, u64 key, const T* value, u64 count, double tiny,
                        double eps, double* rows) {
    double square = 0, ulp_square = 0, ulp_max = 0;
    u32 nonfinite = 0;
    walk(truth, sealed, key, value, count, [&](double right, T type) {
        double size = magnitude(rounded(right, type));
        if (!is_finite(size)) size = 0, ++nonfinite;
        double step = ulp(size, tiny, eps);
        square += size * size;
        ulp_square += step * step;
        ulp_max = step > ulp_max ? step : ulp_max;
    });
    fold<4, double>(rows, {square, ulp_square, ulp_max, (double)nonfinite}, 1u << 2);
}

struct Rule {
    double tiny, eps;           // of the values' type
    double absolute, relative;  // bounds of what counts as beyond
    double smallest;            // steps are those of elements no smaller
    double miss, least, faint;  // share of an element's size that counts as missed, of those above `least`; gross above `faint`
    int bounds, steps, misses;  // what is asked for
};

// Columns: square, largest, beyond, misplaced, step_square, step_largest, gross, every (`_Errors` in compare.py).
template <class T>
__device__ void errors_all(const u64* truth, bool sealed, u64 key, const T* value, u64 count, const Rule& rule,
                       double* rows) {
    double square = 0, largest = 0, step_square = 0, step_largest = 0;
    u32 beyond = 0, misplaced = 0, gross = 0, every = 0;
    walk(truth, sealed, key, value, count, [&](double right, T element) {
        double near = rounded(right, element), given = wide(element), error = magnitude(given - right);
        bool finite = is_finite(near), counts = finite && is_finite(error);
        if (!counts) {
            error = 0;
            misplaced += !(given == near || (given != given && near != near));
        }
        double size = finite ? magnitude(right) : 0;
        square += error * error;
        largest = error > largest ? error : largest;
        if (rule.misses && error > size * rule.miss && size > rule.least) {
            ++every;
            gross += error > rule.faint;
        }
        if (rule.bounds) beyond += error > size * rule.relative + rule.absolute;
        if (rule.steps) {
            double least = finite ? magnitude(near) : 0;
            double step = error / ulp(least < rule.smallest ? rule.smallest : least, rule.tiny, rule.eps);
            step_square += step * step;
            step_largest = step > step_largest ? step : step_largest;
        }
    });
    fold<8, double>(rows, {square, largest, (double)beyond, (double)misplaced, step_square, step_largest,
                           (double)gross, (double)every}, 1u << 1 | 1u << 5);
}

#ifdef ELEMENT   // the type of the values: a module of its own for each, as compiling takes longer than most walks

extern "C" __global__ void __launch_bounds__(WIDTH) measure(
    const u64* truth, int sealed, u64 key, const ELEMENT* value, u64 count, double* rows, double tiny,
    double eps) {
    measure_all(truth, sealed, key, value, count, tiny, eps, rows);
}

extern "C" __global__ void __launch_bounds__(WIDTH) errors(
    const u64* truth, int sealed, u64 key, const ELEMENT* value, u64 count, double* rows, double tiny,
    double eps, double absolute, double relative, double smallest, double miss, double least, double faint, int bounds,
    int steps, int misses) {
    Rule rule = {tiny, eps, absolute, relative, smallest, miss, least, faint, bounds, steps, misses};
    errors_all(truth, sealed, key, value, count, rule, rows);
}

#else

// Seals words, or opens them: the exclusive or with the key stream, `first` words of which come before.
extern "C" __global__ void __launch_bounds__(WIDTH) seal(u64* words, u64 count, u64 first, u64 key) {
    const u64 last = (first + count + 1) / 2, stride = (u64)gridDim.x * WIDTH;
    for (u64 pair = first / 2 + (u64)blockIdx.x * WIDTH + threadIdx.x; pair < last; pair += stride) {
        u64 stream[2], at = 2 * pair - first;   // wraps to a large number before the first
        philox(key, pair, stream);
        if (at < count) words[at] ^= stream[0];
        if (at + 1 < count) words[at + 1] ^= stream[1];
    }
}

// Calls `see(word, place)` for each word of memory: `whole` of four bytes, with their sign, then single bytes.
template <class See>
__device__ void over_memory(const int* memory, u64 whole, u64 bytes, See see) {
    constexpr int WORDS = 8;   // on the way at once
    const u64 stride = (u64)gridDim.x * WIDTH, mine = (u64)blockIdx.x * WIDTH + threadIdx.x;
    for (u64 begin = mine; begin < whole; begin += WORDS * stride) {
        int word[WORDS];
#pragma unroll
        for (int k = 0; k < WORDS; ++k) word[k] = begin + k * stride < whole ? memory[begin + k * stride] : 0;
#pragma unroll
        for (int k = 0; k < WORDS; ++k)
            if (begin + k * stride < whole) see((i64)word[k], begin + k * stride);
    }
    for (u64 at = mine; at < bytes; at += stride) see((i64)((const unsigned char*)(memory + whole))[at], whole + at);
}

// Columns: the sum of mixed words, and weighted by place.
extern "C" __global__ void __launch_bounds__(WIDTH) checksum(const int* memory, u64 whole, u64 bytes, u64* rows,
                                                             u64 added, u64 before, u64 after) {
    u64 total = 0, weighted = 0;
    over_memory(memory, whole, bytes, [&](i64 word, u64 place) {
        u64 mixed = ((u64)word + added) * before;
        mixed = (mixed ^ (u64)((i64)mixed >> 31)) * after;   // as torch shifts: with the sign
        mixed ^= (u64)((i64)mixed >> 29);
        total += mixed;
        weighted += mixed * (2 * place + 1);
    });
    fold<2, u64>(rows, {total, weighted}, 0);
}

// The sum of words under weights that follow from a key and the place: SplitMix64 (Steele et al., 2014), made odd.
extern "C" __global__ void __launch_bounds__(WIDTH) digest(const int* memory, u64 whole, u64 bytes, u64* rows, u64 key) {
    u64 total = 0;
    over_memory(memory, whole, bytes, [&](i64 word, u64 place) {
        u64 weight = key + (place + 1) * 0x9E3779B97F4A7C15ull;
        weight = (weight ^ weight >> 30) * 0xBF58476D1CE4E5B9ull;
        weight = (weight ^ weight >> 27) * 0x94D049BB133111EBull;
        total += ((weight ^ weight >> 31) | 1) * (u64)word;
    });
    fold<1, u64>(rows, {total}, 0);
}

#endif
